from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from tests.broker.offline import OfflineBroker, OfflineClient
from tests.broker.popping import ack, ask_pop, batch_ack, change, hold_pop, now_ms, pop, read
from tests.popped import Popped, bodies


def send(client: OfflineClient, *messages: bytes, queue_id: int = 0) -> None:
    for body in messages:
        client.send("t", body, queue_id=queue_id)


def pop_in_order(client: OfflineClient, **changes: Any) -> list[Popped]:
    return pop(client, "t", **{"order": True, **changes})


def committed(client: OfflineClient) -> str:
    fields = {"consumerGroup": "readers", "topic": "t", "queueId": "0"}
    return client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields).fields["offset"]


async def test_a_queue_is_blocked_until_all_popped_messages_are_acknowledged(client: OfflineClient) -> None:
    send(client, b"a", b"b", b"c")
    send(client, b"other", queue_id=1)
    first = pop_in_order(client, max_msg_nums=2, queue_id=0)
    assert [each.body for each in first] == [b"a", b"b"]
    assert bodies(pop_in_order(client)) == [b"other"], "another queue is not blocked"
    assert ack(client, first[0]).code == ResponseCode.SUCCESS
    assert pop_in_order(client) == []
    ack(client, first[1])
    assert bodies(pop_in_order(client)) == [b"c"]


async def test_the_answer_to_an_ordered_pop(
    client: OfflineClient, mock_clock: trio.testing.MockClock
) -> None:
    send(client, b"a", b"b")
    answer = ask_pop(client, "t", order=True, queue_id=0)
    assert answer.fields == {
        "popTime": str(now_ms()), "invisibleTime": "30000", "reviveQid": "999", "restNum": "0",
        "startOffsetInfo": "0 0 0", "msgOffsetInfo": "0 0 0,1", "orderCountInfo": "0 0 0",
    }  # fmt: skip
    answer = ask_pop(client, "t", order=True, queue_id=0)
    assert (answer.code, answer.fields["orderCountInfo"]) == (ResponseCode.POLLING_TIMEOUT, "")


async def test_acknowledgements_commit_up_to_the_first_unacknowledged_message(client: OfflineClient) -> None:
    send(client, b"a", b"b", b"c")
    popped = pop_in_order(client)
    assert committed(client) == "0"
    ack(client, popped[1])
    assert committed(client) == "0"
    ack(client, popped[0])
    assert committed(client) == "2"
    ack(client, popped[2])
    assert committed(client) == "3"


async def test_unacknowledged_messages_are_popped_again_in_order(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    send(client, b"a", b"b", b"c")
    first = pop_in_order(client, max_msg_nums=2)
    ack(client, first[0])
    await trio.sleep(31)
    again = pop_in_order(client)
    assert [(each.body, each.count) for each in again] == [(b"b", 1), (b"c", 0)]
    await trio.sleep(31)
    answer = ask_pop(client, "t", order=True)
    assert answer.fields["orderCountInfo"] == "0 qo0%1 2;0 qo0%2 1;0 0 1"
    assert [each.count for each in read(answer)] == [2, 1]
    assert read(answer)[0].message.reconsume_times == 0, "the client sets it from the count"


async def test_an_attempt_can_repeat_its_pop(client: OfflineClient) -> None:
    send(client, b"a")
    assert bodies(pop_in_order(client, attempt_id="one")) == [b"a"]
    again = pop_in_order(client, attempt_id="one")
    assert [(each.body, each.count) for each in again] == [(b"a", 0)]
    assert pop_in_order(client, attempt_id="two") == []
    assert pop_in_order(client) == []


async def test_an_acknowledgement_with_an_old_handle_is_ignored(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    send(client, b"a")
    (first,) = pop_in_order(client)
    await trio.sleep(31)
    (again,) = pop_in_order(client)
    assert ack(client, first).code == ResponseCode.SUCCESS
    assert committed(client) == "0"
    ack(client, again)
    assert committed(client) == "1"
    assert ack(client, again).code == ResponseCode.SUCCESS


async def test_an_acknowledgement_of_a_message_that_was_not_popped_is_refused(client: OfflineClient) -> None:
    send(client, b"a", b"b")
    (first,) = pop_in_order(client, max_msg_nums=1)
    other = attrs.evolve(first, handle=attrs.evolve(first.handle, offset=1))
    answer = ack(client, other)
    assert (answer.code, answer.remark) == (
        ResponseCode.MESSAGE_ILLEGAL,
        "offset is illegal, key:t@readers@0, old:0, commit:1, next:-1, /127.0.0.1:50001",
    )


async def test_a_batch_acknowledgement_commits(client: OfflineClient) -> None:
    send(client, b"a", b"b", b"c")
    popped = pop_in_order(client)
    assert batch_ack(client, popped[:2]).code == ResponseCode.SUCCESS
    assert committed(client) == "2"


async def test_the_invisible_time_can_be_changed(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    send(client, b"a")
    (popped,) = pop_in_order(client)
    await trio.sleep(5)
    answer = change(client, popped, 1)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
    assert answer.fields == {
        "popTime": str(popped.handle.pop_time_ms), "invisibleTime": "6000", "reviveQid": "999",
    }  # fmt: skip
    assert pop_in_order(client) == []
    await trio.sleep(2)
    (again,) = pop_in_order(client)
    assert again.count == 1
    change(client, again, 60)
    await trio.sleep(40)
    assert pop_in_order(client) == []
    ack(client, again)
    answer = change(client, again, 1)
    assert (answer.code, answer.fields["popTime"]) == (ResponseCode.SUCCESS, "0"), "it was acknowledged"


@pytest.mark.parametrize("queue_id", [-1, 0])
async def test_an_acknowledgement_answers_a_held_pop(
    client: OfflineClient, broker: OfflineBroker, queue_id: int
) -> None:
    send(client, b"a", b"b")
    (first,) = pop_in_order(client, max_msg_nums=1)
    holder = broker.connect()
    hold_pop(holder, "t", order=True, queue_id=queue_id)
    await trio.testing.wait_all_tasks_blocked()
    assert holder.answers == []
    ack(client, first)
    await trio.testing.wait_all_tasks_blocked()
    (answer,) = holder.answers
    assert bodies(read(answer)) == [b"b"]


async def test_a_timeout_of_the_messages_answers_a_held_pop(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    send(client, b"a")
    pop_in_order(client, invisible_time=3000)
    holder = broker.connect()
    hold_pop(holder, "t", order=True)
    await trio.sleep(2.9)
    assert holder.answers == []
    await trio.sleep(0.3)
    (answer,) = holder.answers
    assert [(each.body, each.count) for each in read(answer)] == [(b"a", 1)]


async def test_a_message_in_a_blocked_queue_does_not_answer_a_held_pop(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    send(client, b"a")
    pop_in_order(client)
    holder = broker.connect()
    hold_pop(holder, "t", order=True)
    send(client, b"b")
    await trio.sleep(1)
    assert holder.answers == []
    send(client, b"c", queue_id=1)
    await trio.sleep(1)
    (answer,) = holder.answers
    assert bodies(read(answer)) == [b"c"]


async def test_groups_do_not_block_each_other(client: OfflineClient) -> None:
    send(client, b"a")
    assert bodies(pop_in_order(client)) == [b"a"]
    assert bodies(pop_in_order(client, consumer_group="others")) == [b"a"]
