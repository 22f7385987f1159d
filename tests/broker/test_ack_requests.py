from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.handles import TopicKind
from rocketmq_py.protocol.headers import ChangeInvisibleTimeAnswer
from tests.broker.offline import OfflineBroker, OfflineClient
from tests.broker.popping import ack, batch_ack, change, now_ms, pop
from tests.popped import Popped, bodies

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
UNSET_REMARK = "not set any response code"


async def pop_again(client: OfflineClient, topic: str = "t", **changes: Any) -> list[Popped]:
    """Wait until all invisible times are over, and pop."""
    await trio.sleep(31)
    return pop(client, topic, **changes)


def renewed(popped: Popped, answer: ChangeInvisibleTimeAnswer) -> Popped:
    """Return the message with the handle that is valid after a change of its invisible time."""
    assert popped.handle.offset is not None
    handle = attrs.evolve(
        popped.handle,
        start_offset=popped.handle.offset,
        pop_time_ms=answer.pop_time,
        invisible_ms=answer.invisible_time,
        revive_queue_id=answer.revive_qid,
    )
    return attrs.evolve(popped, handle=handle)


async def test_an_acknowledged_message_is_not_redelivered(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    for body in (b"a", b"b", b"c"):
        client.send("t", body)
    popped = pop(client, "t")
    answer = ack(client, popped[1])
    assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, {})
    assert bodies(await pop_again(client)) == [b"a", b"c"]


async def test_an_unacknowledged_message_is_redelivered_in_the_retry_topic(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"a", TAGS="A", KEYS="k", f="0", h="7")
    (first,) = pop(client, "t", exp="A", exp_type="TAG")
    first_pop = now_ms()
    (again,) = await pop_again(client, exp="A", exp_type="TAG")
    message = again.message
    assert (message.topic, message.body, message.flag, message.reconsume_times) == ("t", b"a", 7, 1)
    assert (message.tags, message.keys) == ("A", ("k",))
    assert message.properties["1ST_POP_TIME"] == str(first_pop)
    assert message.properties["ORIGIN_GROUP"] == "readers"
    assert message.born_time_ms == first.message.born_time_ms
    assert message.born_host == "127.0.0.1:10911"
    assert again.handle.topic_kind is TopicKind.RETRY
    assert str(again.handle) == message.properties["POP_CK"]
    assert again.handle.pop_time_ms == now_ms()
    route = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%readers_t"})
    assert b'"readQueueNums":1,"writeQueueNums":1,"perm":6' in route.body


async def test_redeliveries_are_not_limited(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"a")
    pop(client, "t")
    first_pop = now_ms()
    for times in range(1, 20):
        (again,) = await pop_again(client)
        assert again.message.reconsume_times == times
        assert again.message.properties["1ST_POP_TIME"] == str(first_pop)
    ack(client, again)
    assert await pop_again(client) == []


async def test_the_filter_applies_to_redelivered_messages(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"a", TAGS="A")
    pop(client, "t")
    assert await pop_again(client, exp="B", exp_type="TAG") == []


async def test_enable_retry_topic_v2_changes_the_name_of_the_retry_topic(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(enable_retry_topic_v2=True).connect()
    client.send("t", b"a")
    pop(client, "t")
    await trio.sleep(31)
    popped = [each for _ in range(20) for each in pop(client, "t")]
    assert [each.handle.topic_kind for each in popped] == [TopicKind.RETRY_V2]
    ack(client, popped[0])
    await trio.sleep(31)
    assert [each for _ in range(20) for each in pop(client, "t")] == []


async def test_a_late_or_unknown_acknowledgement_is_ignored(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"a")
    (first,) = pop(client, "t")
    unknown = attrs.evolve(first, handle=attrs.evolve(first.handle, pop_time_ms=1))
    assert ack(client, unknown).code == ResponseCode.SUCCESS
    (again,) = await pop_again(client)
    assert ack(client, first).code == ResponseCode.SUCCESS
    assert bodies(await pop_again(client)) == [again.body]


async def test_an_acknowledgement_of_another_offset_is_ignored(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"a")
    client.send("t", b"b")
    (first,) = pop(client, "t", max_msg_nums=1)
    (second,) = pop(client, "t", max_msg_nums=1)
    mixed = attrs.evolve(first, handle=attrs.evolve(first.handle, offset=second.handle.offset))
    assert ack(client, mixed).code == ResponseCode.SUCCESS
    assert bodies(await pop_again(client)) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "x"}, ResponseCode.TOPIC_NOT_EXIST, f"topic[x] not exist, apply first please! {FAQ}"),
        (
            {"queueId": "9"},
            ResponseCode.MESSAGE_ILLEGAL,
            "queueId[9] is illegal, topic:[t] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:50001]",
        ),
        (
            {"queueId": "-1"},
            ResponseCode.MESSAGE_ILLEGAL,
            "queueId[-1] is illegal, topic:[t] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:50001]",
        ),
        ({"offset": "2"}, ResponseCode.NO_MESSAGE, "offset is illegal, key:t@0, commit:2, store:0~1"),
        ({"extraInfo": "x"}, ResponseCode.SYSTEM_ERROR, None),
    ],
)
async def test_invalid_acknowledgements_are_refused(
    client: OfflineClient, changes: dict[str, str], code: int, remark: str | None
) -> None:
    client.send("t", b"a")
    (popped,) = pop(client, "t")
    fields = {
        "consumerGroup": "readers", "topic": "t", "queueId": "0", "offset": "0",
        "extraInfo": str(popped.handle), **changes,
    }  # fmt: skip
    answer = client.ask(RequestCode.ACK_MESSAGE, fields)
    assert answer.code == code
    assert remark is None or answer.remark == remark
    if code != ResponseCode.NO_MESSAGE:
        answer = client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, {**fields, "invisibleTime": "1"})
        assert answer.code == code
        assert remark is None or answer.remark == remark


# Batches


async def test_a_batch_acknowledges_several_messages(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    for number in range(12):
        client.send("t", b"%02d" % number)
    popped = pop(client, "t")
    answer = batch_ack(client, [popped[0], popped[3], popped[11]])
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    unacknowledged = [b"%02d" % number for number in range(12) if number not in (0, 3, 11)]
    retried = await pop_again(client)
    assert bodies(retried) == unacknowledged
    assert batch_ack(client, retried).code == ResponseCode.SUCCESS
    assert await pop_again(client) == []


@pytest.mark.parametrize("body", [b"", b'{"acks":[],"brokerName":"b"}'])
async def test_an_empty_batch_is_refused(client: OfflineClient, body: bytes) -> None:
    answer = client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
    assert (answer.code, answer.remark) == (ResponseCode.NO_MESSAGE, None)


# Changes of the invisible time


async def test_the_invisible_time_can_be_shortened_and_extended(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"earlier")
    client.send("t", b"later")
    earlier, later = pop(client, "t")
    await trio.sleep(5)
    answer = change(client, earlier, 1)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, UNSET_REMARK)
    assert answer.fields == {
        "popTime": str(now_ms()), "invisibleTime": "1000", "reviveQid": str(earlier.handle.revive_queue_id)
    }  # fmt: skip
    change(client, later, 40)
    await trio.sleep(2)
    (popped,) = pop(client, "t")
    assert (popped.body, popped.message.reconsume_times) == (b"earlier", 1)
    ack(client, popped)
    await trio.sleep(30)
    assert pop(client, "t") == []
    await trio.sleep(10)
    assert bodies(pop(client, "t")) == [b"later"]


async def test_a_change_replaces_the_receipt_handle(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"a")
    (popped,) = pop(client, "t")
    await trio.sleep(1)
    changed = ChangeInvisibleTimeAnswer.from_fields(change(client, popped, 10).fields)
    assert ack(client, popped).code == ResponseCode.SUCCESS
    (again,) = await pop_again(client)
    await trio.sleep(1)
    changed = ChangeInvisibleTimeAnswer.from_fields(change(client, again, 10).fields)
    ack(client, renewed(again, changed))
    assert await pop_again(client) == []


async def test_two_changes_in_the_same_millisecond_redeliver_once(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"a")
    (popped,) = pop(client, "t")
    change(client, popped, 10)
    change(client, popped, 20)
    await trio.sleep(15)
    assert pop(client, "t") == []
    assert bodies(await pop_again(client)) == [b"a"]


async def test_a_change_in_the_millisecond_of_the_pop_keeps_the_other_messages(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"a")
    client.send("t", b"b")
    first, _ = pop(client, "t")
    change(client, first, 10)
    assert bodies(await pop_again(client)) == [b"a", b"b"]


async def test_a_change_with_suspend_does_not_count_as_a_failure(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"a")
    (popped,) = pop(client, "t")
    change(client, popped, 1, suspend=True)
    (again,) = await pop_again(client)
    assert again.message.reconsume_times == 0


async def test_a_change_of_an_unknown_message_is_refused(client: OfflineClient) -> None:
    client.send("t", b"a")
    (popped,) = pop(client, "t")
    beyond = attrs.evolve(popped, handle=attrs.evolve(popped.handle, offset=1))
    answer = change(client, beyond, 1)
    assert (answer.code, answer.remark) == (ResponseCode.NO_MESSAGE, UNSET_REMARK)
    assert answer.fields == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}


# No redelivery


async def test_messages_of_a_deleted_topic_are_not_redelivered(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"a")
    pop(client, "t")
    await trio.sleep(31)
    pop(client, "t")
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    await trio.sleep(31)
    client.send("t", b"b")
    assert bodies(await pop_again(client)) == [b"b"]


async def test_messages_dropped_by_the_store_are_not_redelivered(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(max_store_bytes=1000).connect()
    client.send("t", b"a")
    pop(client, "t")
    client.send("t", b"b" * 900)
    (left,) = await pop_again(client)
    assert left.body == b"b" * 900
