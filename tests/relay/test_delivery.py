"""Delivering when it is due: on time, in order, past what cannot be sent, at a bounded rate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import trio

from rocketmq_py import Message, MessageQueue, Producer, SendResult
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BatchError, BrokerError, InvalidMessageError, NoQueueError, RocketMQError
from rocketmq_py.relay import MESSAGE_ID
from rocketmq_py.relay.config import RelayConfig
from rocketmq_py.relay.delivery import Delivery, Rate
from rocketmq_py.relay.entries import Progress, Waiting
from rocketmq_py.relay.store import NEVER_MS, QueueStore, Store, Stored

QUEUE = MessageQueue("Buffer", "broker-a", 0)

pytestmark = pytest.mark.usefixtures("jumping_clock")


class Clock:
    """The time of day, which may be set."""

    def __init__(self) -> None:
        self.ahead_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return round(trio.current_time() * 1000) + self.ahead_ms


class Target:
    """Takes what is sent, as long as it is not told to fail."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.taken: list[tuple[str, int]] = []
        self.fails: dict[str, RocketMQError] = {}
        self.tried: list[str] = []
        self.batches: list[list[str]] = []
        self.gates: dict[str, trio.Event] = {}

    async def send(self, message: Message) -> None:
        await self.send_batch([message])

    async def send_batch(self, messages: Sequence[Message]) -> None:
        await trio.lowlevel.checkpoint()
        batch = [message.properties[MESSAGE_ID] for message in messages]
        self.batches.append(batch)
        for message_id, message in zip(batch, messages, strict=True):
            self.tried.append(message_id)
            if (gate := self.gates.get(message_id)) is not None:
                await gate.wait()
            if error := self.fails.get(message.topic) or self.fails.get(message_id):
                raise error
        self.taken += [(message_id, self._now_ms()) for message_id in batch]

    @property
    def ids(self) -> list[str]:
        return [message_id for message_id, _ in self.taken]


class World:
    def __init__(self, store: QueueStore, **options: float) -> None:
        self.store = store
        self.now_ms = Clock()
        self.target = Target(self.now_ms)
        self.announced: list[Progress] = []
        self.offset = 0
        config = RelayConfig(topic="Buffer", store=Path("unused"), **options)  # type: ignore[arg-type]
        self.delivery = Delivery(
            store,
            config,
            cast(Producer, self.target),
            Rate(config.max_rate),
            now_ms=self.now_ms,
            announce=self.announce,
        )

    async def announce(self, progress: Progress) -> None:
        self.announced.append(progress)

    def add(self, message_id: str, in_ms: int, topic: str = "T", sharding_key: str = "") -> int:
        """Have a message wait; return when it is due."""
        due_ms = self.now_ms() + in_ms
        entry = Waiting(message_id, due_ms, topic, b"x", "", "", 0, {}, sharding_key)
        self.offset += 1
        self.delivery.added(self.store.write([(self.offset, entry)], self.offset + 1), self.offset + 1)
        return due_ms


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with Store(tmp_path) as store:
        yield store.queue(QUEUE)


@asynccontextmanager
async def at_work(world: World) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.delivery.run)
        yield
        nursery.cancel_scope.cancel()


async def test_each_goes_at_its_time_and_not_before(store: QueueStore) -> None:
    world = World(store)
    async with at_work(world):
        due = {name: world.add(name, in_ms) for name, in_ms in [("b", 5000), ("a", 100), ("c", 300_000)]}
        await trio.sleep(1)
        due["d"] = world.add("d", 1)
        due["e"] = world.add("e", -1000)
        await trio.sleep(400)
    assert world.target.ids == ["a", "e", "d", "b", "c"]
    for message_id, sent_ms in world.target.taken:
        assert sent_ms >= due[message_id]
    assert [sent_ms - due[name] for name, sent_ms in world.target.taken if name != "e"] == [0, 0, 0, 0]
    assert list(store.waiting()) == []


async def test_the_clock_may_be_set_in_both_directions(store: QueueStore) -> None:
    world = World(store)
    async with at_work(world):
        world.add("a", 300_000)
        world.now_ms.ahead_ms += 300_000
        await trio.sleep(1.1)
        assert world.target.ids == ["a"]
        world.add("b", 1000)
        world.now_ms.ahead_ms -= 600_000
        await trio.sleep(10)
        assert world.target.ids == ["a"]
        await trio.sleep(600)
    assert world.target.ids == ["a", "b"]


async def test_a_topic_that_cannot_be_sent_to_holds_up_no_other_and_comes_in_order(
    store: QueueStore, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(store, retry_interval=5.0, batch_size=2)
    world.target.fails["Away"] = NoQueueError("topic 'Away' has no queue that may be written")
    async with at_work(world):
        for number in range(5):
            world.add(f"away-{number}", number, "Away")
            world.add(f"here-{number}", number)
        await trio.sleep(1)
        assert world.target.ids == [f"here-{number}" for number in range(5)]
        assert len(list(store.waiting())) == 5
        world.target.tried.clear()
        await trio.sleep(60)
        assert world.target.tried == ["away-0"] * 12, "one is enough to see whether it can be sent to"
        assert store.earliest_ms() < world.now_ms() - 50_000
        del world.target.fails["Away"]
        await trio.sleep(5)
    assert world.target.ids[5:] == [f"away-{number}" for number in range(5)]
    assert list(store.waiting()) == []
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert len(caplog.records) == 2, "after 0 and 35 seconds"
    assert "delivery failed, retrying: group=RELAY_Buffer topic=Away retry_in=5.0" in caplog.text


async def test_what_is_put_aside_while_its_topic_comes_back_is_not_forgotten(store: QueueStore) -> None:
    world = World(store, retry_interval=5.0)
    world.target.fails["Away"] = NoQueueError("none")
    slow = world.target.gates["slow"] = trio.Event()
    async with at_work(world):
        world.add("first", 0, "Away")
        await trio.sleep(1)
        # While what is due together is on its way, the topic comes back and all that was aside is delivered.
        world.add("slow", 0)
        world.add("second", 0, "Away")
        await trio.sleep(1)
        del world.target.fails["Away"]
        await trio.sleep(5)
        assert world.target.ids == ["first"]
        slow.set()
        await trio.sleep(6)
    assert world.target.ids == ["first", "slow", "second"]


async def test_what_is_due_together_goes_in_one_request_for_each_topic_and_sharding_key(
    store: QueueStore,
) -> None:
    world = World(store)
    for number in range(3):
        world.add(f"T-{number}", number - 10)
        world.add(f"U-{number}", number - 10, "U")
        world.add(f"k-{number}", number - 10, sharding_key="k")
    async with at_work(world):
        await trio.sleep(1)
    assert sorted(world.target.batches) == [[f"{name}-{number}" for number in range(3)] for name in "TUk"]


async def test_of_a_list_that_was_stored_in_part_only_the_rest_goes_again(store: QueueStore) -> None:
    world = World(store, retry_interval=5.0)
    results = [cast(SendResult, object())] * 2
    world.target.fails["2"] = BatchError(results, 4, NoQueueError("away"))
    async with at_work(world):
        for number in range(4):
            world.add(str(number), 0)
        await trio.sleep(1)
        assert [message.message_id for message in store.waiting()] == ["2", "3"]
        del world.target.fails["2"]
        await trio.sleep(5)
    assert world.target.batches == [["0", "1", "2", "3"], ["2"], ["3"]]


async def test_the_store_is_not_looked_into_while_nothing_is_due(
    store: QueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def due(after: bytes, now_ms: int, limit: int) -> list[Stored]:
        looks.append(trio.current_time())
        return QueueStore.due(store, after, now_ms, limit)

    monkeypatch.setattr(store, "due", due)
    world = World(store)
    async with at_work(world):
        world.add("a", 60_000)
        world.add("b", 120_000)
        await trio.sleep(100)
        assert world.target.ids == ["a"]
        assert len(looks) <= 3


async def test_what_was_put_aside_is_tried_again_after_a_restart(store: QueueStore) -> None:
    world = World(store)
    world.target.fails["T"] = NoQueueError("none")
    async with at_work(world):
        world.add("a", 0)
        await trio.sleep(1)
    world = World(store)
    async with at_work(world):
        world.add("b", 0)
        await trio.sleep(6)
    assert world.target.ids == ["a", "b"]


@pytest.mark.parametrize(
    "error",
    [
        InvalidMessageError("the body is too large"),
        BrokerError.from_answer(ResponseCode.MESSAGE_ILLEGAL, "no", "127.0.0.1:10911"),
    ],
)
async def test_a_message_that_no_broker_takes_is_kept_and_the_others_go_on(
    store: QueueStore, error: RocketMQError, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(store)
    world.target.fails["bad"] = error
    async with at_work(world):
        for name in ("good", "bad", "better"):
            world.add(name, 0)
        await trio.sleep(60)
    assert world.target.ids == ["good", "better"]
    assert [message.message_id for message in store.waiting()] == ["bad"]
    assert "message bad for topic T is kept, and not delivered" in caplog.text


async def test_what_is_overdue_goes_oldest_first_at_a_bounded_rate(store: QueueStore) -> None:
    world = World(store, max_rate=100.0, batch_size=64)
    for number in range(1000):
        world.add(f"{number:04}", -1_000_000_000 + number)
    async with at_work(world):
        await trio.sleep(5)
        assert 490 <= len(world.target.taken) <= 511
        await trio.sleep(5.1)
    assert world.target.ids == [f"{number:04}" for number in range(1000)]


async def test_progress_is_announced_when_there_is_some(store: QueueStore) -> None:
    world = World(store, progress_interval=5.0)
    async with at_work(world):
        await trio.sleep(60)
        assert world.announced == []
        world.add("a", 0)
        later = world.add("b", 100_000)
        await trio.sleep(60)
        assert world.announced == [Progress(3, later)]
        await trio.sleep(100)
    assert world.announced == [Progress(3, later), Progress(3, NEVER_MS)]


async def test_progress_counts_what_is_under_way_and_not_what_another_thread_is_writing(
    store: QueueStore,
) -> None:
    world = World(store, progress_interval=5.0)
    async with at_work(world):
        world.add("first", 0)
        await trio.sleep(1)
        gate = world.target.gates["slow"] = trio.Event()
        slow = world.add("slow", 0, "U")
        await trio.sleep(5)
        assert world.announced == [Progress(3, slow)]
        gate.set()
        await trio.sleep(0)
        # In the store already, and not told of yet: as between a thread that writes and its task.
        store.write([(9, Waiting("new", 1, "T", b"x", "", "", 0, {}))], 10)
        await world.delivery.tell_progress()
    assert world.announced[-1].offset == 3


async def test_progress_that_could_not_be_written_down_is_written_later(store: QueueStore) -> None:
    world = World(store)
    failures = [NoQueueError("away")]

    async def announce(progress: Progress) -> None:
        if failures:
            raise failures.pop()
        world.announced.append(progress)

    world.delivery._announce = announce
    async with at_work(world):
        world.add("a", 0)
        await trio.sleep(11)
    assert world.announced == [Progress(2, NEVER_MS)]
