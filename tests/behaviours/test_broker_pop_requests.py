"""Answers of brokers to the requests of pop consumers. Brokers of 4.x do not support pop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client, Message
from rocketmq_py.client.features import POP
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import BatchAcks
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import TopicKind
from rocketmq_py.protocol.headers import (
    AckMessageRequest,
    ChangeInvisibleTimeAnswer,
    ChangeInvisibleTimeRequest,
    PopMessageAnswer,
    PopMessageRequest,
    ResetOffsetRequest,
)
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.peers import Peer, open_peer
from tests.behaviours.reading import PATIENCE, until_readable
from tests.popped import Popped, ack_together, bodies, read_popped

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
UNSET_REMARK = "not set any response code"
NOTHING = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
LONG = 60_000
"""An invisible time that is longer than any test, in milliseconds."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.define(eq=False)
class Consumer:
    """A consumer group of one topic, which sends single requests."""

    client: Client
    peer: Peer
    topic: str
    group: str

    async def send(self, *messages: bytes, queue_id: int, **changes: Any) -> None:
        queue = MessageQueue(self.topic, self.peer.broker_name, queue_id)
        async with self.client.producer("senders") as producer:
            for body in messages:
                await producer.send(Message(self.topic, body, **changes), queue=queue)

    async def ask(self, **changes: Any) -> Command:
        values = {
            "consumer_group": self.group, "topic": self.topic, "queue_id": -1, "max_msg_nums": 32,
            "invisible_time": LONG, "poll_time": 0, "born_time": now_ms(), "init_mode": 0, **changes,
        }  # fmt: skip
        return await self.peer.ask(PopMessageRequest(**values))

    def read(self, answer: Command) -> list[Popped]:
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), answer
        return read_popped(answer.fields, answer.body, self.peer.broker_name)

    async def pop(self, **changes: Any) -> list[Popped]:
        """Pop the available messages. Real brokers return none while they lock a queue to store offsets."""
        with trio.fail_after(PATIENCE):
            while True:
                answer = await self.ask(**changes)
                popped = self.read(answer)
                if popped or answer.fields["restNum"] == "0":
                    return popped

    async def pop_until(self, count: int, **changes: Any) -> list[Popped]:
        """Pop until ``count`` messages were returned. Real brokers redeliver some seconds late."""
        popped: list[Popped] = []
        with trio.fail_after(PATIENCE):
            while len(popped) < count:
                popped += await self.pop(
                    **{"poll_time": 5000, "max_msg_nums": count - len(popped), **changes}
                )
        return popped

    async def ack(self, popped: Popped) -> Command:
        return await self.peer.ask(AckMessageRequest(**popped.fields(self.group)))

    async def change(self, popped: Popped, milliseconds: int, **changes: Any) -> Command:
        header = ChangeInvisibleTimeRequest(
            **popped.fields(self.group), invisible_time=milliseconds, **changes
        )
        return await self.peer.ask(header)


@pytest.fixture
async def consumer(cluster: ClusterUnderTest, client: Client, unique: str) -> AsyncIterator[Consumer]:
    """A consumer of a topic with two queues."""
    cluster.needs(POP)
    await create_topic(client, unique, queues=2)
    async with open_peer(client) as peer:
        yield Consumer(client, peer, unique, f"group-{unique}")


async def send_and_wait(consumer: Consumer, *messages: bytes, **changes: Any) -> None:
    """Send messages to queue 0, and wait until they can be read."""
    await consumer.send(*messages, **{"queue_id": 0, **changes})
    await until_readable(consumer.client, consumer.topic, count=len(messages))


async def test_a_group_pops_a_message_once(consumer: Consumer) -> None:
    await consumer.send(b"a", b"b", queue_id=0)
    await consumer.send(b"c", queue_id=1)
    await until_readable(consumer.client, consumer.topic, count=3)
    assert bodies(await consumer.pop()) == [b"a", b"b", b"c"]
    assert await consumer.pop() == []
    others = attrs.evolve(consumer, group=f"{consumer.group}-others")
    assert bodies(await others.pop(init_mode=1)) == [b"a", b"b", b"c"]


async def test_an_answer_contains_the_origin_of_the_messages(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a", b"b", b"c")
    answer = await consumer.ask(queue_id=0, max_msg_nums=2)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    fields = dict(answer.fields)
    assert abs(int(fields.pop("popTime")) - now_ms()) < 60_000
    assert 0 <= int(fields.pop("reviveQid")) < 8
    assert fields == {
        "invisibleTime": str(LONG), "restNum": "1", "startOffsetInfo": "0 0 0", "msgOffsetInfo": "0 0 0,1",
    }  # fmt: skip
    with trio.fail_after(PATIENCE):  # a broker that stores offsets has locked the queue
        while (answer := await consumer.ask(queue_id=0)).code != ResponseCode.SUCCESS:
            assert answer.fields["restNum"] != "0"
    assert (answer.fields["startOffsetInfo"], answer.fields["restNum"]) == ("0 0 2", "0")
    answer = await consumer.ask()
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert (answer.fields["startOffsetInfo"], answer.fields["msgOffsetInfo"]) == ("", "")


@pytest.mark.parametrize(
    ("expression", "expression_type", "expected"),
    [
        ("A", "TAG", [b"a"]),
        ("C", None, []),
        ("*", "TAG", [b"a", b"b"]),
        ("size > 1", "SQL92", [b"b"]),
    ],
)
async def test_a_pop_returns_messages_that_pass_its_filter(
    consumer: Consumer, expression: str, expression_type: str | None, expected: list[bytes]
) -> None:
    await consumer.send(b"a", queue_id=0, tags="A", properties={"size": "1"})
    await consumer.send(b"b", queue_id=0, tags="B", properties={"size": "2"})
    await until_readable(consumer.client, consumer.topic, count=2)
    assert bodies(await consumer.pop(exp=expression, exp_type=expression_type)) == expected
    assert await consumer.pop() == [], "the group skips excluded messages"


async def test_invalid_pops_are_refused(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a")

    async def refused(**changes: Any) -> tuple[int, str, dict[str, str]]:
        answer = await consumer.ask(**changes)
        # Some remarks contain the address of the broker, which depends on the cluster.
        remark = (answer.remark or "").replace(consumer.peer.address.rpartition(":")[0], "IP")
        return answer.code, remark.split(" consumer:")[0], dict(answer.fields)

    assert await refused(topic="nope") == (
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[nope] not exist, apply first please! {FAQ}",
        NOTHING,
    )
    assert await refused(queue_id=9) == (
        ResponseCode.INVALID_PARAMETER,
        f"queueId[9] is illegal, topic:[{consumer.topic}] topicConfig.readQueueNums:[2]",
        NOTHING,
    )
    assert await refused(max_msg_nums=33) == (
        ResponseCode.INVALID_PARAMETER,
        "the broker[IP] pop message's num is greater than 32",
        NOTHING,
    )
    assert await refused(born_time=now_ms() - 60_000, poll_time=1000) == (
        ResponseCode.POLLING_TIMEOUT,
        "the broker[IP] pop message is timeout too much",
        NOTHING,
    )
    assert await refused(consumer_group="a b") == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"subscription group [a b] does not exist, {FAQ}",
        NOTHING,
    )
    assert await refused(exp="a >", exp_type="SQL92") == (
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "parse the consumer's subscription failed",
        NOTHING,
    )


# Long polling


async def test_a_held_pop_is_answered_when_a_message_arrives(consumer: Consumer) -> None:
    await consumer.send(b"a", queue_id=0)
    await consumer.pop_until(1)
    answers = []

    async def wait(**changes: Any) -> None:
        answers.append(await consumer.ask(poll_time=28_000, **changes))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await consumer.send(b"b", queue_id=1)
    assert bodies(consumer.read(answers[0])) == [b"b"]


async def test_a_message_in_a_new_queue_answers_a_held_pop(consumer: Consumer) -> None:
    answers = []

    async def wait() -> None:
        answers.append(await consumer.ask(poll_time=28_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await create_topic(consumer.client, consumer.topic, queues=3)
        await consumer.send(b"a", queue_id=2)
    # A pop that expires has no messages.
    assert bodies(consumer.read(answers[0])) == [b"a"]


async def test_a_held_pop_is_answered_when_it_expires(consumer: Consumer) -> None:
    answer = await consumer.ask(poll_time=1000)
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    header = PopMessageAnswer.from_fields(answer.fields)
    assert (header.rest_num, header.invisible_time) == (0, LONG)


# Acknowledgements and redelivery


async def test_an_unacknowledged_message_is_redelivered(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a", b"b", tags="A", keys="k", flag=7)
    first = await consumer.pop(invisible_time=1000)
    assert bodies(first) == [b"a", b"b"]
    answer = await consumer.ack(first[1])
    assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, {})
    (again,) = await consumer.pop_until(1)
    message = again.message
    assert (message.topic, message.body, message.flag, message.reconsume_times) == (
        consumer.topic,
        b"a",
        7,
        1,
    )
    assert (message.tags, message.keys) == ("A", ("k",))
    assert message.properties["1ST_POP_TIME"] == str(first[0].handle.pop_time_ms)
    assert message.properties["ORIGIN_GROUP"] == consumer.group
    assert message.born_time_ms == first[0].message.born_time_ms
    assert message.born_host == consumer.peer.address
    assert again.handle.topic_kind is TopicKind.RETRY
    assert again.handle.queue_id == message.queue_id == 0
    assert again.handle.offset == message.queue_offset
    assert (await consumer.ack(again)).code == ResponseCode.SUCCESS
    retry_topic = f"%RETRY%{consumer.group}_{consumer.topic}"
    config = await consumer.peer.send(RequestCode.GET_TOPIC_CONFIG, {"topic": retry_topic})
    assert config.code == ResponseCode.SUCCESS
    assert b'"readQueueNums":1' in config.body


async def test_redeliveries_are_not_limited(consumer: Consumer) -> None:
    """The broker ignores ``retryMaxTimes``. Consumers discard messages that were redelivered too often."""
    group = b'{"groupName":"%s","retryMaxTimes":1}' % consumer.group.encode()
    await consumer.peer.send(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
    await send_and_wait(consumer, b"a")
    await consumer.pop_until(1, invisible_time=500)
    for times in (1, 2, 3):
        (again,) = await consumer.pop_until(1, invisible_time=500)
        assert again.message.reconsume_times == times


async def test_a_batch_acknowledges_several_messages(consumer: Consumer) -> None:
    await send_and_wait(consumer, *[b"%02d" % number for number in range(12)])
    popped = await consumer.pop(invisible_time=1000)
    acks = ack_together([popped[0], popped[3], popped[11]], consumer.group)
    body = BatchAcks(broker_name=consumer.peer.broker_name, acks=(acks,)).encode()
    answer = await consumer.peer.send(RequestCode.BATCH_ACK_MESSAGE, {}, body)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    retried = await consumer.pop_until(9)
    assert bodies(retried) == [b"%02d" % number for number in range(12) if number not in (0, 3, 11)]
    assert await consumer.pop() == []


async def test_an_empty_batch_is_refused(consumer: Consumer) -> None:
    answer = await consumer.peer.send(RequestCode.BATCH_ACK_MESSAGE, {})
    assert (answer.code, answer.remark) == (ResponseCode.NO_MESSAGE, None)


async def test_invalid_acknowledgements_are_refused(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a")
    (popped,) = await consumer.pop()

    async def refused(code: int, **changes: str) -> tuple[int, str, dict[str, str]]:
        fields = {
            "consumerGroup": consumer.group, "topic": consumer.topic, "queueId": "0", "offset": "0",
            "extraInfo": str(popped.handle), "invisibleTime": "1", **changes,
        }  # fmt: skip
        answer = await consumer.peer.send(code, fields)
        return answer.code, (answer.remark or "").split(" consumer:")[0], dict(answer.fields)

    unchanged = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
    for code, fields in (
        (RequestCode.ACK_MESSAGE, {}),
        (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, unchanged),
    ):
        assert await refused(code, topic="nope") == (
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[nope] not exist, apply first please! {FAQ}",
            fields,
        )
        assert await refused(code, queueId="9") == (
            ResponseCode.MESSAGE_ILLEGAL,
            f"queueId[9] is illegal, topic:[{consumer.topic}] topicConfig.readQueueNums:[2]",
            fields,
        )
    assert await refused(RequestCode.ACK_MESSAGE, offset="2") == (
        ResponseCode.NO_MESSAGE,
        f"offset is illegal, key:{consumer.topic}@0, commit:2, store:0~1",
        {},
    )
    assert await refused(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, offset="1") == (
        ResponseCode.NO_MESSAGE,
        UNSET_REMARK,
        unchanged,
    )
    assert (await consumer.ack(popped)).code == ResponseCode.SUCCESS
    assert (await consumer.ack(popped)).code == ResponseCode.SUCCESS, "it was acknowledged before"


async def test_the_invisible_time_can_be_shortened(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a", b"b")
    first, second = await consumer.pop()
    answer = await consumer.change(first, 1000)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, UNSET_REMARK)
    changed = ChangeInvisibleTimeAnswer.from_fields(answer.fields)
    assert (changed.invisible_time, changed.revive_qid) == (1000, first.handle.revive_queue_id)
    assert abs(changed.pop_time - now_ms()) < 60_000
    assert (await consumer.change(second, 1000, suspend=True)).code == ResponseCode.SUCCESS
    again = {each.body: each.message for each in await consumer.pop_until(2)}
    assert {body: message.reconsume_times for body, message in again.items()} == {b"a": 1, b"b": 0}


async def test_a_change_replaces_the_receipt_handle(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a", b"b")
    unchanged, changed_message = await consumer.pop(invisible_time=2000)
    assert changed_message.handle.offset is not None
    changed = ChangeInvisibleTimeAnswer.from_fields((await consumer.change(changed_message, 2000)).fields)
    new = attrs.evolve(
        changed_message.handle, start_offset=changed_message.handle.offset, pop_time_ms=changed.pop_time
    )
    assert (await consumer.ack(attrs.evolve(changed_message, handle=new))).code == ResponseCode.SUCCESS
    (again,) = await consumer.pop_until(1)
    assert again.body == unchanged.body, "the other message was acknowledged"
    assert await consumer.pop(poll_time=3000) == []


async def test_a_delayed_message_is_redelivered(consumer: Consumer) -> None:
    await consumer.send(b"a", queue_id=0, delay_level=1)
    (first,) = await consumer.pop_until(1, invisible_time=500)
    assert first.message.properties["DELAY"] == "1"
    (again,) = await consumer.pop_until(1)
    assert again.message.reconsume_times == 1


# In order


async def test_a_queue_is_blocked_until_all_popped_messages_are_acknowledged(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a", b"b", b"c")
    first, second = await consumer.pop(order=True, max_msg_nums=2)
    assert (first.body, second.body) == (b"a", b"b")
    assert first.handle.is_ordered
    assert await consumer.pop(order=True) == []
    assert (await consumer.ack(first)).code == ResponseCode.SUCCESS
    assert await consumer.pop(order=True) == []
    assert (await consumer.ack(second)).code == ResponseCode.SUCCESS
    assert bodies(await consumer.pop(order=True)) == [b"c"]


async def test_the_answer_to_an_ordered_pop(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a", b"b")
    answer = await consumer.ask(order=True, queue_id=0)
    fields = dict(answer.fields)
    fields.pop("popTime")
    assert fields == {
        "invisibleTime": str(LONG), "reviveQid": "999", "restNum": "0", "startOffsetInfo": "0 0 0",
        "msgOffsetInfo": "0 0 0,1", "orderCountInfo": "0 0 0",
    }  # fmt: skip
    answer = await consumer.ask(order=True, queue_id=0)
    assert (answer.code, answer.fields["orderCountInfo"]) == (ResponseCode.POLLING_TIMEOUT, "")


async def test_unacknowledged_messages_are_popped_again_in_order(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a", b"b", b"c")
    first, _ = await consumer.pop(order=True, max_msg_nums=2, invisible_time=1000)
    await consumer.ack(first)
    again = await consumer.pop_until(2, order=True, max_msg_nums=32, invisible_time=1000)
    assert [(each.body, each.count) for each in again] == [(b"b", 1), (b"c", 0)]
    with trio.fail_after(PATIENCE):
        while (answer := await consumer.ask(order=True, poll_time=5000)).code != ResponseCode.SUCCESS:
            pass
    assert sorted(answer.fields["orderCountInfo"].split(";")) == ["0 0 1", "0 qo0%1 2", "0 qo0%2 1"]
    assert [each.message.reconsume_times for each in consumer.read(answer)] == [0, 0]


async def test_an_attempt_can_repeat_its_pop(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a")
    assert bodies(await consumer.pop(order=True, attempt_id="one")) == [b"a"]
    again = await consumer.pop_until(1, order=True, attempt_id="one", poll_time=0)
    assert [(each.body, each.count) for each in again] == [(b"a", 0)]
    assert await consumer.pop(order=True, attempt_id="two") == []


async def test_an_acknowledgement_of_a_message_that_was_not_popped_is_refused(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a", b"b")
    (first,) = await consumer.pop(order=True, max_msg_nums=1)
    other = attrs.evolve(first, handle=attrs.evolve(first.handle, offset=1))
    answer = await consumer.ack(other)
    key = f"{consumer.topic}@{consumer.group}@0"
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert (answer.remark or "").startswith(f"offset is illegal, key:{key}, old:0, commit:1, next:-1, ")


async def test_the_invisible_time_of_an_ordered_pop_can_be_changed(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a")
    (popped,) = await consumer.pop(order=True)
    answer = await consumer.change(popped, 1000)
    changed = ChangeInvisibleTimeAnswer.from_fields(answer.fields)
    assert (answer.remark, changed.pop_time, changed.revive_qid) == (
        UNSET_REMARK,
        popped.handle.pop_time_ms,
        999,
    )
    assert 1000 <= changed.invisible_time < LONG
    (again,) = await consumer.pop_until(1, order=True)
    assert again.count == 1
    await consumer.ack(again)
    answer = await consumer.change(again, 1000)
    assert (answer.code, answer.fields["popTime"]) == (ResponseCode.SUCCESS, "0"), (
        "it was acknowledged before"
    )


async def test_an_acknowledgement_answers_a_held_pop(consumer: Consumer) -> None:
    await send_and_wait(consumer, b"a", b"b")
    (first,) = await consumer.pop(order=True, max_msg_nums=1)
    answers = []

    async def wait() -> None:
        answers.append(await consumer.ask(order=True, poll_time=28_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await consumer.ack(first)
    assert bodies(consumer.read(answers[0])) == [b"b"]


@pytest.mark.parametrize("order", [False, True])
async def test_the_next_pop_starts_at_the_reset_offset(consumer: Consumer, order: bool) -> None:
    await send_and_wait(consumer, b"a", b"b", b"c")
    popped = await consumer.pop(order=order)
    assert bodies(popped) == [b"a", b"b", b"c"]
    reset = ResetOffsetRequest(
        topic=consumer.topic, group=consumer.group, timestamp=-1, queue_id=0, offset=1, is_force=True
    )
    answer = await consumer.peer.ask(reset, code=RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    assert answer.code == ResponseCode.SUCCESS
    # While a real broker has the queue locked, it counts the remaining messages from the old offset.
    assert bodies(await consumer.pop_until(1, order=order)) == [b"b"]
    assert bodies(await consumer.pop(order=order)) == ([] if order else [b"c"])
