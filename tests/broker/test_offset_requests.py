from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketmq_py.codes import RequestCode, ResponseCode
from tests.broker.offline import Answer, OfflineBroker, OfflineClient

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


def query(client: OfflineClient, topic: str = "t", group: str = "g", **changes: str) -> Answer:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", **changes}
    return client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)


def update(client: OfflineClient, offset: int, topic: str = "t", group: str = "g") -> Answer:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    return client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


async def test_a_new_group_starts_at_0_if_the_queue_has_its_first_message(client: OfflineClient) -> None:
    client.send("t")
    answer = query(client)
    assert (answer.code, answer.fields) == (ResponseCode.SUCCESS, {"offset": "0"})


async def test_a_query_without_set_zero_if_not_found_finds_no_offset(client: OfflineClient) -> None:
    client.send("t")
    answer = query(client, setZeroIfNotFound="false")
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "Not found, do not set to zero, maybe this group boot first",
    )
    assert query(client, setZeroIfNotFound="true").fields == {"offset": "0"}


async def test_a_new_group_has_no_offset_in_an_empty_queue(client: OfflineClient) -> None:
    client.send("t", queue_id=1)
    for topic in ("t", "unknown"):
        answer = query(client, topic)
        assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)


async def test_a_new_group_has_no_offset_after_the_first_message_was_dropped(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(max_store_bytes=1000).connect()
    for _ in range(5):
        client.send("t")
    assert query(client).code == ResponseCode.QUERY_NOT_FOUND


async def test_commits_are_stored_unchecked(client: OfflineClient) -> None:
    client.send("t")
    client.pull("t", consumerGroup="g")
    for offset in (1, 0, 100):
        answer = update(client, offset)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert query(client).fields == {"offset": str(offset)}
    update(client, -1)
    assert query(client).fields == {"offset": "0"}, "-1 means that no offset is committed"


@pytest.mark.parametrize(
    ("topic", "group", "code", "remark"),
    [
        ("t", "unknown", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group unknown not exist!"),
        ("unknown", "g", ResponseCode.TOPIC_NOT_EXIST, "Topic unknown not exist!"),
    ],
)
async def test_a_commit_for_an_unknown_topic_or_group_is_refused(
    client: OfflineClient, topic: str, group: str, code: int, remark: str
) -> None:
    client.send("t")
    client.pull("t", consumerGroup="g")
    answer = update(client, 1, topic, group)
    assert (answer.code, answer.remark) == (code, remark)
