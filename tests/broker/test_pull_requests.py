from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import trio
import trio.testing

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.storage.consume_queue import (
    FILTERED_MESSAGES,
    ConsumeQueue,
    MessageFilter,
    read_messages,
)
from rocketmq_py.broker.storage.message_store import MESSAGE_OVERHEAD, MessageStore
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.subscription import tag_code
from tests.broker.offline import OfflineBroker, OfflineClient

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
A, B = tag_code("A"), tag_code("B")


def tagged(*codes: int) -> MessageFilter:
    return lambda message: message.tags_code in codes


def queue_of(tags: str, *, body: bytes = b"x", kept: int = 10_000) -> ConsumeQueue:
    """Return a queue with a message for each letter, limited to the last ``kept`` messages."""
    size = MESSAGE_OVERHEAD + 94 + len(body)
    store = MessageStore(bytes(8), max_bytes=kept * size, max_message_size=1 << 22, now_ms=lambda: 1)
    queue = store.queue("t", 0)
    for tag in tags:
        store.append(queue, body, b"", tag_code(tag), 0, 0, 0, bytes(8))
    return queue


# The answers of a real 5.5.0 broker.
@pytest.mark.parametrize(
    ("queue", "offset", "code", "status", "next_offset"),
    [
        (queue_of(""), 0, ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0),
        (queue_of(""), 5, ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0),
        (queue_of("AA"), 2, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 2),
        (queue_of("AA"), 3, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 2),
        (queue_of("AA"), -1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
        (queue_of("AAAA", kept=2), 1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 2),
        (queue_of("AAAA", kept=2), 2, ResponseCode.SUCCESS, "FOUND", 4),
    ],
)
def test_a_read_outside_the_queue_returns_the_status_of_java(
    queue: ConsumeQueue, offset: int, code: int, status: str, next_offset: int
) -> None:
    result = read_messages(queue, offset, 32, None, BrokerConfig())
    assert (result.code, result.status, result.next_offset) == (code, status, next_offset)


@pytest.mark.parametrize(
    ("count", "message_filter", "offsets", "next_offset"),
    [
        (32, None, [0, 1, 2, 3], 4),
        (2, None, [0, 1], 2),
        (0, None, [0], 1),
        (-1, None, [0], 1),
        (32, tagged(A), [0, 2], 4),
        (1, tagged(B), [1], 2),
        (2, tagged(B), [1, 3], 4),
        (32, tagged(A, B), [0, 1, 2, 3], 4),
        (32, tagged(7), [], 4),
    ],
)
def test_a_read_returns_messages_that_pass_the_filter(
    count: int, message_filter: MessageFilter, offsets: list[int], next_offset: int
) -> None:
    result = read_messages(queue_of("ABAB"), 0, count, message_filter, BrokerConfig())
    assert [message.queue_offset for message in result.messages] == offsets
    assert result.next_offset == next_offset
    assert result.code == (ResponseCode.SUCCESS if offsets else ResponseCode.PULL_RETRY_IMMEDIATELY)


def test_a_read_returns_at_most_32_messages() -> None:
    result = read_messages(queue_of("A" * 40), 0, 1000, None, BrokerConfig())
    assert (len(result.messages), result.next_offset) == (32, 32)
    assert len(read_messages(queue_of("A" * 40), 39, 1000, None, BrokerConfig()).messages) == 1


def test_a_read_returns_at_most_256_kib_but_at_least_a_message() -> None:
    assert len(read_messages(queue_of("AAA", body=b"y" * 100_000), 0, 32, None, BrokerConfig()).messages) == 2
    assert len(read_messages(queue_of("AAA", body=b"y" * 300_000), 0, 32, None, BrokerConfig()).messages) == 1


def test_a_filter_examines_a_limited_number_of_messages() -> None:
    result = read_messages(queue_of("A" * (FILTERED_MESSAGES + 50)), 0, 32, tagged(B), BrokerConfig())
    assert (result.status, result.next_offset) == ("NO_MATCHED_MESSAGE", FILTERED_MESSAGES)


# Answers


async def test_an_answer_contains_the_offsets_of_the_queue(client: OfflineClient) -> None:
    client.send("t")
    client.send("t")
    answer = client.pull("t", maxMsgNums="1")
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert answer.fields == {
        "nextBeginOffset": "1",
        "minOffset": "0",
        "maxOffset": "2",
        "suggestWhichBrokerId": "0",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


async def test_lite_pull_message_is_answered_like_a_pull(client: OfflineClient) -> None:
    client.send("t")
    answer = client.ask(RequestCode.LITE_PULL_MESSAGE, client.pull_fields("t", 0))
    assert [message.body for message in answer.messages] == [b"hello"]


@pytest.mark.parametrize(
    ("expression", "expression_type", "code"),
    [
        ("A", "TAG", ResponseCode.SUCCESS),
        ("B || A", "TAG", ResponseCode.SUCCESS),
        ("", "TAG", ResponseCode.SUCCESS),
        ("*", "", ResponseCode.SUCCESS),
        ("B", "TAG", ResponseCode.PULL_RETRY_IMMEDIATELY),
        ("||", "TAG", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("TAGS = 'A'", "SQL92", ResponseCode.SUCCESS),
        ("TAGS = 'B'", "SQL92", ResponseCode.PULL_RETRY_IMMEDIATELY),
        ("TAGS =", "SQL92", ResponseCode.SUCCESS),
        ("TAGS = 'B'", "SQL93", ResponseCode.SUCCESS),
    ],
)
async def test_a_pull_can_carry_its_subscription(
    client: OfflineClient, expression: str, expression_type: str, code: int
) -> None:
    client.send("t", TAGS="A")
    assert client.pull("t", subscription=expression, expressionType=expression_type).code == code


async def test_a_sql_filter_treats_empty_properties_as_missing(client: OfflineClient) -> None:
    client.send("t", b"one", size="1")
    client.send("t", b"two", colour="1")
    client.send("t", b"three", size="")

    def bodies(condition: str) -> list[bytes]:
        pulled = client.pull("t", subscription=condition, expressionType="SQL92")
        return [message.body for message in pulled.messages]

    assert bodies("size = 1") == [b"one"]
    assert bodies("size IS NULL") == [b"two", b"three"]


async def test_enable_property_filter_false_refuses_sql_filters(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(enable_property_filter=False).connect()
    client.send("t")
    answer = client.pull("t", subscription="a > 1", expressionType="SQL92")
    assert answer.remark == "The broker does not support consumer to filter message by SQL92"


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        (
            {"topic": "nope"},
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[nope] not exist, apply first please! {FAQ}",
        ),
        (
            {"consumerGroup": "a b"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [a b] does not exist, {FAQ}",
        ),
        (
            {"queueId": "9"},
            ResponseCode.INVALID_PARAMETER,
            "queueId[9] is illegal, topic:[t] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:50001]",
        ),
        (
            {"sysFlag": "0"},
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's group info not exist{FAQ}",
        ),
    ],
)
async def test_invalid_pulls_are_refused(
    client: OfflineClient, changes: dict[str, str], code: int, remark: str
) -> None:
    client.send("t")
    answer = client.pull("t", **changes)
    assert (answer.code, answer.remark, answer.fields) == (code, remark, {})


async def test_unknown_groups_are_refused_without_automatic_creation(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(auto_create_subscription_group=False).connect()
    client.send("t")
    assert client.pull("t").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    group = {"groupName": "readers", "consumeEnable": False}
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())
    answer = client.pull("t")
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.NO_PERMISSION,
        "subscription group no permission, readers",
        {"forbiddenType": "2"},
    )


async def test_a_pull_with_the_commit_flag_commits_an_offset(client: OfflineClient) -> None:
    def committed() -> str:
        fields = {"consumerGroup": "readers", "topic": "t", "queueId": "0"}
        return client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields).fields["offset"]

    for _ in range(3):
        client.send("t")
    client.pull("t", 2, commitOffset="2")
    assert committed() == "0"
    client.pull("t", 2, commitOffset="2", sysFlag="5")
    assert committed() == "2"


# Long polling


async def test_a_held_pull_is_answered_when_a_message_arrives(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    other = broker.connect()
    client.send("t", queue_id=1)
    held = client.hold_pull("t")
    await trio.testing.wait_all_tasks_blocked()
    assert [answer.opaque for answer in client.answers].count(held) == 0
    other.send("t", b"one")
    other.send("t", b"two")
    await trio.testing.wait_all_tasks_blocked()
    answer = client.answers[-1]
    assert answer.opaque == held
    assert [message.body for message in answer.messages] == [b"one", b"two"]
    other.send("t", b"three")
    await trio.testing.wait_all_tasks_blocked()
    assert client.answers[-1] is answer


async def test_a_message_does_not_answer_a_pull_that_starts_after_it(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    early, late = broker.connect(), broker.connect()
    client.send("t", queue_id=1)
    early.hold_pull("t")
    client.send("t")
    late.hold_pull("t", 1)
    await trio.testing.wait_all_tasks_blocked()
    assert (len(early.answers), len(late.answers)) == (1, 0)


async def test_a_message_answers_all_pulls_held_for_its_queue(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    client.send("t", queue_id=1)
    holder = [broker.connect() for _ in range(5)]
    for one in holder:
        one.hold_pull("t")
    client.send("t")
    await trio.testing.wait_all_tasks_blocked()
    assert [len(one.answers) for one in holder] == [1] * 5


async def test_a_held_pull_is_answered_when_it_expires(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", queue_id=1)
    client.hold_pull("t", suspendTimeoutMillis="3000")
    await trio.sleep(2.9)
    assert len(client.answers) == 1
    await trio.sleep(0.3)
    answer = client.answers[-1]
    assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")


async def test_short_polling_holds_a_pull_for_short_polling_time(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(long_polling_enable=False, short_polling_time=1.0).connect()
    client.send("t", queue_id=1)
    client.hold_pull("t", suspendTimeoutMillis="15000")
    await trio.sleep(1.2)
    assert client.answers[-1].code == ResponseCode.PULL_NOT_FOUND


async def test_a_pull_without_the_suspend_flag_is_answered_at_once(client: OfflineClient) -> None:
    client.send("t", queue_id=1)
    assert client.pull("t").code == ResponseCode.PULL_NOT_FOUND


async def test_excluded_messages_shorten_the_time_that_a_pull_is_held(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", queue_id=1)
    holder = broker.connect()
    holder.hold_pull("t", subscription="A")
    await trio.sleep(1)
    client.send("t", TAGS="B")
    await trio.sleep(1)
    client.send("t", TAGS="B")
    await trio.sleep(3.5)
    assert holder.answers == []
    await trio.sleep(1)
    (answer,) = holder.answers
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert answer.fields["nextBeginOffset"] == "2"


async def test_a_held_pull_waits_for_a_message_with_its_tag(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", queue_id=1)
    holder = broker.connect()
    holder.hold_pull("t", subscription="A")
    client.send("t", TAGS="B")
    await trio.sleep(0.1)
    assert holder.answers == []
    client.send("t", b"wanted", TAGS="A")
    await trio.sleep(0.1)
    (answer,) = holder.answers
    assert [message.body for message in answer.messages] == [b"wanted"]
    assert answer.fields["nextBeginOffset"] == "2"


async def test_a_held_pull_waits_for_a_message_that_matches_its_sql_filter(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", queue_id=1)
    holder = broker.connect()
    holder.hold_pull("t", subscription="size > 1", expressionType="SQL92")
    client.send("t", size="1")
    await trio.sleep(0.1)
    assert holder.answers == []
    client.send("t", b"wanted", size="2")
    await trio.sleep(0.1)
    (answer,) = holder.answers
    assert [message.body for message in answer.messages] == [b"wanted"]


async def test_the_pulls_of_a_closed_connection_are_dropped(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    client.send("t", queue_id=1)
    gone, there = broker.connect(), broker.connect()
    gone.hold_pull("t")
    there.hold_pull("t")
    gone.close()
    client.send("t")
    await trio.testing.wait_all_tasks_blocked()
    assert (len(gone.answers), len(there.answers)) == (0, 1)


async def test_a_held_pull_does_not_undo_a_later_commit(client: OfflineClient, broker: OfflineBroker) -> None:
    client.send("t")
    offsets = {"consumerGroup": "readers", "topic": "t", "queueId": "0"}
    holder = broker.connect()
    holder.hold_pull("t", 1, sysFlag="7", commitOffset="0")
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**offsets, "commitOffset": "1"})
    client.send("t")
    await trio.testing.wait_all_tasks_blocked()
    assert holder.answers[-1].code == ResponseCode.SUCCESS
    assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, offsets).fields["offset"] == "1"


async def test_a_pull_held_for_a_deleted_topic_is_refused_when_it_expires(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", queue_id=1)
    holder = broker.connect()
    holder.hold_pull("t", suspendTimeoutMillis="1000")
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    await trio.sleep(2)
    assert holder.answers[-1].code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_held_pull_is_answered_when_its_topic_was_deleted_and_is_created_again(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    client.send("t")
    holder = broker.connect()
    holder.hold_pull("t", 1)
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    assert holder.answers == []
    client.send("t")
    (answer,) = holder.answers
    assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
