"""The store of a relay: what waits comes out in order, and is there after a crash."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.relay.entries import Cancellation, Entry, Progress, Waiting
from rocketmq_py.relay.store import NEVER_MS, QueueStore, Store, Stored

QUEUE = MessageQueue("Buffer", "broker-a", 0)
OTHER = MessageQueue("Buffer", "broker-a", 1)


def waiting(due_ms: int, message_id: str = "id", topic: str = "T") -> Waiting:
    return Waiting(message_id, due_ms, topic, b"body", "tag", "key", 7, {"a": "1"})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as store:
        yield store


def messages(found: list[Stored]) -> list[Waiting]:
    return [stored.message for stored in found]


def test_what_is_due_comes_in_the_order_of_its_time_then_of_its_offset(store: Store) -> None:
    queue = store.queue(QUEUE)
    of_offset = {0: waiting(300, "a"), 1: waiting(100, "b"), 2: waiting(100, "c"), 3: waiting(200, "d")}
    assert queue.write(of_offset.items(), 4) == 100
    assert messages(queue.due(b"", 250, 10)) == [of_offset[1], of_offset[2], of_offset[3]]
    first = queue.due(b"", 250, 1)
    assert messages(queue.due(first[0].key, 250, 10)) == [of_offset[2], of_offset[3]]
    assert queue.next_due_ms() == 100
    queue.remove(queue.due(b"", 250, 10))
    assert queue.next_due_ms() == 300
    queue.remove(queue.due(b"", 300, 10))
    assert queue.next_due_ms() == NEVER_MS
    assert list(queue.waiting()) == []


def test_queues_of_one_store_do_not_see_each_other(store: Store) -> None:
    one, other = store.queue(QUEUE), store.queue(OTHER)
    one.write([(0, waiting(1))], 1)
    assert (one.next_offset, other.next_offset) == (1, None)
    assert other.due(b"", 10, 10) == []
    other.write([(0, waiting(2)), (1, Cancellation("id"))], 2)
    assert [message.due_ms for message in one.waiting()] == [1]
    assert store.queues() == [QUEUE, OTHER]


def test_a_cancelled_message_is_gone_wherever_it_is(store: Store) -> None:
    queue = store.queue(QUEUE)
    queue.write([(0, waiting(1, "a")), (1, waiting(2, "b")), (2, waiting(3, "c"))], 3)
    queue.hold(queue.due(b"", 1, 10))
    queue.write([(3, Cancellation("a")), (4, Cancellation("c")), (5, Cancellation("unknown"))], 6)
    assert list(queue.waiting()) == [waiting(2, "b")]


def test_progress_of_another_owner_removes_what_that_has_delivered(store: Store) -> None:
    queue = store.queue(QUEUE)
    queue.write([(0, waiting(10, "a")), (1, waiting(20, "b")), (5, waiting(10, "late"))], 6)
    queue.hold(queue.due(b"", 10, 1))
    queue.write([(6, Progress(offset=5, due_ms=20))], 7)
    assert sorted(message.message_id for message in queue.waiting()) == ["b", "late"]


def test_the_earliest_still_waits_or_was_put_aside(store: Store) -> None:
    queue = store.queue(QUEUE)
    assert queue.earliest_ms() == NEVER_MS
    queue.write([(0, waiting(10, "a", "U")), (1, waiting(20, "b")), (2, waiting(30, "c"))], 3)
    assert queue.earliest_ms() == 10
    queue.hold(queue.due(b"", 10, 1))
    queue.remove(queue.due(b"", 20, 1))
    assert queue.earliest_ms() == 10
    assert queue.held_topics() == ["U"]
    queue.remove(queue.held("U", b"", 10))
    assert queue.earliest_ms() == 30


def test_topics_put_aside_are_told_apart_though_one_begins_like_the_other(store: Store) -> None:
    queue = store.queue(QUEUE)
    names = ["T", "T-1", "T1", "T|"]
    queue.write([(i, waiting(i, str(i), name)) for i, name in enumerate(names)], 4)
    queue.hold(queue.due(b"", 10, 10))
    assert sorted(queue.held_topics()) == sorted(names)
    for i, name in enumerate(names):
        assert [message.message_id for message in messages(queue.held(name, b"", 10))] == [str(i)]


def test_one_relay_at_a_time_has_a_store_and_anybody_may_look(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.queue(QUEUE).write([(0, waiting(5))], 1)
        with pytest.raises(ConfigurationError, match="is in use by another relay"):
            Store(tmp_path)
        with Store(tmp_path, read_only=True) as look:
            assert look.queues() == [QUEUE]
            assert list(look.queue(QUEUE).waiting()) == [waiting(5)]
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        Store(tmp_path / "missing", read_only=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be made"):
        Store(tmp_path / "file" / "store")


def test_one_that_is_cancelled_while_it_is_under_way_is_not_put_aside(store: Store) -> None:
    queue = store.queue(QUEUE)
    queue.write([(0, waiting(1)), (1, waiting(1, "other"))], 2)
    due = queue.due(b"", 1, 10)
    queue.write([(2, Cancellation("id"))], 3)
    queue.hold(due)
    assert [message.message_id for message in queue.waiting()] == ["other"]


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from tests.relay.test_store import QUEUE, Store, waiting\n"
        "queue = Store(sys.argv[1]).queue(QUEUE)\n"
        "queue.write([(0, waiting(5))], 1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    with Store(tmp_path) as store:
        queue = store.queue(QUEUE)
        assert queue.next_offset == 1
        assert list(queue.waiting()) == [waiting(5)]


class StoreBesideAModel(RuleBasedStateMachine):
    """Whatever is done to it, a store has what a dict would have."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.store = Store(self.folder)
        self.offset = 0
        self.model: dict[int, Waiting] = {}
        self.aside: set[int] = set()

    @property
    def queue(self) -> QueueStore:
        return self.store.queue(QUEUE)

    def write(self, entry: Entry) -> None:
        self.queue.write([(self.offset, entry)], self.offset + 1)
        self.offset += 1

    @rule(due_ms=st.integers(0, 5), topic=st.sampled_from("TU"))
    def add(self, due_ms: int, topic: str) -> None:
        message = waiting(due_ms, str(self.offset), topic)
        self.model[self.offset] = message
        self.write(message)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.offset))
        self.model.pop(offset, None)
        self.write(Cancellation(str(offset)))

    @rule(due_ms=st.integers(0, 6), data=st.data())
    def pass_over(self, due_ms: int, data: st.DataObject) -> None:
        before = data.draw(st.integers(0, self.offset))
        self.model = {
            offset: message
            for offset, message in self.model.items()
            if offset >= before or message.due_ms >= due_ms
        }
        self.write(Progress(before, due_ms))

    @rule(now_ms=st.integers(0, 5), limit=st.integers(1, 3), fails=st.booleans())
    def deliver(self, now_ms: int, limit: int, fails: bool) -> None:
        found = self.queue.due(b"", now_ms, limit)
        ready = sorted(
            (message.due_ms, offset)
            for offset, message in self.model.items()
            if message.due_ms <= now_ms and offset not in self.aside
        )
        assert [stored.message for stored in found] == [self.model[offset] for _, offset in ready[:limit]]
        for _, offset in ready[:limit]:
            if fails:
                self.aside.add(offset)
            else:
                del self.model[offset]
        (self.queue.hold if fails else self.queue.remove)(found)

    @precondition(lambda self: self.aside)
    @rule(topic=st.sampled_from("TU"))
    def deliver_what_was_put_aside(self, topic: str) -> None:
        held = sorted(
            (message.due_ms, offset)
            for offset, message in self.model.items()
            if offset in self.aside and message.topic == topic
        )
        found = self.queue.held(topic, b"", 100)
        assert [stored.message for stored in found] == [self.model[offset] for _, offset in held]
        self.queue.remove(found)
        for _, offset in held:
            del self.model[offset]

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = Store(self.folder)

    @invariant()
    def the_same_is_there(self) -> None:
        self.aside &= set(self.model)
        queue = self.queue
        kept = sorted(queue.waiting(), key=lambda message: int(message.message_id))
        assert kept == [self.model[offset] for offset in sorted(self.model)]
        earliest = min((message.due_ms for message in self.model.values()), default=NEVER_MS)
        assert (queue.next_offset or 0, queue.earliest_ms()) == (self.offset, earliest)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)


TestStoreBesideAModel = StoreBesideAModel.TestCase
TestStoreBesideAModel.settings = settings(max_examples=30, stateful_step_count=20)
