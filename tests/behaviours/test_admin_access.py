"""Users and ACL rules on brokers with access control: ACL 2.0 of 5.x."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import trio

from rocketmq_py import Admin, Client, Credentials, Message, PendingSend, ReceivedMessage
from rocketmq_py.admin import AccessNotFoundError, AclRule, AlreadyExistsError
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client.features import ACL_1, ACL_2
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import (
    AccessDeniedError,
    BrokerError,
    ConfigurationError,
    UnsupportedByBrokerError,
)
from rocketmq_py.testing import run_broker
from tests.behaviours.apis import client_of_api
from tests.behaviours.conftest import ClusterUnderTest

SUPER = Credentials("the-admin", "admin-secret-Grüße")


@pytest.fixture
def real_guarded(cluster_name: str, request: pytest.FixtureRequest) -> str | None:
    """The address of a real cluster with access control. None for the embedded broker."""
    if cluster_name == "embedded":
        return None
    ClusterUnderTest(cluster_name, "").needs(ACL_2)
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
        with pytest.raises(AlreadyExistsError, match="user 'alice' exists already on broker-a"):
            await admin.access.create_user("alice", "x")
        for change in (admin.access.alter_user("nobody", secret="x"), admin.access.delete_user("nobody")):
            with pytest.raises(AccessNotFoundError, match="user 'nobody' does not exist") as missing:
                await change
            assert (missing.value.kind, missing.value.name) == ("user", "nobody")

        assert await admin.access.create_user("alice", "alice-secret", if_not_exists=True) == ()
        with pytest.raises(AlreadyExistsError) as user_caught:
            await admin.access.create_user("alice", "hunter2", is_super=True, if_not_exists=True)
        assert (user_caught.value.kind, user_caught.value.name) == ("user", "alice")
        assert user_caught.value.brokers == brokers
        assert user_caught.value.differences == ("is_super is false, not true", "the secret is another one")
        assert "hunter2" not in str(user_caught.value)
        assert "alice-secret" not in str(user_caught.value)
        assert await admin.access.create_user("alic", "x", if_not_exists=True) == brokers
        await admin.access.delete_user("alic")

        for expected in (brokers, ()):
            put = admin.access.put_rule("alice", "Topic:Once", ["pub", "Sub"], if_not_exists=True)
            assert await put == expected
        with pytest.raises(AlreadyExistsError) as rule_caught:
            await admin.access.put_rule(
                "alice", "Topic:Once", ["Pub"], source_ips=["127.0.0.1"], is_allowed=False, if_not_exists=True
            )
        assert (rule_caught.value.kind, rule_caught.value.name) == ("rule", "alice on Topic:Once")
        assert rule_caught.value.differences == (
            "actions is Pub, Sub, not Pub",
            "is_allowed is true, not false",
            "source_ips is empty, not 127.0.0.1",
        )
        await admin.access.delete_rules("alice", "Topic:Once")
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
        with pytest.raises(AccessNotFoundError, match="rule 'alice on Topic:nope' does not exist"):
            await admin.access.delete_rules("alice", "Topic:nope")
        await admin.access.delete_rules("alice", "Topic:Orders")
        assert {rule.resource for rule in (await admin.access.rules("alice")).rules} == {"Group:bill*", "*"}
        await admin.access.delete_rules("alice")
        assert (await admin.access.rules("alice")).rules == ()
        with pytest.raises(AccessNotFoundError, match="rule 'alice on any resource' does not exist"):
            await admin.access.delete_rules("alice")

        await admin.access.put_rule("alice", "*", ["All"])
        await admin.access.delete_user("alice")
        with pytest.raises(AccessNotFoundError):
            await admin.access.delete_user("alice")
        assert (await admin.access.users("alice")).users == ()
        assert (await admin.access.rules("alice")).rules == ()


async def test_changes_do_not_need_the_permission_to_list() -> None:
    """A user with Update on clusters may create, change and delete users, without Get, which lists them."""
    code, remark = ResponseCode.NO_PERMISSION, "the-admin has no permission to access the cluster"
    with run_broker(access_keys={SUPER.access_key: SUPER.secret_key}) as broker:
        brokers = tuple(broker.broker_names)
        async with Admin(broker.name_server_address, credentials=SUPER) as admin:
            access = admin.access
            with (
                broker.fail("AUTH_LIST_USER", code=code, remark=remark),
                broker.fail("AUTH_LIST_ACL", code=code, remark=remark),
            ):
                with pytest.raises(AccessDeniedError):
                    await access.create_user("alice", "alice-secret", if_not_exists=True)
                assert await access.create_user("alice", "alice-secret") == brokers
                assert await access.alter_user("alice", is_enabled=False) == brokers
                await access.put_rule("alice", "Topic:Orders", ["Pub"])
                assert await access.delete_rules("alice") == brokers
            assert not (await access.rules("alice")).rules
            (alice,) = (await access.users("alice")).users
            assert not alice.is_enabled
            with broker.fail("AUTH_LIST_USER", code=code, remark=remark):
                assert await access.delete_user("alice") == brokers
            assert not (await access.users("alice")).users


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


@pytest.mark.sockets
async def test_keys_are_rotated_without_a_failed_request(address: str, unique: str) -> None:
    """The new user gets the rules of the old one, the function returns it, then the old one is disabled."""
    user, users = f"{unique}-1", [f"{unique}-1", f"{unique}-2"]
    group, count = f"{unique}-group", 600
    received: set[bytes] = set()
    complete = trio.Event()

    def provide() -> Credentials:
        return Credentials(user, f"secret-of-{user}")

    async def handle(message: ReceivedMessage) -> None:
        received.add(message.body)
        if len(received - {b"awaited"}) == count:
            complete.set()

    async with Admin(address, credentials=SUPER) as admin:
        await admin.topics.create(unique, read_queues=2, write_queues=2)
        for name in users:
            await admin.access.create_user(name, f"secret-of-{name}")
            await admin.access.put_rule(name, f"Topic:{unique}", ["Pub", "Sub"])
            await admin.access.put_rule(name, f"Group:{group}", ["Sub"])
        async with (
            Client(address, credentials=provide) as client,
            client.producer("senders") as producer,
            client.push_consumer(group, consume_from="earliest", rebalance_interval=1) as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe(unique)
            nursery.start_soon(consumer.run, handle)
            pending: list[PendingSend] = []
            for number in range(count):
                if number == count // 3:
                    user = users[1]
                elif number == count // 2:
                    await admin.access.alter_user(users[0], is_enabled=False)
                pending.append(await producer.submit(Message(unique, b"%d" % number)))
                if number % 10 == 0:
                    await producer.send(Message(unique, b"awaited"))
            await producer.flush()
            assert [one.exception() for one in pending if one.exception() is not None] == []
            assert producer.statistics.failed == 0
            with trio.fail_after(60):
                await complete.wait()
            nursery.cancel_scope.cancel()


async def test_clusters_without_access_control_reject_users_and_rules(cluster: ClusterUnderTest) -> None:
    async with Admin(cluster.address) as admin:
        text = "keeps no users and rules: its access control is off"
        if not cluster.has(ACL_2):
            text = r"does not support users and access rules \(ACL 2\.0\), which needs 5\.3\.0"
        for listing in (await admin.access.users(), await admin.access.rules()):
            (error,) = listing.failures.values()
            assert isinstance(error, UnsupportedByBrokerError)
            assert re.search(text, str(error))
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await admin.access.create_user("alice", "alice-secret")
        with pytest.raises(ConfigurationError, match="secret is empty"):
            await admin.access.create_user("alice", "")


async def test_only_brokers_with_acl_1_return_acl_config_versions(cluster: ClusterUnderTest) -> None:
    async with Admin(cluster.address) as admin:
        answers = await admin.access.acl_config_versions()
    if not answers.failures:
        assert cluster.has(ACL_1)
        assert answers.values.keys() == {"broker-a"}
        return
    (error,) = answers.failures.values()
    if not cluster.has(ACL_1):
        assert isinstance(error, UnsupportedByBrokerError)
        assert "which needs 4.5.0 or newer" in str(error)
    elif cluster.is_at_least("5.3.3"):  # it has ACL 2.0 only
        assert isinstance(error, UnsupportedByBrokerError)
        assert "does not offer administration (GET_BROKER_CLUSTER_ACL_INFO, 52)" in str(error)
    else:
        assert isinstance(error, UnsupportedByBrokerError)
        assert "keeps no ACL files: its access control is off. Set aclEnable=true" in str(error)
