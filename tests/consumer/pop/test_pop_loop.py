"""Pop of a push consumer: buffer, loop, acknowledgements."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.counters import ConsumerCounters, TopicCounters
from rocketmq_py.consumer.group.dead_letters import FailedDelivery
from rocketmq_py.consumer.group.handler_results import DELAY_SECONDS
from rocketmq_py.consumer.group.subscriptions import subscription_of
from rocketmq_py.consumer.pop.acknowledger import PATIENCE_SECONDS, PopAcknowledger
from rocketmq_py.consumer.pop.assigned_queues import PopAssignedQueues
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pop.process_queue import PopProcessQueue
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.handler_failures import Redelivery
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.errors import ConfigurationError, ConnectError, RetriableBrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ALL_QUEUES, BatchAcks, SubscriptionData
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import ReceiptHandle, TopicKind
from tests.consumer.dispatching import ScriptedReturns
from tests.consumer.pop_broker import PopBroker, message, pop_brokers
from tests.consumer.received import received

QUEUE = MessageQueue("T", "broker-a", ALL_QUEUES)


def popped_message(offset: int) -> PoppedMessage:
    plain = received(offset)
    values = {field.alias: getattr(plain, field.name) for field in attrs.fields(type(plain))}
    receipt = ReceiptHandle(
        start_offset=0, pop_time_ms=1, invisible_ms=60_000, revive_queue_id=0, topic_kind=TopicKind.NORMAL,
        broker_name="broker-a", queue_id=0, offset=offset,
    )  # fmt: skip
    return PoppedMessage(**values, receipt=receipt)


def test_the_repr_of_a_popped_message_is_short() -> None:
    assert repr(popped_message(7)) == repr(received(7)).replace("ReceivedMessage", "PoppedMessage")


# PopProcessQueue


@attrs.define
class Recorder:
    acknowledged: list[PoppedMessage] = attrs.field(factory=list)
    counts: TopicCounters = attrs.field(factory=TopicCounters)
    space: list[int] = attrs.field(factory=list)

    def queue(self, *messages: PoppedMessage, seconds: float = 60) -> PopProcessQueue:
        queue = PopProcessQueue(QUEUE, self.counts, cast(PopAcknowledger, self))
        queue.on_removed = lambda: self.space.append(len(queue))
        queue.put(messages, trio.current_time() + seconds)
        return queue

    def acknowledge(self, message: PoppedMessage) -> None:
        self.acknowledged.append(message)


async def test_processed_messages_are_acknowledged_and_sent_back_ones_are_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    recorder, (a, b, c) = Recorder(), [popped_message(0), popped_message(0), popped_message(1)]
    queue = recorder.queue(a, b, c)
    assert (len(queue), queue.waiting) == (3, 3)
    assert queue.take() is a
    assert queue.take_batch(5) == [b, c]
    queue.remove(a)
    queue.remove_sent_back(b)
    queue.remove_sent_back(b)
    queue.remove_all([a, b, c])
    assert recorder.acknowledged == [a, c], "two messages may have the same offset"
    assert (recorder.counts.handled, recorder.counts.sent_back, recorder.space) == (2, 1, [2, 1, 0])
    queue.put([a], trio.current_time() + 1)
    assert queue.take() is a
    queue.requeue(a)
    assert queue.take() is a


async def test_a_message_that_could_not_become_a_dead_letter_is_tried_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def refuse(*_: object) -> None:
        raise RetriableBrokerError(ResponseCode.SYSTEM_BUSY, "busy", "broker:1")

    class Dispatch:
        """Records that messages were offered."""

        def __init__(self) -> None:
            self.offered = trio.Event()

        def offer(self, buffer: MessageBuffer) -> None:
            self.offered.set()

    dispatch = Dispatch()
    message = popped_message(0)
    queue = Recorder().queue(message)
    assert queue.take() is message
    redelivery = Redelivery(ScriptedReturns(refuse, refuse), dispatch, PushConsumerSettings(group="g"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(redelivery.run)
        await redelivery.give_up(queue, {message: "cannot be decoded"})
        await dispatch.offered.wait()
        nursery.cancel_scope.cancel()
    assert queue.take() is message


async def test_visible_messages_are_neither_dispatched_nor_acknowledged(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    recorder, (a, b, c) = Recorder(), [popped_message(number) for number in range(3)]
    queue = recorder.queue(a, b, seconds=5)
    assert queue.take() is a
    await trio.sleep(5)
    queue.put([c], trio.current_time() + 5)
    queue.remove(a)
    queue.remove(a)
    assert queue.take_batch(9) == [c]
    assert recorder.acknowledged == []
    assert len(queue) == 1
    assert [record.message for record in caplog.records] == [
        f"not processed within the invisible time: message={each.message_id} topic=T: "
        "the broker redelivers it"
        for each in (a, b)
    ]


async def test_size_can_be_read_in_a_thread_while_messages_arrive(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Arriving:
        """A message whose size is read while the trio thread adds another one."""

        @property
        def body(self) -> bytes:
            queue.put([popped_message(1)], 60.0)
            return b"123"

    queue = Recorder().queue(cast("PoppedMessage", Arriving()))
    assert queue.size == 3
    assert len(queue) == 2


# PopLoop, with a broker


class DeliveryRecorder:
    """An owner of popped queues that records each delivery."""

    def __init__(self) -> None:
        self.delivered: list[PopProcessQueue] = []

    def deliver(self, process_queue: PopProcessQueue) -> None:
        self.delivered.append(process_queue)


@attrs.define
class PopHarness:
    queues: PopAssignedQueues
    broker: PopBroker
    subscriptions: dict[str, SubscriptionData]
    handlers: trio.Nursery
    asked: Callable[[int], list[Command]]
    counters: ConsumerCounters
    is_ready: list[PopProcessQueue]

    @property
    def queue(self) -> PopProcessQueue:
        return next(iter(self.queues)).process_queue

    def take(self) -> PoppedMessage:
        taken = self.queue.take()
        assert isinstance(taken, PoppedMessage)
        return taken


@asynccontextmanager
async def pop_harness(**options: Any) -> AsyncIterator[PopHarness]:
    config = PushConsumerSettings(group="g", **options)
    async with (
        pop_brokers() as (cluster, [broker]),
        Client(cluster.address, route_refresh_interval=1e6, heartbeat_interval=1e6) as client,
        trio.open_nursery() as handlers,
        trio.open_nursery() as background,
    ):
        subscriptions = {"T": subscription_of("T", "*", None, version_ms=1)}
        await core_of(client).routes.get("T")
        counters = ConsumerCounters()
        recorder = DeliveryRecorder()
        queues = PopAssignedQueues(core_of(client), config, subscriptions, counters, recorder)
        asked = cluster.brokers["broker-a"].asked
        result = PopHarness(queues, broker, subscriptions, handlers, asked, counters, recorder.delivered)
        queues.open(background, handlers)
        queues.assign("T", [QUEUE])
        yield result
        background.cancel_scope.cancel()
        handlers.cancel_scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that depends on the network."""
    while not condition():
        await trio.sleep(0.01)


async def test_pop_request_has_the_settings(jumping_clock: trio.testing.MockClock) -> None:
    async with pop_harness(pop_batch_nums=7, invisible=12.5, pull_hold=3) as popped:
        popped.broker.put(message(0), message(1))
        await until(lambda: len(popped.broker.pops) == 2)
        first, second = popped.broker.pops
        assert first == second
        assert (first["queueId"], first["maxMsgNums"], first["invisibleTime"]) == ("-1", "7", "12500")
        assert (first["pollTime"], first["initMode"], first["exp"]) == ("3000", "1", "*")
        assert popped.is_ready == [popped.queue]
        counts = popped.queue.counts
        assert (counts.pulls, counts.pulled) == (1, 2)


async def test_messages_processed_during_a_request_are_acknowledged_together(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_harness() as popped:
        popped.broker.put(message(0), message(1), message(2))
        await until(lambda: popped.is_ready)
        for _ in range(3):
            popped.queue.remove(popped.take())
        await until(lambda: popped.broker.acked)
        [acks] = popped.broker.acked
        assert isinstance(acks, BatchAcks)
        assert acks.acks[0].bits == b"\x07"


async def test_failed_acknowledgement_is_logged_and_later_ones_continue(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with pop_harness() as popped:
        popped.broker.refused.add(RequestCode.ACK_MESSAGE)
        popped.broker.put(message(0))
        await until(lambda: popped.is_ready)
        popped.queue.remove(popped.take())
        await until(
            lambda: "acknowledgement failed, retrying: group=g broker=broker-a messages=1" in caplog.text
        )
        popped.broker.refused.clear()
        popped.broker.put(message(1))
        await until(lambda: popped.queue.waiting)
        popped.queue.remove(popped.take())
        await until(lambda: popped.broker.acked)
        assert len(popped.broker.acked) == 1


class Unreachable:
    """Lets acknowledgements fail as if the broker refused connections, until ``is_back`` is set."""

    def __init__(self, popped: PopHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_back = False
        requests = popped.queues.acknowledger._requests
        self._acknowledge = requests.acknowledge
        monkeypatch.setattr(requests, "acknowledge", self.acknowledge)

    async def acknowledge(self, broker_name: str, messages: Sequence[PoppedMessage]) -> None:
        if self.is_back:
            await self._acknowledge(broker_name, messages)
            return
        await trio.sleep(3)
        raise ConnectError("127.0.0.1:10911", "Connection refused")


@pytest.mark.parametrize("seconds", [30, 100])
async def test_messages_are_acknowledged_again_while_the_broker_cannot_be_reached(
    jumping_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    async with pop_harness() as popped:
        broker = Unreachable(popped, monkeypatch)
        popped.broker.put(message(0))
        await until(lambda: popped.is_ready)
        popped.queue.remove(popped.take())
        await trio.sleep(seconds)
        broker.is_back = True
        await trio.sleep(4)
        assert len(popped.broker.acked) == (1 if seconds < PATIENCE_SECONDS else 0)


async def test_leaving_does_not_wait_for_a_broker_that_cannot_be_reached(
    jumping_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pop_harness() as popped:
        Unreachable(popped, monkeypatch)
        popped.broker.put(message(0))
        await until(lambda: popped.is_ready)
        popped.queue.remove(popped.take())
        await trio.sleep(10)
        start = trio.current_time()
        await popped.queues.leave()
        assert trio.current_time() - start <= 4


async def test_pops_are_repeated_with_a_growing_back_off_while_the_rate_is_limited(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_harness() as popped:
        popped.broker.code = ResponseCode.FLOW_CONTROL
        await until(lambda: popped.broker.pops)
        popped.broker.pops.clear()
        await trio.sleep(10)
        refused = len(popped.broker.pops)
        assert refused == pytest.approx(15, abs=3)  # after 0.02, 0.04, … 0.64 s, then once in a second
        popped.broker.code = 0
        popped.broker.put(message(0))
        await until(lambda: popped.is_ready)
        assert popped.queue.counts.throttled >= refused


async def test_messages_are_acknowledged_again_while_the_rate_is_limited(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_harness() as popped:
        popped.broker.refused.add(RequestCode.ACK_MESSAGE)
        popped.broker.refusal = ResponseCode.FLOW_CONTROL
        popped.broker.put(message(0))
        await until(lambda: popped.is_ready)
        popped.queue.remove(popped.take())
        await trio.sleep(10)
        assert popped.broker.log.count("ACK_MESSAGE") > 5
        popped.broker.refused.clear()
        await until(lambda: popped.broker.acked)


async def test_leave_sends_outstanding_acknowledgements(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_harness() as popped:
        popped.broker.put(message(0), message(1))
        await until(lambda: popped.is_ready)
        popped.handlers.cancel_scope.cancel()
        popped.queue.remove(popped.take())
        popped.queue.remove(popped.take())
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
            assert popped.broker.acked == []
            await popped.queues.leave()
            assert len(popped.broker.acked) == 1


@pytest.mark.parametrize(
    ("level", "failures", "seconds"),
    [(1, 0, 1), (3, 7, 10), (18, 0, 7200), (0, 0, 10), (0, 2, 60), (0, 15, 7200)],
)
async def test_delay_level_is_converted_to_an_invisible_time(
    jumping_clock: trio.testing.MockClock, level: int, failures: int, seconds: int
) -> None:
    assert DELAY_SECONDS[level] == seconds or not level
    async with pop_harness() as popped:
        popped.broker.put(message(0))
        await until(lambda: popped.is_ready)
        failed = attrs.evolve(popped.take(), reconsume_times=failures)
        await popped.queues.acknowledger.send_back(FailedDelivery(failed, level))
        [change] = popped.asked(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        assert change.fields["invisibleTime"] == str(seconds * 1000)


@pytest.mark.parametrize(("level", "failures"), [(-1, 0), (0, 2), (5, 3)])
async def test_message_becomes_a_dead_letter_after_the_last_failure(
    jumping_clock: trio.testing.MockClock, level: int, failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.consumer")
    async with pop_harness(max_reconsume_times=2) as popped:
        popped.broker.put(message(0))
        await until(lambda: popped.is_ready)
        failed = attrs.evolve(popped.take(), reconsume_times=failures)
        await popped.queues.acknowledger.send_back(FailedDelivery(failed, level, ValueError("no")))
        assert popped.broker.log[-2:] == ["CONSUMER_SEND_MSG_BACK", "ACK_MESSAGE"]
        assert popped.counters.of("T").dead_letters == 1
    reason = "the handler returned ConsumeLater(-1)" if level == -1 else "its last delivery failed"
    described = f"message={failed.message_id} keys= deliveries={failures + 1}: {reason}"
    assert f"group=g topic=T {described}: ValueError: no\n" in caplog.text


async def test_message_delivered_too_often_becomes_a_dead_letter(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_harness(max_reconsume_times=2) as popped:
        popped.broker.put(message(0, reconsume_times=3), message(1))
        await until(lambda: popped.is_ready and "ACK_MESSAGE" in popped.broker.log)
        assert popped.take().queue_offset == 1
        assert popped.queue.take() is None
        requests = [name for name in popped.broker.log if name != "POP_MESSAGE"]
        assert requests == ["CONSUMER_SEND_MSG_BACK", "ACK_MESSAGE"]


async def test_failed_send_back_is_logged(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with pop_harness() as popped:
        popped.broker.refused.add(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        popped.broker.put(message(0))
        await until(lambda: popped.is_ready)
        await popped.queues.acknowledger.send_back(FailedDelivery(popped.take()))
        assert "send back failed, retrying: group=g broker=broker-a topic=T" in caplog.text


async def test_tags_with_the_same_hash_are_filtered_out(jumping_clock: trio.testing.MockClock) -> None:
    async with pop_harness() as popped:
        popped.subscriptions["T"] = subscription_of("T", "A", None, version_ms=2)
        popped.broker.put(message(0, TAGS="B"), message(1, TAGS="A"))
        await until(lambda: popped.is_ready and popped.broker.acked)
        assert popped.take().queue_offset == 1
        assert popped.queue.take() is None


async def test_pops_after_the_end_of_a_subscription_have_its_last_filter(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_harness() as popped:
        popped.subscriptions["T"] = subscription_of("T", "A", None, version_ms=2)
        popped.broker.put(message(0, TAGS="A"))
        await until(lambda: popped.is_ready)
        assert popped.take().queue_offset == 0
        del popped.subscriptions["T"]
        popped.broker.put(message(1, TAGS="B"))  # it answers a pop of before
        await until(lambda: len(popped.broker.acked) == 1)
        popped.broker.put(message(2, TAGS="B"))
        await until(lambda: len(popped.broker.acked) == 2)
        assert popped.queue.take() is None


async def test_loop_waits_for_space_and_while_it_is_paused(jumping_clock: trio.testing.MockClock) -> None:
    async with pop_harness(pop_threshold=1, pull_hold=1) as popped:
        popped.queues.pause(True)
        popped.broker.put(message(0), message(1))
        await trio.sleep(30)
        pops = len(popped.broker.pops)
        assert pops <= 2, "including the pending pop"
        popped.queues.pause(False)
        await until(lambda: popped.is_ready)
        asked = len(popped.broker.pops)
        await trio.sleep(30)
        assert len(popped.broker.pops) == asked
        popped.queue.remove(popped.take())
        await until(lambda: len(popped.broker.pops) > asked)


async def test_failed_pop_is_retried_with_a_delay(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with pop_harness() as popped:
        popped.broker.code = ResponseCode.SYSTEM_ERROR
        await trio.sleep(60)
        assert 1 < len(popped.broker.pops) <= 21
        assert "pop failed, retrying: group=g broker=broker-a topic=T queue=-1" in caplog.text
        popped.broker.code = 0
        popped.broker.put(message(0))
        await until(lambda: popped.is_ready)


async def test_broker_that_does_not_hold_pops_is_not_polled_in_a_tight_loop(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_harness() as popped:
        popped.broker.code = ResponseCode.POLLING_TIMEOUT
        await trio.sleep(1)
        assert 1 < len(popped.broker.pops) <= 21


async def test_messages_of_a_pending_pop_are_processed_after_the_revocation(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_harness() as popped:
        await until(lambda: popped.broker.pops)
        queue = popped.queue
        popped.queues.assign("T", [])
        assert list(popped.queues) == []
        popped.broker.put(message(0))
        await until(lambda: popped.is_ready)
        assert popped.is_ready == [queue]
        assert len(popped.broker.pops) == 1


async def test_unsubscribed_topic_is_not_assigned(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_harness() as popped:
        popped.subscriptions.clear()
        popped.queues.assign("T", [QUEUE])
        assert list(popped.queues.topics()) == []


# Names and settings


@pytest.mark.parametrize("namespace", ["", "tenant"])
def test_name_of_the_pop_retry_topic(namespace: str) -> None:
    space = Namespace(namespace)
    wire = space.wrap_topic(space.popped_topic("T", "g"))
    assert wire == ("%RETRY%tenant%g_tenant%T" if namespace else "%RETRY%g_T")
    assert space.original_topic(wire, "g") == "T"
    assert space.original_topic(space.wrap_topic("U"), "g") == "U"
    assert space.original_topic(space.wrap_topic("%RETRY%g"), "g") == "%RETRY%g"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("invisible", 4.9),
        ("invisible", 301),
        ("pop_batch_nums", 33),
        ("pop_batch_nums", 1.5),
    ],
)
def test_pop_settings_have_the_range_and_type_of_java(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is {value}"):
        PushConsumerSettings(group="g", **{name: value})  # type: ignore[arg-type]  # wrong on purpose
