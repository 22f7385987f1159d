"""Users and ACL rules on brokers with access control: ACL 2.0 of 5.x."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketmq_py import Admin, Client, Credentials, Message
from rocketmq_py.admin import AclRule
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.errors import (
    AccessDeniedError,
    BrokerError,
    ConfigurationError,
    RocketMQError,
    UnsupportedByBrokerError,
)
from tests.behaviours.administering import is_4
from tests.behaviours.apis import client_of_api
from tests.behaviours.conftest import ClusterUnderTest

SUPER = Credentials("the-admin", "admin-secret-Grüße")


@pytest.fixture
def real_guarded(cluster_name: str, request: pytest.FixtureRequest) -> str | None:
    """The address of a real 5.x cluster with access control. None for the embedded broker."""
    if cluster_name == "embedded":
        return None
    if cluster_name.startswith("4"):
        pytest.skip("brokers of 4.x have ACL files instead of users")
    from integration.access import SETTINGS_OF_5

    address: str = request.getfixturevalue("own_cluster")(cluster_name, settings=SETTINGS_OF_5).name_servers
    return address


@pytest.fixture
async def address(real_guarded: str | None) -> AsyncIterator[str]:
    if real_guarded is not None:
        yield real_guarded
        return
    async with EmbeddedBroker(access_keys={SUPER.access_key: SUPER.secret_key}) as broker:
        yield broker.name_server_address


async def test_users_and_rules_are_created_changed_and_deleted(address: str) -> None:
    async with Admin(address, credentials=SUPER) as admin:
        assert [user.name for user in (await admin.access.users("the-a")).users] == ["the-admin"]
        brokers = await admin.access.create_user("alice", "alice-secret")
        assert brokers == ("broker-a",)
        (alice,) = (await admin.access.users("alic")).users
        assert (alice.name, alice.is_super, alice.is_enabled, alice.brokers) == (
            "alice",
            False,
            True,
            brokers,
        )
        with pytest.raises(BrokerError, match="The user is existed"):
            await admin.access.create_user("alice", "x")
        with pytest.raises(BrokerError, match="The user is not exist"):
            await admin.access.alter_user("nobody", secret="x")

        await admin.access.put_rule("alice", "Topic:Orders", ["pub", "SUB"], source_ips=["127.0.0.0/8"])
        await admin.access.put_rule("alice", "Group:bill*", ["Sub"], is_allowed=False)
        await admin.access.put_rule("alice", "*", ["List"])
        await admin.access.put_rule("alice", "Topic:Orders", ["Pub"])  # replaces the rule
        rules = {rule.resource: rule for rule in (await admin.access.rules("alice")).rules}
        assert rules == {
            resource: AclRule(
                user="alice", resource=resource, actions=(action,), is_allowed=allowed, brokers=brokers
            )
            for resource, action, allowed in (
                ("Topic:Orders", "Pub", True),
                ("Group:bill*", "Sub", False),
                ("*", "List", True),
            )
        }
        assert [rule.resource for rule in (await admin.access.rules(resource="bill")).rules] == [
            "Group:bill*"
        ]
        with pytest.raises(BrokerError, match="The subject of User:nobody is not exist"):
            await admin.access.put_rule("nobody", "*", ["All"])
        with pytest.raises(BrokerError, match="The source ip is invalid"):
            await admin.access.put_rule("alice", "*", ["All"], source_ips=["everywhere"])
        await admin.access.delete_rules("alice", "Topic:Orders")
        assert {rule.resource for rule in (await admin.access.rules("alice")).rules} == {"Group:bill*", "*"}
        await admin.access.delete_rules("alice")
        assert (await admin.access.rules("alice")).rules == ()
        with pytest.raises(BrokerError, match="The acl is not exist"):
            await admin.access.delete_rules("alice")

        await admin.access.put_rule("alice", "*", ["All"])
        await admin.access.delete_user("alice")
        await admin.access.delete_user("alice")  # brokers do not report that the user does not exist
        assert (await admin.access.users("alice")).users == ()
        assert (await admin.access.rules("alice")).rules == ()


async def test_brokers_check_the_current_secret_and_state_of_a_user(address: str) -> None:
    async def ask(secret: str) -> str | None:
        """Return the error that brokers answer bob with, None if they accept the request."""
        async with Admin(address, credentials=Credentials("bob", secret)) as admin:
            try:
                await admin.brokers.settings("broker-a")
            except AccessDeniedError as error:
                return str(error)
            return None

    async with Admin(address, credentials=SUPER) as admin:
        await admin.access.create_user("bob", "first-secret", is_super=True)
        assert await ask("first-secret") is None
        await admin.access.alter_user("bob", secret="second-secret")
        assert "check signature failed" in (await ask("first-secret") or "")
        assert await ask("second-secret") is None
        await admin.access.alter_user("bob", is_enabled=False)
        assert "User:bob is disabled" in (await ask("second-secret") or "")
        await admin.access.alter_user("bob", is_enabled=True, is_super=False)
        (bob,) = (await admin.access.users("bob")).users
        assert (bob.is_enabled, bob.is_super) == (True, False)
        await admin.access.delete_user("bob")
        assert "User:bob is not found" in (await ask("second-secret") or "")


@pytest.mark.sockets
@pytest.mark.apis
async def test_new_credentials_are_fetched_when_brokers_deny_access(
    address: str, api: str, unique: str
) -> None:
    secrets, calls = ["first-secret"], []

    def provide() -> Credentials:
        calls.append(secrets[-1])
        return Credentials(unique, secrets[-1])

    async with Admin(address, credentials=SUPER) as admin:
        await admin.access.create_user(unique, "first-secret", is_super=True)
        await admin.topics.create(unique, read_queues=1, write_queues=1)
        async with (
            Client(address, credentials=provide) as trio_client,
            client_of_api(api, address, trio_client, credentials=provide) as client,
            client.producer(f"{unique}-senders") as producer,
        ):
            await producer.send(Message(unique, b"before"))
            assert set(calls) == {"first-secret"}
            await admin.access.alter_user(unique, secret="second-secret")
            secrets.append("second-secret")
            await producer.send(Message(unique, b"after"))
            assert "second-secret" in calls
        await admin.access.delete_user(unique)


async def test_clusters_without_access_control_reject_users_and_rules(cluster: ClusterUnderTest) -> None:
    async with Admin(cluster.address) as admin:
        (error,) = (await admin.access.users()).failures.values()
        assert isinstance(error, UnsupportedByBrokerError if is_4(cluster) else BrokerError)
        (error,) = (await admin.access.rules()).failures.values()
        assert isinstance(error, UnsupportedByBrokerError if is_4(cluster) else BrokerError)
        with pytest.raises(RocketMQError):
            await admin.access.create_user("alice", "alice-secret")
        with pytest.raises(ConfigurationError, match="secret is empty"):
            await admin.access.create_user("alice", "")


async def test_only_4_x_brokers_return_acl_config_versions(cluster: ClusterUnderTest) -> None:
    async with Admin(cluster.address) as admin:
        answers = await admin.access.acl_config_versions()
    if is_4(cluster) and not answers.failures:
        assert answers.values.keys() == {"broker-a"}
        return
    (error,) = answers.failures.values()
    if not is_4(cluster):
        assert isinstance(error, UnsupportedByBrokerError)
        assert "does not support GET_BROKER_CLUSTER_ACL_INFO" in str(error)
