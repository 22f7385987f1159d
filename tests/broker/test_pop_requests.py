from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.broker.pop.pop_requests import MAX_HELD
from rocketmq_py.broker.storage.message_store import MESSAGE_OVERHEAD
from rocketmq_py.codes import RequestCode, ResponseCode
from tests.broker.offline import START_MS, Answer, OfflineBroker, OfflineClient
from tests.broker.popping import ack, ask_pop, hold_pop, now_ms, pop, read
from tests.popped import bodies

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
NOTHING = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


def send(client: OfflineClient, *messages: bytes, **changes: Any) -> None:
    for body in messages:
        client.send("t", body, **changes)


def create(client: OfflineClient, topic: str, **changes: str) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "order": "false", **changes,
    }  # fmt: skip
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == ResponseCode.SUCCESS


def committed(client: OfflineClient, group: str = "readers", topic: str = "t") -> str | None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "setZeroIfNotFound": "false"}
    return client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields).fields.get("offset")


# Messages


async def test_a_pop_returns_messages_of_all_queues_once_per_group(client: OfflineClient) -> None:
    for queue_id in range(4):
        send(client, b"%d" % queue_id, queue_id=queue_id)
    assert bodies(pop(client, "t")) == [b"0", b"1", b"2", b"3"]
    assert pop(client, "t") == []
    assert bodies(pop(client, "t", consumer_group="others")) == [b"0", b"1", b"2", b"3"]


async def test_an_answer_contains_the_origin_of_the_messages(
    client: OfflineClient, mock_clock: trio.testing.MockClock
) -> None:
    send(client, b"a", b"b", b"c")
    answer = ask_pop(client, "t", queue_id=0, max_msg_nums=2)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert answer.fields == {
        "popTime": str(now_ms()), "invisibleTime": "30000", "reviveQid": "0", "restNum": "1",
        "startOffsetInfo": "0 0 0", "msgOffsetInfo": "0 0 0,1",
    }  # fmt: skip
    answer = ask_pop(client, "t", queue_id=0)
    assert answer.fields["startOffsetInfo"] == "0 0 2"
    assert answer.fields["reviveQid"] == "1"


async def test_a_pop_from_a_single_queue(client: OfflineClient) -> None:
    send(client, b"a", queue_id=0)
    send(client, b"b", queue_id=1)
    assert bodies(pop(client, "t", queue_id=1)) == [b"b"]
    assert bodies(pop(client, "t")) == [b"a"]


async def test_a_pop_returns_at_most_the_requested_number_of_messages(client: OfflineClient) -> None:
    for queue_id in range(4):
        send(client, b"a", b"b", queue_id=queue_id)
    answer = ask_pop(client, "t", max_msg_nums=3)
    assert (len(read(answer)), answer.fields["restNum"]) == (3, "5")
    assert len(pop(client, "t")) == 5
    send(client, b"late")
    assert pop(client, "t", max_msg_nums=0) == []


async def test_a_pop_that_finds_no_message(client: OfflineClient, mock_clock: trio.testing.MockClock) -> None:
    send(client, b"a")
    pop(client, "t")
    answer = ask_pop(client, "t")
    assert (answer.code, answer.remark, answer.body) == (
        ResponseCode.POLLING_TIMEOUT,
        "NO_MESSAGE_IN_QUEUE",
        b"",
    )
    assert answer.fields == {
        "popTime": str(now_ms()), "invisibleTime": "30000", "reviveQid": "1", "restNum": "0",
        "startOffsetInfo": "", "msgOffsetInfo": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exp": "*"}, [b"a", b"b"]),
        ({"exp": "A"}, [b"a"]),
        ({"exp": "A || B", "exp_type": "TAG"}, [b"a", b"b"]),
        ({"exp": "C", "exp_type": "TAG"}, []),
        ({"exp": "size > 1", "exp_type": "SQL92"}, [b"b"]),
    ],
)
async def test_a_pop_returns_messages_that_pass_its_filter(
    client: OfflineClient, changes: dict[str, str], expected: list[bytes]
) -> None:
    client.send("t", b"a", TAGS="A", size="1")
    client.send("t", b"b", TAGS="B", size="2")
    assert bodies(pop(client, "t", **changes)) == expected
    assert committed(client) == "2", "the group skips excluded messages"


@pytest.mark.parametrize("changes", [{"exp": "||"}, {"exp": "a >", "exp_type": "SQL92"}])
async def test_an_invalid_filter_is_refused(client: OfflineClient, changes: dict[str, str]) -> None:
    send(client, b"a")
    answer = ask_pop(client, "t", **changes)
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "parse the consumer's subscription failed",
        NOTHING,
    )


@pytest.mark.parametrize("init_mode", [0, 1])
async def test_a_new_group_starts_at_the_first_message(client: OfflineClient, init_mode: int) -> None:
    send(client, b"a", b"b")
    assert bodies(pop(client, "t", init_mode=init_mode)) == [b"a", b"b"]


@pytest.mark.parametrize(("init_mode", "expected"), [(0, [b"b", b"c"]), (1, [b"c"])])
async def test_init_mode_applies_if_the_first_message_was_dropped(
    open_broker: Callable[..., OfflineBroker], init_mode: int, expected: list[bytes]
) -> None:
    client = open_broker(max_store_bytes=2 * (MESSAGE_OVERHEAD + 240)).connect()
    send(client, b"a", b"b", b"c")
    assert bodies(pop(client, "t", init_mode=init_mode)) == expected


async def test_a_group_skips_dropped_messages(open_broker: Callable[..., OfflineBroker]) -> None:
    client = open_broker(max_store_bytes=2 * (MESSAGE_OVERHEAD + 240)).connect()
    send(client, b"a")
    pop(client, "t")
    send(client, b"b", b"c", b"d")
    popped = pop(client, "t")
    assert bodies(popped) == [b"c", b"d"]
    assert {each.handle.start_offset for each in popped} == {2}


async def test_a_priority_topic_is_popped_from_the_highest_queue(client: OfflineClient) -> None:
    create(client, "p", attributes="+message.type=PRIORITY")
    for queue_id in range(4):
        client.send("p", b"%d" % queue_id, queue_id=queue_id)
    order = [each.body for _ in range(4) for each in pop(client, "p", max_msg_nums=1)]
    assert order == [b"3", b"2", b"1", b"0"]


async def test_a_priority_factor_of_0_disables_priorities(client: OfflineClient) -> None:
    create(client, "p", attributes="+message.type=PRIORITY")
    group = {"groupName": "readers", "attributes": {"+priority.factor": "0"}}
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())
    orders = set()
    for _ in range(20):
        for queue_id in range(4):
            client.send("p", b"%d" % queue_id, queue_id=queue_id)
        orders.add(tuple([each.body for _ in range(4) for each in pop(client, "p", max_msg_nums=1)]))
    assert len(orders) > 1


# Refusals


@pytest.mark.parametrize(
    ("settings", "changes", "code", "remark"),
    [
        (
            {},
            {"topic": "nope"},
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[nope] not exist, apply first please! {FAQ}",
        ),
        (
            {},
            {"queue_id": 9},
            ResponseCode.INVALID_PARAMETER,
            "queueId[9] is illegal, topic:[t] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:50001]",
        ),
        (
            {},
            {"max_msg_nums": 33},
            ResponseCode.INVALID_PARAMETER,
            "the broker[127.0.0.1] pop message's num is greater than 32",
        ),
        (
            {},
            {"born_time": START_MS - 15_600, "poll_time": 15_000},
            ResponseCode.POLLING_TIMEOUT,
            "the broker[127.0.0.1] pop message is timeout too much",
        ),
        (
            {},
            {"consumer_group": "a b"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [a b] does not exist, {FAQ}",
        ),
        (
            {"timer_wheel_enable": False},
            {},
            ResponseCode.SYSTEM_ERROR,
            "the broker[127.0.0.1] pop message is forbidden because timerWheelEnable is false",
        ),
        (
            {"broker_permission": 2},
            {},
            ResponseCode.NO_PERMISSION,
            "the broker[127.0.0.1] pop message is forbidden",
        ),
    ],
)
async def test_invalid_pops_are_refused(
    open_broker: Callable[..., OfflineBroker],
    settings: dict[str, Any],
    changes: dict[str, Any],
    code: int,
    remark: str,
) -> None:
    client = open_broker(**settings).connect()
    send(client, b"a")
    answer = ask_pop(client, **{"topic": "t", **changes})
    assert (answer.code, answer.remark, answer.fields) == (code, remark, NOTHING)


async def test_topics_and_groups_without_permission_are_refused(client: OfflineClient) -> None:
    create(client, "t", perm="2")
    answer = ask_pop(client, "t")
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "the topic[t] peeking message is forbidden",
    )
    create(client, "t")
    group = {"groupName": "readers", "consumeEnable": False}
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())
    answer = ask_pop(client, "t")
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "subscription group no permission, readers",
    )


async def test_a_pop_without_a_born_time_starts_now(client: OfflineClient) -> None:
    send(client, b"a")
    assert bodies(pop(client, "t", born_time=0)) == [b"a"]


# Long polling


async def answers(client: OfflineClient) -> list[Answer]:
    """Wait until all tasks are blocked, and return the client's answers."""
    await trio.testing.wait_all_tasks_blocked()
    return client.answers


@pytest.mark.parametrize("queue_id", [-1, 0])
async def test_a_held_pop_is_answered_when_a_message_arrives(
    client: OfflineClient, broker: OfflineBroker, queue_id: int
) -> None:
    create(client, "t")
    holder = broker.connect()
    hold_pop(holder, "t", queue_id=queue_id)
    assert await answers(holder) == []
    send(client, b"one", b"two")
    (answer,) = await answers(holder)
    assert bodies(read(answer)) == [b"one", b"two"]
    send(client, b"three")
    assert len(await answers(holder)) == 1


async def test_a_held_pop_is_answered_when_it_expires(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    create(client, "t")
    holder = broker.connect()
    hold_pop(holder, "t", poll_time=15_000)
    await trio.sleep(14.9)
    assert holder.answers == []
    await trio.sleep(0.2)
    (answer,) = holder.answers
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert answer.fields["restNum"] == "0"


async def test_a_held_pop_of_0_messages_does_not_wake_itself(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    send(client, b"one")
    holder = broker.connect()
    hold_pop(holder, "t", max_msg_nums=0)
    await trio.testing.wait_all_tasks_blocked()
    assert holder.answers == []
    await trio.sleep(15.1)
    (answer,) = holder.answers
    assert (answer.code, answer.fields["restNum"]) == (ResponseCode.POLLING_TIMEOUT, "1")


async def test_a_late_pop_is_held_for_the_rest_of_its_polling_time(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    create(client, "t")
    late, too_late = broker.connect(), broker.connect()
    hold_pop(late, "t", poll_time=1000, born_time=now_ms() - 800)
    hold_pop(too_late, "t", poll_time=1000, born_time=now_ms() - 980)
    assert too_late.answers[0].code == ResponseCode.POLLING_TIMEOUT
    await trio.sleep(0.1)
    assert late.answers == []
    await trio.sleep(0.2)
    assert late.answers[0].code == ResponseCode.POLLING_TIMEOUT


async def test_a_held_pop_waits_for_a_message_that_passes_its_filter(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    create(client, "t")
    holder = broker.connect()
    hold_pop(holder, "t", exp="A", exp_type="TAG")
    send(client, b"other", TAGS="B")
    await trio.sleep(0.1)
    assert holder.answers == []
    send(client, b"wanted", TAGS="A")
    await trio.sleep(0.1)
    (answer,) = holder.answers
    assert bodies(read(answer)) == [b"wanted"]


async def test_held_pops_are_answered_one_after_the_other(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    create(client, "t")
    holder = [broker.connect() for _ in range(3)]
    for each in holder:
        hold_pop(each, "t", max_msg_nums=1)
    send(client, b"one", b"two")
    await trio.testing.wait_all_tasks_blocked()
    assert [len(each.answers) for each in holder] == [1, 1, 0]


async def test_a_message_answers_a_held_pop_of_each_group(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    create(client, "t")
    holder = [broker.connect(), broker.connect()]
    hold_pop(holder[0], "t")
    hold_pop(holder[1], "t", consumer_group="others")
    send(client, b"one")
    await trio.testing.wait_all_tasks_blocked()
    assert [bodies(read(each.answers[0])) for each in holder] == [[b"one"], [b"one"]]


async def test_a_held_pop_continues_after_the_examined_messages(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    send(client, *[b"other"] * 900, TAGS="B")
    send(client, b"wanted", TAGS="A")
    holder = broker.connect()
    hold_pop(holder, "t", exp="A", exp_type="TAG")
    (answer,) = await answers(holder)
    assert bodies(read(answer)) == [b"wanted"]


async def test_the_pops_of_a_closed_connection_are_dropped(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    create(client, "t")
    gone, there = broker.connect(), broker.connect()
    hold_pop(gone, "t")
    hold_pop(there, "t")
    gone.close()
    send(client, b"a")
    assert len(await answers(there)) == 1
    assert gone.answers == []


async def test_the_number_of_held_pops_is_limited(client: OfflineClient, broker: OfflineBroker) -> None:
    create(client, "t")
    holder = broker.connect()
    for _ in range(MAX_HELD):
        hold_pop(holder, "t")
    assert holder.answers == []
    hold_pop(holder, "t")
    (answer,) = holder.answers
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_FULL, "NO_MESSAGE_IN_QUEUE")
    hold_pop(holder, "t", consumer_group="others")
    assert len(holder.answers) == 1


async def test_a_redelivered_message_answers_a_held_pop(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    send(client, b"a")
    pop(client, "t", invisible_time=1000)
    holder = broker.connect()
    hold_pop(holder, "t")
    await trio.sleep(0.9)
    assert holder.answers == []
    await trio.sleep(0.2)
    (popped,) = read(holder.answers[0])
    assert (popped.body, popped.message.reconsume_times) == (b"a", 1)
    ack(client, popped)


async def test_a_pop_held_for_a_deleted_topic_is_refused_when_it_expires(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    create(client, "t")
    holder = broker.connect()
    hold_pop(holder, "t", poll_time=1000)
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    await trio.sleep(2)
    assert holder.answers[-1].code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_message_in_a_new_queue_answers_a_held_pop(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    create(client, "t", readQueueNums="1", writeQueueNums="1")
    holder = broker.connect()
    hold_pop(holder, "t")
    hold_pop(holder, "t")
    create(client, "t", readQueueNums="2", writeQueueNums="2")
    assert await answers(holder) == [], "both are held again"
    for expected in (1, 2):
        client.send("t", b"a", queue_id=1)
        assert len(await answers(holder)) == expected


async def test_a_message_of_a_topic_that_was_created_again_answers_a_held_pop(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    create(client, "t")
    holder = broker.connect()
    hold_pop(holder, "t")
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    send(client, b"a")
    (answer,) = await answers(holder)
    assert bodies(read(answer)) == [b"a"]
