from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from tests.broker.offline import START_MS, Answer, OfflineBroker, OfflineClient


def query(client: OfflineClient, key: str, **changes: str) -> Answer:
    fields = {
        "topic": "t", "key": key, "maxNum": "32", "beginTimestamp": "0",
        "endTimestamp": "9999999999999", **changes,
    }  # fmt: skip
    return client.ask(RequestCode.QUERY_MESSAGE, fields)


def bodies(answer: Answer) -> list[bytes]:
    return [message.body for message in answer.messages]


@pytest.mark.parametrize(
    ("code", "topic", "queue_id", "fields"),
    [
        (RequestCode.GET_MAX_OFFSET, "t", "0", {"offset": "2"}),
        (RequestCode.GET_MAX_OFFSET, "t", "99", {"offset": "0"}),
        (RequestCode.GET_MAX_OFFSET, "unknown", "0", {"offset": "0"}),
        (RequestCode.GET_MIN_OFFSET, "t", "0", {"offset": "0"}),
        (RequestCode.GET_MIN_OFFSET, "unknown", "0", {"offset": "0"}),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, "t", "0", {"timestamp": str(START_MS)}),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, "t", "1", {"timestamp": "-1"}),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, "unknown", "0", {"timestamp": "-1"}),
    ],
)
async def test_offsets_and_first_store_time_of_a_queue(
    client: OfflineClient,
    autojump_clock: trio.testing.MockClock,
    code: int,
    topic: str,
    queue_id: str,
    fields: dict[str, str],
) -> None:
    client.send("t")
    await trio.sleep(5)
    client.send("t")
    answer = client.ask(code, {"topic": topic, "queueId": queue_id})
    assert (answer.code, answer.fields) == (ResponseCode.SUCCESS, fields)


@pytest.mark.parametrize(
    ("boundary", "after_ms", "offset"),
    [(None, 0, 0), (None, 1, 1), ("LOWER", 6000, 2), ("UPPER", 1, 0), ("upper", 6000, 1), ("ODD", 1, 1)],
)
async def test_search_offset_finds_an_offset_by_store_time(
    client: OfflineClient,
    autojump_clock: trio.testing.MockClock,
    boundary: str | None,
    after_ms: int,
    offset: int,
) -> None:
    client.send("t")
    await trio.sleep(5)
    client.send("t")
    fields = {"topic": "t", "queueId": "0", "timestamp": str(START_MS + after_ms)}
    if boundary:
        fields["boundaryType"] = boundary
    answer = client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
    assert answer.fields == {"offset": str(offset)}
    unknown = client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**fields, "topic": "unknown"})
    assert unknown.fields == {"offset": "0"}


async def test_view_message_finds_a_message_by_its_commit_log_offset(client: OfflineClient) -> None:
    client.send("t", b"one")
    offset = client.send("t", b"two").fields["msgId"][16:]
    answer = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(int(offset, 16))})
    assert bodies(answer) == [b"two"]
    answer = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "99"})
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "can not find message by the offset, 99",
    )


async def test_messages_are_found_by_key(client: OfflineClient) -> None:
    client.send("t", b"one", KEYS="k1 k2", UNIQ_KEY="U1")
    client.send("t", b"two", KEYS="k2", UNIQ_KEY="U2")
    client.send("u", b"three", KEYS="k1")
    assert bodies(query(client, "k1")) == [b"one"]
    assert bodies(query(client, "k2")) == [b"one", b"two"]
    client.send("t", b"four", KEYS="k2")
    answer = query(client, "k2", maxNum="2")
    assert bodies(answer) == [b"two", b"four"]
    last = client.pull("t", 2).messages[0]
    assert answer.fields == {
        "indexLastUpdateTimestamp": str(last.store_time_ms),
        "indexLastUpdatePhyoffset": str(last.commit_log_offset),
    }
    assert bodies(query(client, "U1", maxNum="0", _UNIQUE_KEY_QUERY="true")) == [b"one"]


async def test_a_query_selects_by_store_time(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    for body in (b"one", b"two", b"three"):
        client.send("t", body, KEYS="k")
        await trio.sleep(10)
    times = {"beginTimestamp": str(START_MS + 1), "endTimestamp": str(START_MS + 10_000)}
    assert bodies(query(client, "k", **times)) == [b"two"]
    answer = query(client, "k", beginTimestamp=str(START_MS + 99_999))
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.QUERY_NOT_FOUND,
        "can not find message, maybe time range not correct",
        {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"},
    )


async def test_dropped_messages_are_not_found(open_broker: Callable[..., OfflineBroker]) -> None:
    client = open_broker(max_store_bytes=3000).connect()
    for number in range(30):
        client.send("t", b"%d" % number, KEYS=f"k{number % 2}")
        if number % 7 == 0:
            query(client, "k0")
    found = bodies(query(client, "k1"))
    assert found == [b"%d" % number for number in range(1, 30, 2)][-len(found) :]
    assert 0 < len(found) < 5
