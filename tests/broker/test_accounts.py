from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.credentials import Credentials, signed
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
    client: OfflineClient, code: int, fields: dict[str, str], body: bytes = b"", who: Credentials = ALICE
) -> Answer:
    return client.ask(code, signed(fields, body, who), body)


def put_user(client: OfflineClient, user: UserInfo, who: Credentials = ALICE, *, new: bool = True) -> Answer:
    code = RequestCode.AUTH_CREATE_USER if new else RequestCode.AUTH_UPDATE_USER
    return ask(client, code, {"username": user.username or ""}, user.encode(), who)


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
    return PolicyEntryInfo(**{"resource": resource, "actions": ("All",), "decision": "Allow", **changes})  # type: ignore[arg-type]  # what a test gives


async def test_users_are_listed_by_name_with_what_they_have(client: OfflineClient) -> None:
    assert users(client) == {
        "alice": ("12345678", "Super", "enable"),
        "bob": ("87654321", "Normal", "enable"),
    }
    assert users(client, filter="li").keys() == {"alice"}
    assert users(client, filter="nobody") == {}


async def test_what_is_not_said_of_a_user_stays(client: OfflineClient) -> None:
    put_user(client, UserInfo(username="bob", password=" ", user_status="DISABLE"), new=False)
    assert users(client)["bob"] == ("87654321", "Normal", "disable")
    put_user(client, UserInfo(username="bob", user_type="super"), new=False)
    assert users(client)["bob"] == ("87654321", "Super", "disable")


async def test_only_super_users_touch_super_users(client: OfflineClient) -> None:
    for verb, answer in (
        ("create", put_user(client, UserInfo(username="c", password="x", user_type="Super"), BOB)),
        ("update", put_user(client, UserInfo(username="bob", user_type="Super"), BOB, new=False)),
        ("update", put_user(client, UserInfo(username="alice", password="x"), BOB, new=False)),
        ("update", ask(client, RequestCode.AUTH_DELETE_USER, {"username": "alice"}, who=BOB)),
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
async def test_what_is_no_user(client: OfflineClient, user: UserInfo, code: int, remark: str) -> None:
    answer = put_user(client, user)
    assert (answer.code, answer.remark) == (code, remark)


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        (entry("Orders"), "The resource is null."),
        (entry(actions=("Any",)), "The actions can not be Any."),
        (entry(actions=("Fly",)), "The actions is empty."),
        (entry(source_ips=("here",)), "The source ip is invalid."),
        (entry(decision=None), "The decision is null or illegal."),
    ],
)
async def test_what_is_no_rule(client: OfflineClient, wrong: PolicyEntryInfo, remark: str) -> None:
    answer = put_rules(client, entry("Topic:a"), wrong)
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)
    assert ask(client, RequestCode.AUTH_LIST_ACL, {}).body == b""


async def test_rules_are_kept_by_kind_and_resource(client: OfflineClient) -> None:
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


async def test_where_nobody_is_checked_there_are_no_users(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    answer = open_broker().connect().ask(RequestCode.AUTH_LIST_USER, {})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "An system error occurred, please try again later."
