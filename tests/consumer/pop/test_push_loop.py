"""What a push consumer does with what it pops: holds it for its time, hands it out, and tells the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import PushConsumerConfig
from rocketmq_py.consumer.group.statistics import ConsumerCounters, TopicCounters
from rocketmq_py.consumer.group.subscriptions import original_topic, pop_retry_topic_of, subscription_of
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pop.popped_queue import PoppedQueue
from rocketmq_py.consumer.pop.push_outcomes import DELAY_SECONDS
from rocketmq_py.consumer.pop.push_queues import PoppedQueues
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ALL_QUEUES, BatchAcks, SubscriptionData
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import ReceiptHandle, TopicKind
from tests.consumer.popping_broker import PopBroker, message, pop_brokers
from tests.consumer.received import received

QUEUE = MessageQueue("T", "broker-a", ALL_QUEUES)
settled = trio.testing.wait_all_tasks_blocked


def popped_message(offset: int) -> PoppedMessage:
    plain = received(offset)
    values = {field.name: getattr(plain, field.name) for field in attrs.fields(type(plain))}
    receipt = ReceiptHandle(
        start_offset=0, pop_time_ms=1, invisible_ms=60_000, revive_queue_id=0, topic_kind=TopicKind.NORMAL,
        broker_name="broker-a", queue_id=0, offset=offset,
    )  # fmt: skip
    return PoppedMessage(**values, receipt=receipt)


# What is held


@attrs.define
class Held:
    done: list[PoppedMessage] = attrs.field(factory=list)
    counts: TopicCounters = attrs.field(factory=TopicCounters)
    space: list[int] = attrs.field(factory=list)

    def queue(self, *messages: PoppedMessage, seconds: float = 60) -> PoppedQueue:
        queue = PoppedQueue(QUEUE, self.counts, self.done.append)
        queue.on_space = lambda: self.space.append(len(queue))
        queue.put(messages, trio.current_time() + seconds)
        return queue


async def test_what_is_handled_is_told_and_what_is_given_back_is_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    held, (a, b, c) = Held(), [popped_message(0), popped_message(0), popped_message(1)]
    queue = held.queue(a, b, c)
    assert (len(queue), queue.waiting) == (3, 3)
    assert queue.take() is a
    assert queue.take_several(5) == [b, c]
    queue.remove(a)
    queue.release(b)
    queue.release(b)
    queue.remove_all([a, b, c])
    assert held.done == [a, c], "offsets mean nothing: two messages may have the same one"
    assert (held.counts.done, held.counts.sent_back, held.space) == (2, 1, [2, 1, 0])
    queue.put([a], trio.current_time() + 1)
    assert queue.take() is a
    queue.put_back(a)
    assert queue.take() is a


async def test_what_is_over_is_neither_handed_out_nor_acknowledged(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    held, (a, b, c) = Held(), [popped_message(number) for number in range(3)]
    queue = held.queue(a, b, seconds=5)
    assert queue.take() is a
    await trio.sleep(5)
    queue.put([c], trio.current_time() + 5)
    queue.remove(a)
    queue.remove(a)
    assert queue.take_several(9) == [c]
    assert held.done == []
    assert len(queue) == 1
    assert [record.message for record in caplog.records] == [
        f"message {each.message_id} of topic T is not done with in time: it comes again" for each in (a, b)
    ]


# Popping, with a broker


@attrs.define
class Popped:
    queues: PoppedQueues
    broker: PopBroker
    subscriptions: dict[str, SubscriptionData]
    handlers: trio.Nursery
    asked: Callable[[int], list[Command]]
    offered: list[PoppedQueue] = attrs.field(factory=list)

    @property
    def popped_queue(self) -> PoppedQueue:
        return next(iter(self.queues)).popped_queue

    def take(self) -> PoppedMessage:
        taken = self.popped_queue.take()
        assert isinstance(taken, PoppedMessage)
        return taken


@asynccontextmanager
async def popping(**options: Any) -> AsyncIterator[Popped]:
    config = PushConsumerConfig(group="g", **options)
    async with (
        pop_brokers() as (cluster, [broker]),
        Client(cluster.address, route_refresh_interval=1e6, heartbeat_interval=1e6) as client,
        trio.open_nursery() as handlers,
        trio.open_nursery() as background,
    ):
        subscriptions = {"T": subscription_of("T", "*", None, version_ms=1)}
        await client.routes.get("T")
        queues = PoppedQueues(client, config, subscriptions, ConsumerCounters())
        result = Popped(queues, broker, subscriptions, handlers, cluster.brokers["broker-a"].asked)
        queues.open(background, handlers, result.offered.append)
        queues.assign("T", [QUEUE])
        yield result
        background.cancel_scope.cancel()
        handlers.cancel_scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what comes over a socket."""
    while not condition():
        await trio.sleep(0.01)


async def test_a_pop_says_what_the_settings_say(jumping_clock: trio.testing.MockClock) -> None:
    async with popping(pop_batch_nums=7, pop_invisible_time=12.5, pull_hold=3) as popped:
        popped.broker.put(message(0), message(1))
        await until(lambda: len(popped.broker.pops) == 2)
        first, second = popped.broker.pops
        assert first == second
        assert (first["queueId"], first["maxMsgNums"], first["invisibleTime"]) == ("-1", "7", "12500")
        assert (first["pollTime"], first["initMode"], first["exp"]) == ("3000", "1", "*")
        assert popped.offered == [popped.popped_queue]
        counts = popped.popped_queue.counts
        assert (counts.pulls, counts.pulled) == (1, 2)


async def test_all_that_is_handled_meanwhile_is_acknowledged_together(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with popping() as popped:
        popped.broker.put(message(0), message(1), message(2))
        await until(lambda: popped.offered)
        for _ in range(3):
            popped.popped_queue.remove(popped.take())
        await until(lambda: popped.broker.acked)
        [acks] = popped.broker.acked
        assert isinstance(acks, BatchAcks)
        assert acks.acks[0].bits == b"\x07"


async def test_what_a_broker_does_not_acknowledge_comes_again(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with popping() as popped:
        popped.broker.refused.add(RequestCode.ACK_MESSAGE)
        popped.broker.put(message(0))
        await until(lambda: popped.offered)
        popped.popped_queue.remove(popped.take())
        await until(
            lambda: "acknowledgement failed, retrying: group=g broker=broker-a messages=1" in caplog.text
        )
        popped.broker.refused.clear()
        popped.broker.put(message(1))
        await until(lambda: popped.popped_queue.waiting)
        popped.popped_queue.remove(popped.take())
        await until(lambda: popped.broker.acked)
        assert len(popped.broker.acked) == 1


async def test_what_was_handled_before_a_cancellation_is_acknowledged_when_it_leaves(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with popping() as popped:
        popped.broker.put(message(0), message(1))
        await until(lambda: popped.offered)
        popped.handlers.cancel_scope.cancel()
        popped.popped_queue.remove(popped.take())
        popped.popped_queue.remove(popped.take())
        with trio.CancelScope(shield=True):
            await settled()
            assert popped.broker.acked == []
            await popped.queues.leave()
            assert len(popped.broker.acked) == 1


@pytest.mark.parametrize(
    ("level", "failures", "seconds"),
    [(1, 0, 1), (3, 7, 10), (18, 0, 7200), (0, 0, 10), (0, 2, 60), (0, 15, 7200)],
)
async def test_delay_levels_are_times(
    jumping_clock: trio.testing.MockClock, level: int, failures: int, seconds: int
) -> None:
    assert DELAY_SECONDS[level] == seconds or not level
    async with popping() as popped:
        popped.broker.put(message(0))
        await until(lambda: popped.offered)
        failed = attrs.evolve(popped.take(), reconsume_times=failures)
        await popped.queues.outcomes.deliver_later(failed, level)
        [change] = popped.asked(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        assert change.fields["invisibleTime"] == str(seconds * 1000)


@pytest.mark.parametrize(("level", "failures"), [(-1, 0), (0, 2), (5, 3)])
async def test_what_failed_for_the_last_time_is_a_dead_letter(
    jumping_clock: trio.testing.MockClock, level: int, failures: int
) -> None:
    async with popping(max_reconsume_times=2) as popped:
        popped.broker.put(message(0))
        await until(lambda: popped.offered)
        failed = attrs.evolve(popped.take(), reconsume_times=failures)
        await popped.queues.outcomes.deliver_later(failed, level)
        assert popped.broker.log[-2:] == ["CONSUMER_SEND_MSG_BACK", "ACK_MESSAGE"]


async def test_what_was_delivered_too_often_is_a_dead_letter_and_not_handed_out(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with popping(max_reconsume_times=2) as popped:
        popped.broker.put(message(0, reconsume_times=3), message(1))
        await until(lambda: popped.offered and "ACK_MESSAGE" in popped.broker.log)
        assert popped.take().queue_offset == 1
        assert popped.popped_queue.take() is None
        told = [name for name in popped.broker.log if name != "POP_MESSAGE"]
        assert told == ["CONSUMER_SEND_MSG_BACK", "ACK_MESSAGE"]


async def test_what_cannot_be_given_back_is_left_to_the_broker(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with popping() as popped:
        popped.broker.refused.add(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        popped.broker.put(message(0))
        await until(lambda: popped.offered)
        await popped.queues.outcomes.deliver_later(popped.take(), 0)
        assert "send back failed, retrying: group=g broker=broker-a topic=T" in caplog.text


async def test_tags_are_compared_again(jumping_clock: trio.testing.MockClock) -> None:
    async with popping() as popped:
        popped.subscriptions["T"] = subscription_of("T", "A", None, version_ms=2)
        popped.broker.put(message(0, TAGS="B"), message(1, TAGS="A"))
        await until(lambda: popped.offered and popped.broker.acked)
        assert popped.take().queue_offset == 1
        assert popped.popped_queue.take() is None


async def test_it_waits_for_room_and_while_it_is_paused(jumping_clock: trio.testing.MockClock) -> None:
    async with popping(pop_threshold_for_queue=1, pull_hold=1) as popped:
        popped.queues.pause(True)
        popped.broker.put(message(0), message(1))
        await trio.sleep(30)
        pops = len(popped.broker.pops)
        assert pops <= 2, "the one that was under way"
        popped.queues.pause(False)
        await until(lambda: popped.offered)
        asked = len(popped.broker.pops)
        await trio.sleep(30)
        assert len(popped.broker.pops) == asked
        popped.popped_queue.remove(popped.take())
        await until(lambda: len(popped.broker.pops) > asked)


async def test_a_broker_that_refuses_is_asked_again_later(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with popping() as popped:
        popped.broker.code = ResponseCode.SYSTEM_ERROR
        await trio.sleep(60)
        assert 1 < len(popped.broker.pops) <= 21
        assert "pop failed, retrying: group=g broker=broker-a topic=T queue=-1" in caplog.text
        popped.broker.code = 0
        popped.broker.put(message(0))
        await until(lambda: popped.offered)


async def test_a_broker_that_holds_nothing_is_not_asked_in_a_loop(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with popping() as popped:
        popped.broker.code = ResponseCode.POLLING_TIMEOUT
        await trio.sleep(1)
        assert 1 < len(popped.broker.pops) <= 21


async def test_what_a_pop_brings_that_is_under_way_is_handled_all_the_same(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with popping() as popped:
        await until(lambda: popped.broker.pops)
        queue = popped.popped_queue
        popped.queues.assign("T", [])
        assert list(popped.queues) == []
        popped.broker.put(message(0))
        await until(lambda: popped.offered)
        assert popped.offered == [queue]
        assert len(popped.broker.pops) == 1


async def test_a_topic_that_is_subscribed_no_more_is_not_taken_up(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with popping() as popped:
        popped.subscriptions.clear()
        popped.queues.assign("T", [QUEUE])
        assert list(popped.queues.topics()) == []


# Names and settings


@pytest.mark.parametrize("namespace", ["", "tenant"])
def test_the_retry_topic_of_pop_and_back(namespace: str) -> None:
    space = Namespace(namespace)
    wire = space.wrap_topic(pop_retry_topic_of("T", "g", space))
    assert wire == ("%RETRY%tenant%g_tenant%T" if namespace else "%RETRY%g_T")
    assert original_topic(wire, "g", space) == "T"
    assert original_topic(space.wrap_topic("U"), "g", space) == "U"
    assert original_topic(space.wrap_topic("%RETRY%g"), "g", space) == "%RETRY%g"


@pytest.mark.parametrize(
    ("name", "value"), [("pop_invisible_time", 4.9), ("pop_invisible_time", 301), ("pop_batch_nums", 33)]
)
def test_settings_that_are_outside_of_what_java_allows(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is {value}"):
        PushConsumerConfig(group="g", **{name: value})  # type: ignore[arg-type]  # on purpose
