"""The store of a relay: the order of messages, cancellations, progress, and crashes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

pytest.importorskip("rocksdict", reason="the extra relay is not installed")

from rocketmq_py.errors import ConfigurationError, StoreError
from rocketmq_py.message import MessageQueue
from rocketmq_py.relay.buffer_entries import BufferEntry, Cancellation, DelayedMessage, Progress
from rocketmq_py.relay.store import NEVER_MS, QueueStore, Store, StoreRecord

QUEUE = MessageQueue("Buffer", "broker-a", 0)
OTHER = MessageQueue("Buffer", "broker-a", 1)


def waiting(due_ms: int, message_id: str = "id", topic: str = "T") -> DelayedMessage:
    return DelayedMessage(message_id, due_ms, topic, b"body", "tag", "key", 7, {"a": "1"})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as store:
        yield store


def messages(records: list[StoreRecord]) -> list[DelayedMessage]:
    return [record.message for record in records]


def test_due_messages_are_sorted_by_due_time_and_offset(store: Store) -> None:
    queue = store.open_queue(QUEUE)
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
    assert list(queue.messages()) == []


def test_queues_of_a_store_are_independent(store: Store) -> None:
    one, other = store.open_queue(QUEUE), store.open_queue(OTHER)
    one.write([(0, waiting(1))], 1)
    assert (one.next_offset, other.next_offset) == (1, None)
    assert other.due(b"", 10, 10) == []
    other.write([(0, waiting(2)), (1, Cancellation("id"))], 2)
    assert [message.due_ms for message in one.messages()] == [1]
    assert store.queues() == [QUEUE, OTHER]


def test_cancelling_removes_waiting_and_deferred_messages(store: Store) -> None:
    queue = store.open_queue(QUEUE)
    queue.write([(0, waiting(1, "a")), (1, waiting(2, "b")), (2, waiting(3, "c"))], 3)
    queue.defer(queue.due(b"", 1, 10))
    queue.write([(3, Cancellation("a")), (4, Cancellation("c")), (5, Cancellation("unknown"))], 6)
    assert list(queue.messages()) == [waiting(2, "b")]


def test_a_producers_retry_that_is_stored_twice_is_one_message(store: Store) -> None:
    queue = store.open_queue(QUEUE)
    queue.write([(0, waiting(1, "a")), (1, waiting(1, "a")), (2, waiting(2, "b"))], 3)
    queue.write([(3, waiting(1, "a")), (4, waiting(2, "b"))], 5)
    assert messages(queue.due(b"", 2, 10)) == [waiting(1, "a"), waiting(2, "b")]
    queue.defer(queue.due(b"", 1, 1))
    queue.write([(5, waiting(1, "a"))], 6)
    assert list(queue.messages()) == [waiting(1, "a"), waiting(2, "b")]
    queue.write([(6, Cancellation("a")), (7, Cancellation("b"))], 8)
    assert list(queue.messages()) == []


def test_different_messages_with_the_same_id_are_all_kept(store: Store) -> None:
    """A Java producer that changes a Message object and sends it again keeps its id."""
    queue = store.open_queue(QUEUE)
    queue.write([(0, waiting(1)), (1, waiting(2))], 2)
    queue.write([(2, waiting(3))], 3)
    assert list(queue.messages()) == [waiting(1), waiting(2), waiting(3)]


def test_cancelling_removes_all_messages_that_share_the_id(tmp_path: Path) -> None:
    """Those in one write, in several, deferred ones, and after a restart. Messages of other ids stay."""
    for restart in (False, True):
        with Store(tmp_path / str(restart)) as store:
            queue = store.open_queue(QUEUE)
            queue.write([(0, waiting(1)), (1, waiting(2)), (2, waiting(9, "id2"))], 3)
            queue.write([(3, waiting(3))], 4)
            queue.defer(queue.due(b"", 2, 10))
            queue.remove(queue.deferred("T", b"", 1))
            if not restart:
                queue.write([(4, Cancellation("id"))], 5)
                assert list(queue.messages()) == [waiting(9, "id2")]
        with Store(tmp_path / str(restart)) as store:
            queue = store.open_queue(QUEUE)
            queue.write([(4, Cancellation("id"))], 5)
            assert list(queue.messages()) == [waiting(9, "id2")]


@pytest.mark.parametrize("delivered", [0, 1])
def test_a_message_can_be_cancelled_after_another_one_with_its_id_was_delivered(
    store: Store, delivered: int
) -> None:
    queue = store.open_queue(QUEUE)
    queue.write([(0, waiting(1)), (1, waiting(2))], 2)
    queue.remove(queue.due(b"", 2, 2)[delivered : delivered + 1])
    queue.write([(2, Cancellation("id"))], 3)
    assert list(queue.messages()) == []


def test_a_producers_retry_of_a_message_that_shares_its_id_is_one_message(store: Store) -> None:
    queue = store.open_queue(QUEUE)
    queue.write([(0, waiting(1)), (1, waiting(2)), (2, waiting(1)), (3, waiting(2))], 4)
    queue.write([(4, waiting(1)), (5, waiting(2))], 6)
    assert list(queue.messages()) == [waiting(1), waiting(2)]


def test_a_store_leaves_no_records_of_messages_that_were_delivered(store: Store) -> None:
    queue = store.open_queue(QUEUE)
    queue.write([(0, waiting(1)), (1, waiting(2)), (2, waiting(3, "other"))], 3)
    queue.write([(3, waiting(4)), (4, waiting(5)), (5, waiting(6, "other"))], 6)
    queue.defer(queue.due(b"", 1, 1))
    queue.remove(queue.deferred("T", b"", 1))
    queue.remove(queue.due(b"", 4, 3))
    queue.write([(6, Cancellation("id")), (7, Progress(6, 7))], 8)
    assert [key[:1] for key, _ in store._database.scan(b"")] == [b"q"]


def test_entries_that_are_read_again_are_ignored_while_the_store_has_them(store: Store) -> None:
    queue = store.open_queue(QUEUE)
    entries = [(0, waiting(1, "a")), (1, waiting(2, "b"))]
    queue.write(entries, 2)
    queue.defer(queue.due(b"", 1, 1))
    queue.write(entries, 2)
    assert list(queue.messages()) == [waiting(1, "a"), waiting(2, "b")]


def test_progress_removes_the_messages_that_another_owner_has_delivered(store: Store) -> None:
    queue = store.open_queue(QUEUE)
    queue.write([(0, waiting(10, "a")), (1, waiting(20, "b")), (5, waiting(10, "later"))], 6)
    queue.defer(queue.due(b"", 10, 1))
    queue.write([(6, Progress(offset=5, due_ms=20))], 7)
    assert sorted(message.message_id for message in queue.messages()) == ["b", "later"]


def test_the_earliest_time_includes_deferred_messages(store: Store) -> None:
    queue = store.open_queue(QUEUE)
    assert queue.earliest_due_ms() == NEVER_MS
    queue.write([(0, waiting(10, "a", "U")), (1, waiting(20, "b")), (2, waiting(30, "c"))], 3)
    assert queue.earliest_due_ms() == 10
    queue.defer(queue.due(b"", 10, 1))
    queue.remove(queue.due(b"", 20, 1))
    assert queue.earliest_due_ms() == 10
    assert queue.deferred_topics() == ["U"]
    queue.remove(queue.deferred("U", b"", 10))
    assert queue.earliest_due_ms() == 30


def test_deferred_topics_may_be_prefixes_of_each_other(store: Store) -> None:
    queue = store.open_queue(QUEUE)
    names = ["T", "T-1", "T1", "T|"]
    queue.write([(i, waiting(i, str(i), name)) for i, name in enumerate(names)], 4)
    queue.defer(queue.due(b"", 10, 10))
    assert sorted(queue.deferred_topics()) == sorted(names)
    for i, name in enumerate(names):
        assert [message.message_id for message in messages(queue.deferred(name, b"", 10))] == [str(i)]


def test_a_store_in_use_can_only_be_opened_for_reading(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.open_queue(QUEUE).write([(0, waiting(5))], 1)
        with pytest.raises(ConfigurationError, match="is in use by another relay"):
            Store(tmp_path)
        with Store(tmp_path, read_only=True) as copy:
            assert copy.queues() == [QUEUE]
            assert list(copy.open_queue(QUEUE).messages()) == [waiting(5)]
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        Store(tmp_path / "missing", read_only=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be created"):
        Store(tmp_path / "file" / "store")


def test_a_message_that_is_cancelled_in_flight_is_not_deferred(store: Store) -> None:
    queue = store.open_queue(QUEUE)
    queue.write([(0, waiting(1)), (1, waiting(1, "other"))], 2)
    due = queue.due(b"", 1, 10)
    queue.write([(2, Cancellation("id"))], 3)
    queue.defer(due)
    assert [message.message_id for message in queue.messages()] == ["other"]


def test_written_messages_survive_a_kill(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from tests.relay.test_store import QUEUE, Store, waiting\n"
        "queue = Store(sys.argv[1]).open_queue(QUEUE)\n"
        "queue.write([(0, waiting(5))], 1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    with Store(tmp_path) as store:
        queue = store.open_queue(QUEUE)
        assert queue.next_offset == 1
        assert list(queue.messages()) == [waiting(5)]


def break_data_files(folder: Path) -> None:
    """Overwrite a part of each data file of RocksDB, after the first messages."""
    for file in folder.glob("*.sst"):
        with file.open("r+b") as opened:
            opened.seek(file.stat().st_size * 6 // 10)
            opened.write(b"\xff" * 2000)


def test_reading_a_broken_store_raises_instead_of_returning_fewer_messages(tmp_path: Path) -> None:
    count = 20_000
    with Store(tmp_path) as store:
        queue = store.open_queue(QUEUE)
        queue.write([(i, waiting(i, str(i))) for i in range(count)], count)
        store._database._records.flush()
    break_data_files(tmp_path)
    with Store(tmp_path) as store:
        queue = store.open_queue(QUEUE)
        for read in (
            lambda: list(queue.messages()),
            lambda: queue.due(b"", count, 2 * count),
            lambda: queue.write([(count, Progress(count, count))], count + 1),
        ):
            with pytest.raises(StoreError, match=r"cannot be used: .*checksum"):
                read()
        assert queue.next_offset == count


def test_each_method_of_a_closed_store_raises_store_error(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        queue = store.open_queue(QUEUE)
        queue.write([(0, waiting(1))], 1)
        records = queue.due(b"", 1, 1)
    for call in (
        lambda: store.open_queue(QUEUE),
        store.queues,
        lambda: queue.write([(1, Cancellation("id"))], 2),
        lambda: queue.write([(1, waiting(1))], 2),
        lambda: queue.due(b"", 1, 1),
        queue.next_due_ms,
        queue.earliest_due_ms,
        lambda: list(queue.messages()),
        lambda: queue.remove(records),
        lambda: queue.defer(records),
        queue.deferred_topics,
        lambda: queue.deferred("T", b"", 1),
    ):
        with pytest.raises(StoreError, match="the store cannot be used: "):
            call()


class StoreStateMachine(RuleBasedStateMachine):
    """Compares a store with a dict, after each of a random sequence of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.store = Store(self.folder)
        self.offset = 0
        self.model: dict[int, DelayedMessage] = {}
        self.deferred_offsets: set[int] = set()

    @property
    def queue(self) -> QueueStore:
        return self.store.open_queue(QUEUE)

    def write(self, entry: BufferEntry) -> None:
        self.queue.write([(self.offset, entry)], self.offset + 1)
        self.offset += 1

    @rule(due_ms=st.integers(0, 5), topic=st.sampled_from("TU"))
    def add(self, due_ms: int, topic: str) -> None:
        message = waiting(due_ms, str(self.offset), topic)
        self.model[self.offset] = message
        self.write(message)

    @precondition(lambda self: self.model)
    @rule(due_ms=st.integers(0, 5), topic=st.sampled_from("TU"), data=st.data())
    def add_with_the_id_of_another(self, due_ms: int, topic: str, data: st.DataObject) -> None:
        other = self.model[data.draw(st.sampled_from(sorted(self.model)))]
        message = waiting(due_ms, other.message_id, topic)
        if message not in self.model.values():
            self.model[self.offset] = message
        self.write(message)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        self.write(self.model[data.draw(st.sampled_from(sorted(self.model)))])

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        message_id = str(data.draw(st.integers(0, self.offset)))
        self.model = {
            offset: message for offset, message in self.model.items() if message.message_id != message_id
        }
        self.write(Cancellation(message_id))

    @rule(due_ms=st.integers(0, 6), data=st.data())
    def apply_progress(self, due_ms: int, data: st.DataObject) -> None:
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
            if message.due_ms <= now_ms and offset not in self.deferred_offsets
        )
        assert [record.message for record in found] == [self.model[offset] for _, offset in ready[:limit]]
        for _, offset in ready[:limit]:
            if fails:
                self.deferred_offsets.add(offset)
            else:
                del self.model[offset]
        (self.queue.defer if fails else self.queue.remove)(found)

    @precondition(lambda self: self.deferred_offsets)
    @rule(topic=st.sampled_from("TU"))
    def deliver_deferred(self, topic: str) -> None:
        expected = sorted(
            (message.due_ms, offset)
            for offset, message in self.model.items()
            if offset in self.deferred_offsets and message.topic == topic
        )
        found = self.queue.deferred(topic, b"", 100)
        assert [record.message for record in found] == [self.model[offset] for _, offset in expected]
        self.queue.remove(found)
        for _, offset in expected:
            del self.model[offset]

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store(self.folder)

    @invariant()
    def check_contents(self) -> None:
        self.deferred_offsets &= set(self.model)
        queue = self.queue
        assert sorted(queue.messages(), key=attrs.astuple) == sorted(self.model.values(), key=attrs.astuple)
        earliest = min((message.due_ms for message in self.model.values()), default=NEVER_MS)
        assert (queue.next_offset or 0, queue.earliest_due_ms()) == (self.offset, earliest)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)


TestStoreStateMachine = StoreStateMachine.TestCase
TestStoreStateMachine.settings = settings(max_examples=30, stateful_step_count=20)
