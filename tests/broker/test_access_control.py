from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.credentials import Credentials, signed
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo, read_acls, read_users
from tests.broker.offline import Answer, OfflineBroker, OfflineClient

ALICE = Credentials("alice", "12345678")
BOB = Credentials("bob", "87654321")


@pytest.fixture
async def client(open_broker: Callable[..., OfflineBroker]) -> OfflineClient:
    client = open_broker(access_keys={"alice": "12345678"}).connect()
    put_user(client, UserInfo(username="bob", password="87654321"))
    return client


def ask(
    client: OfflineClient,
    code: int,
    fields: dict[str, str],
    body: bytes = b"",
    credentials: Credentials = ALICE,
) -> Answer:
    return client.ask(code, signed(fields, body, credentials), body)


def put_user(
    client: OfflineClient, user: UserInfo, credentials: Credentials = ALICE, *, new: bool = True
) -> Answer:
    code = RequestCode.AUTH_CREATE_USER if new else RequestCode.AUTH_UPDATE_USER
    return ask(client, code, {"username": user.username or ""}, user.encode(), credentials)


def users(
    client: OfflineClient, **fields: str
) -> dict[str | None, tuple[str | None, str | None, str | None]]:
    answer = ask(client, RequestCode.AUTH_LIST_USER, fields)
    return {
        user.username: (user.password, user.user_type, user.user_status) for user in read_users(answer.body)
    }


def put_rules(client: OfflineClient, *entries: PolicyEntryInfo, kind: str | None = None) -> Answer:
    body = AclInfo(policies=(PolicyInfo(policy_type=kind, entries=entries),)).encode()
    return ask(client, RequestCode.AUTH_CREATE_ACL, {"subject": "User:bob"}, body)


def entry(resource: str = "*", **changes: object) -> PolicyEntryInfo:
    return PolicyEntryInfo(**{"resource": resource, "actions": ("All",), "decision": "Allow", **changes})  # type: ignore[arg-type]  # values of a test


async def test_users_are_listed_by_name(client: OfflineClient) -> None:
    assert users(client) == {
        "alice": ("12345678", "Super", "enable"),
        "bob": ("87654321", "Normal", "enable"),
    }
    assert users(client, filter="li").keys() == {"alice"}
    assert users(client, filter="unknown") == {}


async def test_an_update_keeps_values_that_it_leaves_out(client: OfflineClient) -> None:
    put_user(client, UserInfo(username="bob", password=" ", user_status="DISABLE"), new=False)
    assert users(client)["bob"] == ("87654321", "Normal", "disable")
    put_user(client, UserInfo(username="bob", user_type="super"), new=False)
    assert users(client)["bob"] == ("87654321", "Super", "disable")


async def test_only_super_users_change_super_users(client: OfflineClient) -> None:
    for verb, answer in (
        ("create", put_user(client, UserInfo(username="c", password="x", user_type="Super"), BOB)),
        ("update", put_user(client, UserInfo(username="bob", user_type="Super"), BOB, new=False)),
        ("update", put_user(client, UserInfo(username="alice", password="x"), BOB, new=False)),
        ("update", ask(client, RequestCode.AUTH_DELETE_USER, {"username": "alice"}, credentials=BOB)),
    ):
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"The super user can only be {verb} by super user"
    assert users(client)["alice"] == ("12345678", "Super", "enable")


@pytest.mark.parametrize(
    ("user", "code", "remark"),
    [
        (UserInfo(username="", password="x"), ResponseCode.INVALID_PARAMETER, "The username is blank"),
        (UserInfo(username="c", password=" "), ResponseCode.NO_PERMISSION, "password can not be blank"),
    ],
)
async def test_an_invalid_user_is_refused(
    client: OfflineClient, user: UserInfo, code: int, remark: str
) -> None:
    answer = put_user(client, user)
    assert (answer.code, answer.remark) == (code, remark)


@pytest.mark.parametrize(
    ("invalid", "remark"),
    [
        (entry("Orders"), "The resource is null."),
        (entry(actions=("Any",)), "The actions can not be Any."),
        (entry(actions=("Fly",)), "The actions is empty."),
        (entry(source_ips=("here",)), "The source ip is invalid."),
        (entry(decision=None), "The decision is null or illegal."),
    ],
)
async def test_an_invalid_rule_is_refused(
    client: OfflineClient, invalid: PolicyEntryInfo, remark: str
) -> None:
    answer = put_rules(client, entry("Topic:a"), invalid)
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)
    assert ask(client, RequestCode.AUTH_LIST_ACL, {}).body == b""


async def test_rules_are_stored_by_policy_type_and_resource(client: OfflineClient) -> None:
    put_rules(client, entry("Topic:a"), entry("topic:b"))
    put_rules(client, entry("Topic:a", decision="deny"), kind="default")
    put_rules(client, entry("Topic:a", actions=("pub",)))
    (acl,) = read_acls(ask(client, RequestCode.AUTH_LIST_ACL, {}).body)
    assert acl.subject == "User:bob"
    assert [
        (policy.policy_type, one.resource, one.actions, one.decision)
        for policy in acl.policies
        for one in policy.entries
    ] == [
        ("Custom", "Topic:a", ("Pub",), "Allow"),
        ("Custom", "Topic:b", ("All",), "Allow"),
        ("Default", "Topic:a", ("All",), "Deny"),
    ]
    deleted = {"subject": "User:bob", "policyType": "Default", "resource": "Topic:a"}
    ask(client, RequestCode.AUTH_DELETE_ACL, deleted)
    (acl,) = read_acls(ask(client, RequestCode.AUTH_LIST_ACL, {"resourceFilter": ":a"}).body)
    assert [(policy.policy_type, len(policy.entries)) for policy in acl.policies] == [("Custom", 1)]


async def test_without_access_keys_requests_about_users_are_refused(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    answer = open_broker().connect().ask(RequestCode.AUTH_LIST_USER, {})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "An system error occurred, please try again later."


# Authentication

QUERY = {"topic": "TBW102", "queueId": "0"}


async def test_a_signed_request_is_answered(client: OfflineClient) -> None:
    for credentials in (ALICE, BOB, Credentials("alice", "12345678", "token")):
        answer = client.ask(RequestCode.GET_MAX_OFFSET, signed(QUERY, b"", credentials))
        assert (answer.code, answer.fields) == (ResponseCode.SUCCESS, {"offset": "0"})


# The remarks are those of a real 5.5.0 broker.
@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        (QUERY, "username cannot be null."),
        ({}, "username cannot be null."),
        (QUERY | {"AccessKey": ""}, "username cannot be null."),
        (signed(QUERY, b"", Credentials("unknown", "12345678")), "User:unknown is not found."),
        (signed(QUERY, b"", Credentials("alice", "87654321")), "check signature failed."),
        (signed(QUERY, b"another body", ALICE), "check signature failed."),
        (signed(QUERY, b"", ALICE) | {"queueId": "1"}, "check signature failed."),
        (signed(QUERY, b"", ALICE) | {"SecurityToken": "t"}, "check signature failed."),
        (QUERY | {"AccessKey": "alice"}, "check signature failed."),
        (QUERY | {"AccessKey": "alice", "Signature": "é\ud800"}, "check signature failed."),
    ],
)
async def test_an_unsigned_or_wrongly_signed_request_is_refused(
    client: OfflineClient, fields: dict[str, str], remark: str
) -> None:
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.HEART_BEAT, 99_999):
        answer = client.ask(code, fields)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.NO_PERMISSION, remark, {})


async def test_the_signature_covers_the_body(client: OfflineClient) -> None:
    header = {"a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": ""}
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, signed(header, b"hello", ALICE), b"hello")
    assert answer.code == ResponseCode.SUCCESS
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, signed(header, b"hello", ALICE), b"jello")
    assert answer.remark == "check signature failed."


async def test_the_name_server_does_not_authenticate(client: OfflineClient) -> None:
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    assert answer.code == ResponseCode.SUCCESS


def test_secrets_are_not_in_the_repr_of_the_config() -> None:
    config = BrokerConfig(access_keys={"alice": "12345678"})
    assert "12345678" not in repr(config)
    hash(config)


@pytest.mark.parametrize("keys", [{"": "12345678"}, {"alice": ""}, {"12345678": None}])
def test_an_access_key_that_is_not_a_string_is_an_error(keys: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="access_keys") as caught:
        BrokerConfig(access_keys=keys)
    assert "12345678" not in str(caught.value)
