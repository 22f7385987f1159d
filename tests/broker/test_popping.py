from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.broker.pop.holding import MAX_WAITING
from rocketmq_py.broker.store import OVERHEAD
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


# What is found


async def test_a_pop_takes_from_all_queues_and_once_for_a_group(client: OfflineClient) -> None:
    for queue_id in range(4):
        send(client, b"%d" % queue_id, queue_id=queue_id)
    assert bodies(pop(client, "t")) == [b"0", b"1", b"2", b"3"]
    assert pop(client, "t") == []
    assert bodies(pop(client, "t", consumer_group="others")) == [b"0", b"1", b"2", b"3"]


async def test_an_answer_says_where_messages_come_from(
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


async def test_a_pop_from_one_queue(client: OfflineClient) -> None:
    send(client, b"a", queue_id=0)
    send(client, b"b", queue_id=1)
    assert bodies(pop(client, "t", queue_id=1)) == [b"b"]
    assert bodies(pop(client, "t")) == [b"a"]


async def test_a_pop_takes_what_it_asks_for_at_the_most(client: OfflineClient) -> None:
    for queue_id in range(4):
        send(client, b"a", b"b", queue_id=queue_id)
    answer = ask_pop(client, "t", max_msg_nums=3)
    assert (len(read(answer)), answer.fields["restNum"]) == (3, "5")
    assert len(pop(client, "t")) == 5
    send(client, b"late")
    assert pop(client, "t", max_msg_nums=0) == []


async def test_nothing_is_found(client: OfflineClient, mock_clock: trio.testing.MockClock) -> None:
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
    ("changes", "found"),
    [
        ({"exp": "*"}, [b"a", b"b"]),
        ({"exp": "A"}, [b"a"]),
        ({"exp": "A || B", "exp_type": "TAG"}, [b"a", b"b"]),
        ({"exp": "C", "exp_type": "TAG"}, []),
        ({"exp": "size > 1", "exp_type": "SQL92"}, [b"b"]),
    ],
)
async def test_a_pop_may_be_filtered(
    client: OfflineClient, changes: dict[str, str], found: list[bytes]
) -> None:
    client.send("t", b"a", TAGS="A", size="1")
    client.send("t", b"b", TAGS="B", size="2")
    assert bodies(pop(client, "t", **changes)) == found
    assert committed(client) == "2", "what the filter does not want is behind the group"


@pytest.mark.parametrize("changes", [{"exp": "||"}, {"exp": "a >", "exp_type": "SQL92"}])
async def test_what_is_no_filter(client: OfflineClient, changes: dict[str, str]) -> None:
    send(client, b"a")
    answer = ask_pop(client, "t", **changes)
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "parse the consumer's subscription failed",
        NOTHING,
    )


@pytest.mark.parametrize("init_mode", [0, 1])
async def test_a_new_group_begins_with_what_is_still_there(client: OfflineClient, init_mode: int) -> None:
    send(client, b"a", b"b")
    assert bodies(pop(client, "t", init_mode=init_mode)) == [b"a", b"b"]


@pytest.mark.parametrize(("init_mode", "found"), [(0, [b"b", b"c"]), (1, [b"c"])])
async def test_where_a_new_group_begins_when_the_first_message_is_gone(
    open_broker: Callable[..., OfflineBroker], init_mode: int, found: list[bytes]
) -> None:
    client = open_broker(max_store_bytes=2 * (OVERHEAD + 240)).connect()
    send(client, b"a", b"b", b"c")
    assert bodies(pop(client, "t", init_mode=init_mode)) == found


async def test_a_group_goes_on_where_there_is_something(open_broker: Callable[..., OfflineBroker]) -> None:
    client = open_broker(max_store_bytes=2 * (OVERHEAD + 240)).connect()
    send(client, b"a")
    pop(client, "t")
    send(client, b"b", b"c", b"d")
    popped = pop(client, "t")
    assert bodies(popped) == [b"c", b"d"]
    assert {each.handle.start_offset for each in popped} == {2}


async def test_a_topic_of_priorities_is_popped_from_its_last_queue_on(client: OfflineClient) -> None:
    create(client, "p", attributes="+message.type=PRIORITY")
    for queue_id in range(4):
        client.send("p", b"%d" % queue_id, queue_id=queue_id)
    order = [each.body for _ in range(4) for each in pop(client, "p", max_msg_nums=1)]
    assert order == [b"3", b"2", b"1", b"0"]


async def test_a_group_may_pass_priorities_over(client: OfflineClient) -> None:
    create(client, "p", attributes="+message.type=PRIORITY")
    group = {"groupName": "readers", "attributes": {"+priority.factor": "0"}}
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())
    orders = set()
    for _ in range(20):
        for queue_id in range(4):
            client.send("p", b"%d" % queue_id, queue_id=queue_id)
        orders.add(tuple([each.body for _ in range(4) for each in pop(client, "p", max_msg_nums=1)]))
    assert len(orders) > 1


# What is refused


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
async def test_some_pops_are_refused(
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


async def test_topics_and_groups_may_be_closed(client: OfflineClient) -> None:
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


async def test_a_pop_without_a_time_counts_from_now(client: OfflineClient) -> None:
    send(client, b"a")
    assert bodies(pop(client, "t", born_time=0)) == [b"a"]


# Long polling


async def answers(client: OfflineClient) -> list[Answer]:
    """Let the broker do what there is to do, and return the answers that came."""
    await trio.testing.wait_all_tasks_blocked()
    return client.answers


@pytest.mark.parametrize("queue_id", [-1, 0])
async def test_a_held_pop_is_answered_when_a_message_comes(
    client: OfflineClient, broker: OfflineBroker, queue_id: int
) -> None:
    create(client, "t")
    waiting = broker.connect()
    hold_pop(waiting, "t", queue_id=queue_id)
    assert await answers(waiting) == []
    send(client, b"one", b"two")
    (answer,) = await answers(waiting)
    assert bodies(read(answer)) == [b"one", b"two"]
    send(client, b"three")
    assert len(await answers(waiting)) == 1


async def test_a_held_pop_is_answered_in_the_end(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    create(client, "t")
    waiting = broker.connect()
    hold_pop(waiting, "t", poll_time=15_000)
    await trio.sleep(14.9)
    assert waiting.answers == []
    await trio.sleep(0.2)
    (answer,) = waiting.answers
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert answer.fields["restNum"] == "0"


async def test_a_pop_of_no_messages_looks_once(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    send(client, b"one")
    waiting = broker.connect()
    hold_pop(waiting, "t", max_msg_nums=0)
    await trio.testing.wait_all_tasks_blocked()
    assert waiting.answers == []
    await trio.sleep(15.1)
    (answer,) = waiting.answers
    assert (answer.code, answer.fields["restNum"]) == (ResponseCode.POLLING_TIMEOUT, "1")


async def test_a_pop_that_comes_late_is_held_for_what_is_left(
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


async def test_a_held_pop_waits_for_what_it_wants(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    create(client, "t")
    waiting = broker.connect()
    hold_pop(waiting, "t", exp="A", exp_type="TAG")
    send(client, b"other", TAGS="B")
    await trio.sleep(0.1)
    assert waiting.answers == []
    send(client, b"wanted", TAGS="A")
    await trio.sleep(0.1)
    (answer,) = waiting.answers
    assert bodies(read(answer)) == [b"wanted"]


async def test_one_waiting_pop_after_the_other_is_answered(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    create(client, "t")
    waiting = [broker.connect() for _ in range(3)]
    for each in waiting:
        hold_pop(each, "t", max_msg_nums=1)
    send(client, b"one", b"two")
    await trio.testing.wait_all_tasks_blocked()
    assert [len(each.answers) for each in waiting] == [1, 1, 0]


async def test_each_group_gets_what_comes(client: OfflineClient, broker: OfflineBroker) -> None:
    create(client, "t")
    waiting = [broker.connect(), broker.connect()]
    hold_pop(waiting[0], "t")
    hold_pop(waiting[1], "t", consumer_group="others")
    send(client, b"one")
    await trio.testing.wait_all_tasks_blocked()
    assert [bodies(read(each.answers[0])) for each in waiting] == [[b"one"], [b"one"]]


async def test_a_pop_goes_on_behind_what_a_filter_looked_at(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    send(client, *[b"other"] * 900, TAGS="B")
    send(client, b"wanted", TAGS="A")
    waiting = broker.connect()
    hold_pop(waiting, "t", exp="A", exp_type="TAG")
    (answer,) = await answers(waiting)
    assert bodies(read(answer)) == [b"wanted"]


async def test_the_pops_of_a_closed_connection_are_forgotten(
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


async def test_only_so_many_pops_wait(client: OfflineClient, broker: OfflineBroker) -> None:
    create(client, "t")
    waiting = broker.connect()
    for _ in range(MAX_WAITING):
        hold_pop(waiting, "t")
    assert waiting.answers == []
    hold_pop(waiting, "t")
    (answer,) = waiting.answers
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_FULL, "NO_MESSAGE_IN_QUEUE")
    hold_pop(waiting, "t", consumer_group="others")
    assert len(waiting.answers) == 1


async def test_a_held_pop_takes_what_comes_again(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    send(client, b"a")
    pop(client, "t", invisible_time=1000)
    waiting = broker.connect()
    hold_pop(waiting, "t")
    await trio.sleep(0.9)
    assert waiting.answers == []
    await trio.sleep(0.2)
    (popped,) = read(waiting.answers[0])
    assert (popped.body, popped.message.reconsume_times) == (b"a", 1)
    ack(client, popped)


async def test_a_pop_held_for_a_topic_that_is_deleted_is_refused_in_the_end(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    create(client, "t")
    waiting = broker.connect()
    hold_pop(waiting, "t", poll_time=1000)
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    await trio.sleep(2)
    assert waiting.answers[-1].code == ResponseCode.TOPIC_NOT_EXIST
