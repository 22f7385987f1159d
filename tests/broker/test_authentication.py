from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketmq_py.broker import BrokerConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.credentials import Credentials, signed
from rocketmq_py.errors import ConfigurationError
from tests.broker.offline import OfflineBroker, OfflineClient

ALICE = Credentials("alice", "12345678")
QUESTION = {"topic": "TBW102", "queueId": "0"}


@pytest.fixture
async def client(open_broker: Callable[..., OfflineBroker]) -> OfflineClient:
    return open_broker(access_keys={"alice": "12345678", "bob": "87654321"}).connect()


async def test_who_signs_may_ask(client: OfflineClient) -> None:
    for credentials in (ALICE, Credentials("bob", "87654321"), Credentials("alice", "12345678", "token")):
        answer = client.ask(RequestCode.GET_MAX_OFFSET, signed(QUESTION, b"", credentials))
        assert (answer.code, answer.fields) == (ResponseCode.SUCCESS, {"offset": "0"})


# The remarks are those of a real 5.5.0 broker.
@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        (QUESTION, "username cannot be null."),
        ({}, "username cannot be null."),
        (QUESTION | {"AccessKey": ""}, "username cannot be null."),
        (signed(QUESTION, b"", Credentials("nobody", "12345678")), "User:nobody is not found."),
        (signed(QUESTION, b"", Credentials("alice", "87654321")), "check signature failed."),
        (signed(QUESTION, b"another body", ALICE), "check signature failed."),
        (signed(QUESTION, b"", ALICE) | {"queueId": "1"}, "check signature failed."),
        (signed(QUESTION, b"", ALICE) | {"SecurityToken": "t"}, "check signature failed."),
        (QUESTION | {"AccessKey": "alice"}, "check signature failed."),
        (QUESTION | {"AccessKey": "alice", "Signature": "é\ud800"}, "check signature failed."),
    ],
)
async def test_who_does_not_is_refused(client: OfflineClient, fields: dict[str, str], remark: str) -> None:
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.HEART_BEAT, 99_999):
        answer = client.ask(code, fields)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.NO_PERMISSION, remark, {})


async def test_bodies_are_signed(client: OfflineClient) -> None:
    header = {"a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": ""}
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, signed(header, b"hello", ALICE), b"hello")
    assert answer.code == ResponseCode.SUCCESS
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, signed(header, b"hello", ALICE), b"jello")
    assert answer.remark == "check signature failed."


async def test_the_name_server_answers_everybody(client: OfflineClient) -> None:
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    assert answer.code == ResponseCode.SUCCESS


def test_secrets_are_not_shown() -> None:
    config = BrokerConfig(access_keys={"alice": "12345678"})
    assert "12345678" not in repr(config)
    hash(config)


@pytest.mark.parametrize("keys", [{"": "12345678"}, {"alice": ""}, {"12345678": None}])
def test_keys_are_texts(keys: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="access_keys") as caught:
        BrokerConfig(access_keys=keys)
    assert "12345678" not in str(caught.value)
