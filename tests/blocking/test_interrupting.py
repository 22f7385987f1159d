"""Interrupts the threads API at each wait, and checks that nothing leaks and no message is lost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rocketmq_py import Message, ReceivedMessage, TransactionState
from rocketmq_py.blocking import (
    Admin,
    Client,
    LitePullConsumer,
    PopConsumer,
    Producer,
    PushConsumer,
    Reader,
)
from rocketmq_py.handoff.calls import ThreadCall
from rocketmq_py.handoff.trio_thread import trio_thread
from tests.leftovers import Leftovers

pytestmark = pytest.mark.long

BODIES = {b"%d" % number for number in range(60)}
FIRST = "earliest"


class Interruptions:
    """Interrupts one wait, before it begins or right after it has ended, as Ctrl-C may."""

    def __init__(self) -> None:
        self.left = 0
        self.is_late = False
        self._wait = ThreadCall.wait

    def wait(self, call: ThreadCall[object], *timeouts: float) -> bool:
        if timeouts[:1] == (0,):
            return self._wait(call, *timeouts)
        self.left -= 1
        if self.left or not self.is_late:
            if not self.left:
                raise KeyboardInterrupt
            return self._wait(call, *timeouts)
        self._wait(call, *timeouts)
        raise KeyboardInterrupt


@pytest.fixture
def interruptions(monkeypatch: pytest.MonkeyPatch) -> Interruptions:
    interruptions = Interruptions()
    monkeypatch.setattr(ThreadCall, "wait", lambda *arguments: interruptions.wait(*arguments))
    return interruptions


def interrupt_each_wait(
    interruptions: Interruptions, operation: Callable[[], object], check: Callable[[], object]
) -> int:
    """Run an operation repeatedly, interrupted at its first, its second … wait. Return their number."""
    for step in itertools.count(1):
        for interruptions.is_late in (False, True):
            interruptions.left = step
            is_interrupted = False
            try:
                operation()
            except KeyboardInterrupt:
                is_interrupted = True
            interruptions.left = 0
            check()
            if not is_interrupted:
                return step
    raise AssertionError("not reached")


@contextmanager
def nothing_left() -> Iterator[Callable[[], None]]:
    leftovers = Leftovers()

    def check() -> None:
        for _ in leftovers.until_none():
            time.sleep(0.001)
        assert not trio_thread().open

    yield check


def fill(address: str) -> None:
    with Producer(address, group="sender") as producer:
        for body in BODIES:
            producer.send(Message("T", body))


def test_opening_sending_and_closing(address: str, interruptions: Interruptions) -> None:
    numbers = itertools.count()
    acknowledged: list[bytes] = []

    def send(way: Callable[[Message], object]) -> None:
        message = Message("T", b"%d" % next(numbers))
        way(message)
        acknowledged.append(message.body)

    def use() -> None:
        with Client(address) as client, client.producer("g") as producer:
            send(producer.send)
            producer.send_oneway(Message("T", b"oneway"))
            future = producer.submit(Message("T", b"soon"))
            producer.flush()
            future.result()
            producer.queues("T")
            with Producer(client, group="b", linger=0.005) as batching:
                send(batching.send)
                batching.send_all([Message("T", b"together")])
            transactions = client.transaction_producer("t", lambda _: TransactionState.UNKNOWN)
            with transactions, transactions.transaction(Message("T", b"in a transaction")):
                pass

    fill(address)
    with nothing_left() as check:
        assert interrupt_each_wait(interruptions, use, check) > 10
    with (
        Reader(address) as reader,
        reader.open("T", start="earliest", stop_at_end=True) as messages,
    ):
        stored = [message.body for message in messages]
    assert len(acknowledged) > 10
    assert set(acknowledged) <= set(stored)


def test_reading_and_administering(address: str, interruptions: Interruptions) -> None:
    fill(address)

    def use() -> None:
        with Reader(address) as reader:
            with reader.open("T", start="earliest", stop_at_end=True) as messages:
                assert {message.body for message in messages} == BODIES
            (queue, *_) = reader.offsets("T")
            assert all(message.queue == queue for message in reader.range(queue))
        with Admin(address) as admin:
            admin.topics.describe("T")

    with nothing_left() as check:
        assert interrupt_each_wait(interruptions, use, check) > 5


def test_messages_of_interrupted_polls_are_not_lost(address: str, interruptions: Interruptions) -> None:
    fill(address)
    seen: list[bytes] = []
    with LitePullConsumer(address, group="g", consume_from=FIRST) as consumer:
        consumer.subscribe("T")

        def poll() -> None:
            seen.extend(message.body for message in consumer.poll(max_messages=2, wait=60))
            seen.append(next(consumer).body)

        interrupt_each_wait(interruptions, poll, lambda: None)
        while len(seen) < len(BODIES):
            messages = consumer.poll(wait=60)
            assert messages
            seen.extend(message.body for message in messages)
    assert sorted(seen) == sorted(BODIES)


def test_messages_of_interrupted_pops_are_not_lost(address: str, interruptions: Interruptions) -> None:
    fill(address)
    seen: list[bytes] = []
    with PopConsumer(address, group="g", consume_from=FIRST) as consumer:
        consumer.subscribe("T")

        def receive() -> None:
            messages = consumer.receive(max_messages=2, wait=60)
            seen.extend(message.body for message in messages)
            consumer.ack(*messages)

        interrupt_each_wait(interruptions, receive, lambda: None)
        while len(seen) < len(BODIES):
            receive()
    assert sorted(seen) == sorted(BODIES)


def test_a_push_consumer_interrupted_anywhere_loses_nothing(
    address: str, interruptions: Interruptions
) -> None:
    fill(address)
    handled: set[bytes] = set()
    groups = itertools.count()
    group = ""

    def consume() -> None:
        with PushConsumer(address, group=group, consume_from=FIRST, concurrency=3) as consumer:
            consumer.subscribe("T")

            def handle(message: ReceivedMessage) -> None:
                handled.add(message.body)
                if handled == BODIES:
                    consumer.stop()

            consumer.run(handle)

    def interrupted() -> None:
        nonlocal group
        group = f"group-{next(groups)}"
        handled.clear()
        consume()

    def check() -> None:
        if handled != BODIES:
            consume()
        assert handled == BODIES
        nothing_more()

    with nothing_left() as nothing_more:
        assert interrupt_each_wait(interruptions, interrupted, check) >= 3
