"""Delivery of due messages: times, order, unavailable topics, refused messages, rate, and progress."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

pytest.importorskip("rocksdict", reason="the extra relay is not installed")

from rocketmq_py import Message, MessageQueue, Producer, SendResult
from rocketmq_py.client.flow_control import RateLimiter
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BatchError, InvalidMessageError, NoQueueError, RocketMQError
from rocketmq_py.producer.delay_relay import PROGRESS
from rocketmq_py.relay import MESSAGE_ID
from rocketmq_py.relay.buffer_entries import DelayedMessage, Progress
from rocketmq_py.relay.delivery import BURST_SECONDS, QueueDelivery
from rocketmq_py.relay.settings import RelaySettings
from rocketmq_py.relay.store import NEVER_MS, QueueStore, Store, StoreRecord
from rocketmq_py.remoting.answer_errors import broker_error

QUEUE = MessageQueue("Buffer", "broker-a", 0)

pytestmark = pytest.mark.usefixtures("jumping_clock")


class Clock:
    """A wall clock that tests can set."""

    def __init__(self) -> None:
        self.ahead_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return round(trio.current_time() * 1000) + self.ahead_ms


class Target:
    """A producer that records messages. ``errors`` lists topics and ids whose messages fail.

    ``progress_errors`` are raised instead of recording the progress.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.delivered: list[tuple[str, int]] = []
        self.errors: dict[str, RocketMQError] = {}
        self.attempted: list[str] = []
        self.batches: list[list[str]] = []
        self.gates: dict[str, trio.Event] = {}
        self.recorded_progress: list[Progress] = []
        self.progress_errors: list[RocketMQError] = []

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        if PROGRESS not in message.properties:
            await self.send_batch([message])
            return
        assert queue == QUEUE
        assert message.topic == QUEUE.topic
        if self.progress_errors:
            raise self.progress_errors.pop()
        self.recorded_progress.append(Progress(*map(int, message.properties[PROGRESS].split())))

    async def send_batch(self, messages: Sequence[Message]) -> None:
        await trio.lowlevel.checkpoint()
        batch = [message.properties[MESSAGE_ID] for message in messages]
        self.batches.append(batch)
        for message_id, message in zip(batch, messages, strict=True):
            self.attempted.append(message_id)
            if (gate := self.gates.get(message_id)) is not None:
                await gate.wait()
            if error := self.errors.get(message.topic) or self.errors.get(message_id):
                raise error
        self.delivered += [(message_id, self._now_ms()) for message_id in batch]

    @property
    def ids(self) -> list[str]:
        return [message_id for message_id, _ in self.delivered]


class Setup:
    """A queue delivery with a recording producer and a settable clock."""

    def __init__(self, store: QueueStore, **options: float) -> None:
        self.store = store
        self.now_ms = Clock()
        self.target = Target(self.now_ms)
        self.offset = 0
        config = RelaySettings(topic="Buffer", store=Path("unused"), **options)  # type: ignore[arg-type]
        self.delivery = QueueDelivery(
            QUEUE,
            store,
            config,
            cast(Producer, self.target),
            RateLimiter(config.max_rate, burst_seconds=BURST_SECONDS),
            now_ms=self.now_ms,
        )

    def add(self, message_id: str, in_ms: int, topic: str = "T", sharding_key: str = "") -> int:
        """Write a message to the store. Returns when it is due."""
        due_ms = self.now_ms() + in_ms
        entry = DelayedMessage(message_id, due_ms, topic, b"x", "", "", 0, {}, sharding_key)
        self.offset += 1
        self.delivery.on_written(self.store.write([(self.offset, entry)], self.offset + 1), self.offset + 1)
        return due_ms


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with Store(tmp_path) as store:
        yield store.open_queue(QUEUE)


@asynccontextmanager
async def running(setup: Setup) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(setup.delivery.run)
        yield
        nursery.cancel_scope.cancel()


async def test_messages_are_delivered_when_they_are_due(store: QueueStore) -> None:
    setup = Setup(store)
    async with running(setup):
        due = {name: setup.add(name, in_ms) for name, in_ms in [("b", 5000), ("a", 100), ("c", 300_000)]}
        await trio.sleep(1)
        due["d"] = setup.add("d", 1)
        due["e"] = setup.add("e", -1000)
        await trio.sleep(400)
    assert setup.target.ids == ["a", "e", "d", "b", "c"]
    for message_id, sent_ms in setup.target.delivered:
        assert sent_ms >= due[message_id]
    assert [sent_ms - due[name] for name, sent_ms in setup.target.delivered if name != "e"] == [0, 0, 0, 0]
    assert list(store.messages()) == []


async def test_the_clock_may_be_set_in_both_directions(store: QueueStore) -> None:
    setup = Setup(store)
    async with running(setup):
        setup.add("a", 300_000)
        setup.now_ms.ahead_ms += 300_000
        await trio.sleep(1.1)
        assert setup.target.ids == ["a"]
        setup.add("b", 1000)
        setup.now_ms.ahead_ms -= 600_000
        await trio.sleep(10)
        assert setup.target.ids == ["a"]
        await trio.sleep(600)
    assert setup.target.ids == ["a", "b"]


async def test_an_unavailable_topic_delays_only_its_own_messages_and_keeps_their_order(
    store: QueueStore, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup(store, batch_size=2)
    setup.target.errors["Away"] = NoQueueError("topic 'Away' has no queue that may be written")
    async with running(setup):
        for number in range(5):
            setup.add(f"away-{number}", number, "Away")
            setup.add(f"here-{number}", number)
        await trio.sleep(1)
        assert setup.target.ids == [f"here-{number}" for number in range(5)]
        assert len(list(store.messages())) == 5
        setup.target.attempted.clear()
        await trio.sleep(60)
        assert setup.target.attempted == ["away-0"] * 12, "each retry sends one message"
        assert store.earliest_due_ms() < setup.now_ms() - 50_000
        del setup.target.errors["Away"]
        await trio.sleep(5)
    assert setup.target.ids[5:] == [f"away-{number}" for number in range(5)]
    assert list(store.messages()) == []
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert len(caplog.records) == 2, "after 0 and 35 seconds"
    assert "delivery failed, retrying: group=RELAY_Buffer topic=Away retry_in=5.0" in caplog.text


async def test_messages_that_are_deferred_while_their_topic_recovers_are_retried(store: QueueStore) -> None:
    setup = Setup(store)
    setup.target.errors["Away"] = NoQueueError("none")
    slow = setup.target.gates["slow"] = trio.Event()
    async with running(setup):
        setup.add("first", 0, "Away")
        await trio.sleep(1)
        # The topic recovers, and its deferred messages are delivered, while another message is in flight.
        setup.add("slow", 0)
        setup.add("second", 0, "Away")
        await trio.sleep(1)
        del setup.target.errors["Away"]
        await trio.sleep(5)
        assert setup.target.ids == ["first"]
        slow.set()
        await trio.sleep(6)
    assert setup.target.ids == ["first", "slow", "second"]


async def test_a_message_that_is_deferred_before_those_being_retried_is_delivered_too(
    store: QueueStore,
) -> None:
    setup = Setup(store)
    setup.target.errors["Away"] = NoQueueError("none")
    async with running(setup):
        for name in ("first", "second"):
            setup.add(name, 0, "Away")
        await trio.sleep(1)
        del setup.target.errors["Away"]
        gate = setup.target.gates["second"] = trio.Event()
        await trio.sleep(5)
        assert setup.target.ids == ["first"]
        setup.add("overdue", -60_000, "Away")
        await trio.sleep(1)
        gate.set()
        await trio.sleep(1)
    assert setup.target.ids == ["first", "second", "overdue"]
    assert list(store.messages()) == []


async def test_messages_are_batched_by_topic_and_sharding_key(
    store: QueueStore,
) -> None:
    setup = Setup(store)
    for number in range(3):
        setup.add(f"T-{number}", number - 10)
        setup.add(f"U-{number}", number - 10, "U")
        setup.add(f"k-{number}", number - 10, sharding_key="k")
    async with running(setup):
        await trio.sleep(1)
    assert sorted(setup.target.batches) == [[f"{name}-{number}" for number in range(3)] for name in "TUk"]


async def test_the_unstored_rest_of_a_batch_is_sent_again(store: QueueStore) -> None:
    setup = Setup(store)
    results = [cast(SendResult, object())] * 2
    setup.target.errors["2"] = BatchError(results, 4, NoQueueError("away"))
    async with running(setup):
        for number in range(4):
            setup.add(str(number), 0)
        await trio.sleep(1)
        assert [message.message_id for message in store.messages()] == ["2", "3"]
        del setup.target.errors["2"]
        await trio.sleep(5)
    assert setup.target.batches == [["0", "1", "2", "3"], ["2"], ["3"]]


async def test_a_message_refused_by_a_later_part_of_a_batch_does_not_delay_the_others(
    store: QueueStore,
) -> None:
    setup = Setup(store)
    refusal = InvalidMessageError("the body is too large")
    parts = BatchError([cast(SendResult, object())], 3, refusal)
    parts.__cause__ = refusal
    setup.target.errors["bad"] = parts
    async with running(setup):
        for name in ("good", "bad", "better"):
            setup.add(name, 0)
        while not setup.target.attempted:
            await trio.lowlevel.checkpoint()
        setup.target.errors["bad"] = refusal
        await trio.sleep(1)
    assert setup.target.ids == ["better"]
    assert [message.message_id for message in store.messages()] == ["bad"]


async def test_messages_behind_a_refused_one_keep_their_order_if_their_topic_becomes_unavailable(
    store: QueueStore,
) -> None:
    setup = Setup(store)
    setup.target.errors |= {"0": InvalidMessageError("the body is too large"), "1": NoQueueError("none")}
    async with running(setup):
        for number in range(4):
            setup.add(str(number), 0)
        await trio.sleep(1)
        assert setup.target.ids == []
        del setup.target.errors["1"]
        await trio.sleep(5)
    assert setup.target.ids == ["1", "2", "3"]


async def test_the_store_is_not_read_while_no_message_is_due(
    store: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[float] = []

    def due(after: bytes, now_ms: int, limit: int) -> list[StoreRecord]:
        reads.append(trio.current_time())
        return QueueStore.due(store, after, now_ms, limit)

    monkeypatch.setattr(store, "due", due)
    setup = Setup(store)
    async with running(setup):
        setup.add("a", 60_000)
        setup.add("b", 120_000)
        await trio.sleep(100)
        assert setup.target.ids == ["a"]
        assert len(reads) <= 3


async def test_deferred_messages_are_retried_after_a_restart(store: QueueStore) -> None:
    setup = Setup(store)
    setup.target.errors["T"] = NoQueueError("none")
    async with running(setup):
        setup.add("a", 0)
        await trio.sleep(1)
    setup = Setup(store)
    async with running(setup):
        setup.add("b", 0)
        await trio.sleep(6)
    assert setup.target.ids == ["a", "b"]


@pytest.mark.parametrize(
    "error",
    [
        InvalidMessageError("the body is too large"),
        broker_error(ResponseCode.MESSAGE_ILLEGAL, "no", "127.0.0.1:10911"),
    ],
)
async def test_a_refused_message_is_kept_and_does_not_delay_others(
    store: QueueStore, error: RocketMQError, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup(store)
    setup.target.errors["bad"] = error
    async with running(setup):
        for name in ("good", "bad", "better"):
            setup.add(name, 0)
        await trio.sleep(60)
    assert setup.target.ids == ["good", "better"]
    assert [message.message_id for message in store.messages()] == ["bad"]
    assert "message refused, keeping it in the store id=bad topic=T" in caplog.text


async def test_overdue_messages_are_delivered_oldest_first_at_the_maximum_rate(store: QueueStore) -> None:
    setup = Setup(store, max_rate=100.0, batch_size=64)
    for number in range(1000):
        setup.add(f"{number:04}", -1_000_000_000 + number)
    async with running(setup):
        await trio.sleep(5)
        assert 490 <= len(setup.target.delivered) <= 511
        await trio.sleep(5.1)
    assert setup.target.ids == [f"{number:04}" for number in range(1000)]


async def test_a_rate_may_be_unlimited(store: QueueStore) -> None:
    setup = Setup(store, max_rate=math.inf)
    for number in range(1000):
        setup.add(f"{number:04}", number - 1000)
    async with running(setup):
        await trio.sleep(0.001)
    assert setup.target.ids == [f"{number:04}" for number in range(1000)]


async def test_progress_is_recorded_when_it_has_changed(store: QueueStore) -> None:
    setup = Setup(store, progress_interval=5.0)
    async with running(setup):
        await trio.sleep(60)
        assert setup.target.recorded_progress == []
        setup.add("a", 0)
        later = setup.add("b", 100_000)
        await trio.sleep(60)
        assert setup.target.recorded_progress == [Progress(3, later)]
        await trio.sleep(100)
    assert setup.target.recorded_progress == [Progress(3, later), Progress(3, NEVER_MS)]


async def test_progress_excludes_messages_in_flight_and_messages_being_written(
    store: QueueStore,
) -> None:
    setup = Setup(store, progress_interval=5.0)
    async with running(setup):
        setup.add("first", 0)
        await trio.sleep(1)
        gate = setup.target.gates["slow"] = trio.Event()
        slow = setup.add("slow", 0, "U")
        await trio.sleep(5)
        assert setup.target.recorded_progress == [Progress(3, slow)]
        gate.set()
        await trio.sleep(0)
        # Another thread has written this message, and has not called on_written yet.
        store.write([(9, DelayedMessage("new", 1, "T", b"x", "", "", 0, {}))], 10)
        await setup.delivery.record_progress()
    assert setup.target.recorded_progress[-1].offset == 3


async def test_recording_progress_is_retried_after_an_error(store: QueueStore) -> None:
    setup = Setup(store)
    setup.target.progress_errors.append(NoQueueError("away"))
    async with running(setup):
        setup.add("a", 0)
        await trio.sleep(11)
    assert setup.target.recorded_progress == [Progress(2, NEVER_MS)]


async def test_finishing_waits_for_messages_in_flight_and_sends_no_others(store: QueueStore) -> None:
    setup = Setup(store, batch_size=1)
    gate = setup.target.gates["first"] = trio.Event()
    setup.add("first", 0)
    setup.add("second", 0)
    async with running(setup):
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(setup.delivery.finish)
            await wait_all_tasks_blocked()
            assert not setup.target.ids
            gate.set()
        await wait_all_tasks_blocked()
        assert setup.target.attempted == ["first"]
        assert setup.target.ids == ["first"]
    assert store.due(b"", setup.now_ms(), 10)[0].message.message_id == "second"
