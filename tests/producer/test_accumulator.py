from __future__ import annotations

import math
from collections import defaultdict

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer.accumulator import Accumulator, ProducerBatch

LINGER = 10.0
QUEUES = [MessageQueue("T", "broker-a", number) for number in range(2)]
FIRST_QUEUE = QUEUES[0]


class World:
    """An accumulator, a clock that the test sets, and the sent batches."""

    def __init__(self, *, max_size: int = 100, max_messages: int = 5) -> None:
        self.time = 0.0
        self.sent: list[ProducerBatch] = []
        self.times_woken = 0
        self.accumulator = Accumulator(self, linger=LINGER, max_size=max_size, max_messages=max_messages)

    def now(self) -> float:
        return self.time

    def start(self, batch: ProducerBatch) -> None:
        self.sent.append(batch)

    def linger(self) -> None:
        self.times_woken += 1

    def add(
        self,
        body: str,
        *,
        topic: str = "T",
        queue: MessageQueue | None = None,
        size: int = 10,
        alone: bool = False,
        wait: bool = True,
    ) -> None:
        message = Message(topic, body.encode(), wait_store_ok=wait)
        self.accumulator.add(message, size, queue, alone=alone)

    def finished(self, number: int = 0) -> None:
        """Finish the batch with this index among the sent ones."""
        self.accumulator.finished(self.sent[number], self.time)

    @property
    def bodies(self) -> list[str]:
        """The bodies of each batch that was sent."""
        return ["".join(message.body.decode() for message in batch.messages) for batch in self.sent]


def test_a_batch_is_sent_when_its_first_message_has_lingered() -> None:
    world = World()
    assert world.accumulator.send_due(0.0) is None
    world.add("a")
    assert world.times_woken == 1
    assert world.accumulator.send_due(0.0) == LINGER
    world.time = 9.0
    world.add("b")
    assert world.accumulator.send_due(9.9) == LINGER
    assert world.bodies == []
    assert world.accumulator.send_due(10.0) is None
    assert world.bodies == ["ab"]
    world.add("c")
    assert world.times_woken == 2
    assert world.accumulator.send_due(10.0) == 9.0 + LINGER


@pytest.mark.parametrize(("max_size", "max_messages"), [(30, 5), (100, 3)])
def test_a_full_batch_is_sent_at_once(max_size: int, max_messages: int) -> None:
    world = World(max_size=max_size, max_messages=max_messages)
    for body in "abcd":
        world.add(body)
    assert world.bodies == ["abc"]
    assert world.accumulator.in_flight == 1


def test_a_message_that_does_not_fit_starts_the_next_batch() -> None:
    world = World(max_size=30)
    world.add("a", size=20)
    world.add("b", size=11)
    assert world.bodies == ["a"]
    assert [batch.size for batch in world.accumulator.batches] == [20, 11]


def test_a_batch_has_one_topic_and_one_wait_store_ok() -> None:
    world = World()
    world.add("a")
    world.add("b", topic="Other")
    world.add("c", wait=False)
    world.add("d", queue=FIRST_QUEUE)
    world.add("e")
    world.accumulator.send_all()
    assert world.bodies == ["ae", "b", "c", "d"]


def test_batches_without_a_queue_are_sent_concurrently() -> None:
    world = World(max_messages=1)
    for body in "abc":
        world.add(body)
    assert world.bodies == ["a", "b", "c"]
    assert world.accumulator.in_flight == 3


def test_batches_for_one_queue_are_sent_one_after_the_other() -> None:
    world = World(max_messages=2)
    for body in "abcdefg":
        world.add(body, queue=FIRST_QUEUE)
    world.add("other", queue=QUEUES[1], alone=True)
    assert world.bodies == ["ab", "other"]
    world.finished(0)
    assert world.bodies[2:] == ["cd"]
    world.finished(2)
    assert world.bodies[3:] == ["ef"]
    world.finished(3)
    assert world.bodies[4:] == []
    world.accumulator.send_due(LINGER)
    assert world.bodies[4:] == ["g"]


def test_a_due_batch_grows_while_its_queue_has_one_in_flight() -> None:
    world = World(max_messages=4)
    world.add("a", queue=FIRST_QUEUE)
    world.accumulator.send_due(LINGER)
    world.add("b", queue=FIRST_QUEUE)
    assert world.accumulator.send_due(LINGER) is None
    times_woken = world.times_woken
    world.add("x", topic="Other")
    assert world.times_woken == times_woken + 1
    world.accumulator.send_due(LINGER)
    world.time = LINGER + 1
    world.add("c", queue=FIRST_QUEUE)
    assert world.bodies == ["a", "x"]
    world.finished(0)
    assert world.bodies == ["a", "x", "bc"]


def test_a_message_that_is_sent_alone_keeps_its_order() -> None:
    world = World()
    world.add("a", queue=FIRST_QUEUE)
    world.add("b", queue=FIRST_QUEUE, alone=True)
    world.add("c", queue=FIRST_QUEUE)
    assert world.bodies == ["a"]
    world.finished(0)
    assert world.bodies == ["a", "b"]
    world.finished(1)
    world.accumulator.send_all()
    assert world.bodies == ["a", "b", "c"]


def test_a_message_without_a_queue_sent_alone_does_not_send_open_batches() -> None:
    world = World()
    world.add("a")
    world.add("b", alone=True)
    world.add("c")
    assert world.bodies == ["b"]
    world.accumulator.send_all()
    assert world.bodies == ["b", "ac"]


def test_messages_of_a_queue_with_different_wait_store_ok_keep_their_order() -> None:
    world = World()
    for number, body in enumerate("abcd"):
        world.add(body, queue=FIRST_QUEUE, wait=number % 2 == 0)
    world.accumulator.send_all()
    for number in range(4):
        world.finished(number)
    assert world.bodies == ["a", "b", "c", "d"]
    assert not world.accumulator.batches


def test_abandon_returns_and_removes_all_batches() -> None:
    world = World(max_messages=1)
    world.add("a", queue=FIRST_QUEUE)
    world.add("b", queue=FIRST_QUEUE)
    left = world.accumulator.abandon()
    assert [batch.is_in_flight for batch in left] == [True, False]
    assert not world.accumulator.batches
    assert world.accumulator.in_flight == 0


class AccumulatorModel(RuleBasedStateMachine):
    """Adds messages, advances the clock and finishes batches in any order. Checks the invariants."""

    MAX_SIZE = 60
    MAX_MESSAGES = 4

    def __init__(self) -> None:
        super().__init__()
        self.world = World(max_size=self.MAX_SIZE, max_messages=self.MAX_MESSAGES)
        self.accepted: dict[object, list[str]] = defaultdict(list)
        self.alone: set[str] = set()
        self.arrived: list[ProducerBatch] = []
        self.count = 0

    @rule(
        to=st.sampled_from([*QUEUES, "T", "Other"]),
        size=st.integers(1, 80),
        alone=st.booleans(),
        wait=st.booleans(),
    )
    def add(self, to: MessageQueue | str, size: int, alone: bool, wait: bool) -> None:
        self.count += 1
        body = str(self.count)
        if alone:
            self.alone.add(body)
        if isinstance(to, MessageQueue):
            self.world.add(body, queue=to, size=size, alone=alone, wait=wait)
        else:
            self.world.add(body, topic=to, size=size, alone=alone, wait=wait)
        self.accepted[to].append(body)

    @rule(seconds=st.floats(0, 1.5 * LINGER))
    def time_passes(self, seconds: float) -> None:
        self.world.time += seconds
        deadline = self.world.accumulator.send_due(self.world.time)
        waiting = [batch for batch in self.world.accumulator.batches if not batch.is_in_flight]
        busy = {batch.queue for batch in self.in_flight}
        assert all(batch.deadline > self.world.time or batch.queue in busy for batch in waiting)
        later = [batch.deadline for batch in waiting if batch.deadline > self.world.time]
        assert deadline is None or deadline in later
        in_time = [batch.deadline for batch in waiting if batch.queue not in busy]
        assert (math.inf if deadline is None else deadline) <= min(in_time, default=math.inf)

    @rule()
    def everything_goes(self) -> None:
        self.world.accumulator.send_all()
        busy = {batch.queue for batch in self.in_flight}
        assert all(batch.is_in_flight or batch.queue in busy for batch in self.world.accumulator.batches)

    @precondition(lambda self: bool(self.in_flight))
    @rule(draw=st.data())
    def one_arrives(self, draw: st.DataObject) -> None:
        batch = draw.draw(st.sampled_from(self.in_flight))
        self.arrived.append(batch)
        self.world.accumulator.finished(batch, self.world.time)

    @property
    def in_flight(self) -> list[ProducerBatch]:
        return [batch for batch in self.world.sent if batch not in self.arrived]

    @invariant()
    def batches_are_as_they_should_be(self) -> None:
        assert self.world.accumulator.in_flight == len(self.in_flight)
        for batch in self.world.sent:
            bodies = [message.body.decode() for message in batch.messages]
            assert len(bodies) <= self.MAX_MESSAGES
            assert batch.size <= self.MAX_SIZE or len(bodies) == 1
            assert len({(message.topic, message.wait_store_ok) for message in batch.messages}) == 1
            assert len(bodies) == 1 or self.alone.isdisjoint(bodies)

    @invariant()
    def each_queue_has_one_batch_in_flight_and_is_in_order(self) -> None:
        for queue in QUEUES:
            assert sum(batch.queue == queue for batch in self.in_flight) <= 1
            sent = self.bodies_of([batch for batch in self.world.sent if batch.queue == queue])
            assert sent == self.accepted[queue][: len(sent)]

    @invariant()
    def nothing_is_lost_or_sent_twice(self) -> None:
        known = [*self.arrived, *self.world.accumulator.batches]
        accepted = sorted(body for bodies in self.accepted.values() for body in bodies)
        assert sorted(self.bodies_of(known)) == accepted

    @staticmethod
    def bodies_of(batches: list[ProducerBatch]) -> list[str]:
        return [message.body.decode() for batch in batches for message in batch.messages]

    def teardown(self) -> None:
        self.world.accumulator.send_all()
        while self.in_flight:
            batch = self.in_flight[0]
            self.arrived.append(batch)
            self.world.accumulator.finished(batch, self.world.time)
        assert not self.world.accumulator.batches
        self.nothing_is_lost_or_sent_twice()


TestAccumulatorModel = AccumulatorModel.TestCase
