from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.message import ReceivedMessage
from tests.consumer.received import QUEUE, received, several, take, take_all


def test_messages_are_taken_in_order_and_buffered_until_removed() -> None:
    process_queue = ProcessQueue(QUEUE, 5)
    assert process_queue.safe_offset == process_queue.next_offset == 5
    assert take(process_queue) is None
    process_queue.put(several([5, 6, 9]), 12)
    assert process_queue.next_offset == 12
    assert (len(process_queue), process_queue.waiting, process_queue.size, process_queue.span) == (
        3,
        3,
        12,
        4,
    )
    taken = [take(process_queue) for _ in range(4)]
    assert [message and message.queue_offset for message in taken] == [5, 6, 9, None]
    assert (len(process_queue), process_queue.waiting, process_queue.safe_offset) == (3, 0, 5)
    process_queue.remove(received(6))
    assert process_queue.safe_offset == 5, "there is a gap"
    process_queue.remove(received(5))
    assert (process_queue.safe_offset, process_queue.span, process_queue.size) == (9, 0, 4)
    process_queue.remove(received(9))
    assert process_queue.safe_offset == 12, "skipped offsets are safe to commit"
    assert (len(process_queue), process_queue.span, process_queue.size) == (0, 0, 0)


def test_span_shrinks_at_both_ends() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put(several([0, 10, 20, 30]), 31)
    process_queue.remove(received(30))
    assert process_queue.span == 20
    process_queue.remove(received(0))
    assert process_queue.span == 10


def test_messages_before_the_pulled_offset_are_ignored() -> None:
    process_queue = ProcessQueue(QUEUE, 10)
    process_queue.put(several([8, 9, 10, 11]), 12)
    process_queue.put(several([11, 12]), 13)
    offsets = [message.queue_offset for message in take_all(process_queue)]
    assert offsets == [10, 11, 12]


def test_empty_pull_advances_the_offset() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put((), 800)
    assert process_queue.safe_offset == 800
    process_queue.put(several([800]), 801)
    process_queue.put((), 1600)
    assert (process_queue.next_offset, process_queue.safe_offset) == (1600, 800)


def test_removing_twice_counts_once() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put(several([0, 1]), 2)
    process_queue.remove(received(0))
    process_queue.remove(received(0))
    assert (len(process_queue), process_queue.size) == (1, 4)


def test_take_and_remove_a_batch() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    heard: list[int] = []
    process_queue.on_removed = lambda: heard.append(len(process_queue))
    process_queue.put(several(range(5)), 5)
    taken = process_queue.take_batch(3)
    assert [message.queue_offset for message in taken] == [0, 1, 2]
    assert taken[1] in process_queue
    process_queue.remove_all(taken[1:])
    assert taken[1] not in process_queue
    assert (len(process_queue), process_queue.size, process_queue.safe_offset, heard) == (3, 12, 0, [3])
    process_queue.remove_all(taken)
    assert (len(process_queue), process_queue.size, process_queue.safe_offset) == (2, 8, 3)
    assert len(process_queue.take_batch(9)) == 2
    assert process_queue.take_batch(9) == []


def test_requeued_message_is_taken_again_and_holds_the_offset() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put(several([0, 1]), 2)
    take(process_queue)
    process_queue.requeue(received(0, reconsume_times=1))
    assert (process_queue.waiting, len(process_queue), process_queue.safe_offset) == (2, 2, 0)
    taken = [message.reconsume_times for message in take_all(process_queue)]
    assert taken == [0, 1]
    process_queue.remove(received(0))
    process_queue.requeue(received(0))
    assert take(process_queue) is None, "it was removed"


def test_nothing_is_taken_from_a_dropped_queue() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put(several([0, 1]), 2)
    process_queue.dropped = True
    assert take(process_queue) is None
    assert process_queue.take_batch(2) == []
    assert process_queue.waiting == 2


def test_on_removed_is_called_after_every_removal() -> None:
    process_queue = ProcessQueue(QUEUE, 0)
    heard: list[int] = []
    process_queue.put(several([0, 1]), 2)
    process_queue.on_removed = lambda: heard.append(len(process_queue))
    process_queue.remove(received(1))
    process_queue.remove(received(1))
    process_queue.on_removed = None
    process_queue.remove(received(0))
    assert heard == [1]


class ComparedWithModel(RuleBasedStateMachine):
    """Compares a ProcessQueue with a model: a dict from offsets to sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.process_queue = ProcessQueue(QUEUE, 100)
        self.model: dict[int, int] = {}
        self.next_offset = 100
        self.taken: list[ReceivedMessage] = []
        self.waiting: list[int] = []

    @rule(gaps=st.lists(st.integers(-3, 5), max_size=8), skipped=st.integers(0, 5), size=st.integers(0, 9))
    def put(self, gaps: list[int], skipped: int, size: int) -> None:
        messages = []
        offset = self.next_offset
        for gap in gaps:
            offset += gap
            messages.append(received(offset, b"x" * size))
            offset += 1
        end = max([self.next_offset, *(message.queue_offset + 1 for message in messages)]) + skipped
        for message in messages:
            if message.queue_offset >= self.next_offset:
                self.model[message.queue_offset] = size
                self.waiting.append(message.queue_offset)
                self.next_offset = message.queue_offset + 1
        self.next_offset = max(self.next_offset, end)
        self.process_queue.put(messages, end)

    @rule()
    def take_one(self) -> None:
        message = take(self.process_queue)
        assert (message is None) == (not self.waiting)
        if message is not None:
            assert message.queue_offset == self.waiting.pop(0)
            self.taken.append(message)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        message = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        del self.model[message.queue_offset]
        self.process_queue.remove(message)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        message = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.waiting.append(message.queue_offset)
        self.process_queue.requeue(message)

    @invariant()
    def same(self) -> None:
        process_queue, model = self.process_queue, self.model
        assert len(process_queue) == len(model)
        assert process_queue.waiting == len(self.waiting)
        assert process_queue.size == sum(model.values())
        assert process_queue.span == (max(model) - min(model) if model else 0)
        assert process_queue.safe_offset == min(model, default=self.next_offset)
        assert process_queue.next_offset == self.next_offset


TestComparedWithModel = ComparedWithModel.TestCase
