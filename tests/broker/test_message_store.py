from __future__ import annotations

import gc

import pytest

from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, OffsetList, StoredMessage
from rocketmq_py.broker.storage.message_store import MESSAGE_OVERHEAD, MessageStore, MinuteRate
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.protocol.stored_message import decode_messages

ADDRESS = bytes([127, 0, 0, 1, 0, 0, 42, 159])


class Clock:
    def __init__(self, now_ms: int = 1000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def new_store(
    clock: Clock | None = None,
    max_bytes: int = 1 << 30,
    max_message_size: int = 1000,
    max_messages: int | None = None,
) -> MessageStore:
    return MessageStore(
        ADDRESS,
        max_bytes=max_bytes,
        max_message_size=max_message_size,
        now_ms=clock or Clock(),
        max_messages=max_messages,
    )


def put(store: MessageStore, topic: str = "t", queue_id: int = 0, body: bytes = b"body") -> StoredMessage:
    return store.append(store.queue(topic, queue_id), body, b"k\x01v\x02", 0, 0, 0, 900, ADDRESS)


def test_an_offset_list_keeps_offsets_when_items_are_removed() -> None:
    items: OffsetList[int] = OffsetList()
    for number in range(10_000):
        items.append(number)
        if number % 3:
            items.remove_first()
            assert items[items.start] == items.start
    assert (items.start, items.end) == (6666, 10_000)
    assert items.slice(6666, 6669) == [6666, 6667, 6668]
    assert items.slice(9999, 12_000) == [9999]
    assert items[9999] == 9999


def test_stored_data_is_in_the_wire_format() -> None:
    store = new_store()
    put(store, queue_id=3)
    stored = put(store, queue_id=3)
    (message,) = decode_messages(stored.data, "broker-a")
    assert message.topic == "t"
    assert message.queue_id == 3
    assert message.queue_offset == 1
    assert message.commit_log_offset == stored.commit_log_offset == len(stored.data)
    assert message.store_time_ms == 1000
    assert message.offset_message_id == store.message_id(stored.commit_log_offset)
    assert store.message_id(255) == "7F00000100002A9F00000000000000FF"


def test_each_queue_has_its_own_offsets() -> None:
    store = new_store()
    offsets = [put(store, topic, queue_id).queue_offset for topic in "ab" for queue_id in (0, 1, 0)]
    assert offsets == [0, 0, 1, 0, 0, 1]
    assert store.find_queue("a", 2) is None
    assert store.find_queue("c", 0) is None


def test_message_at_finds_a_message_by_its_commit_log_offset() -> None:
    store = new_store()
    stored = [put(store) for _ in range(50)]
    assert [store.message_at(message.commit_log_offset) for message in stored] == stored
    assert store.message_at(1) is None
    assert store.message_at(-1) is None
    assert store.message_at(store.end_offset) is None


def test_append_rejects_a_body_above_the_maximum_size() -> None:
    store = new_store(max_message_size=4)
    put(store, body=b"1234")
    with pytest.raises(InvalidMessageError, match="4 are allowed"):
        put(store, body=b"12345")
    assert store.queue("t", 0).end == 1


def test_the_oldest_messages_are_dropped_beyond_the_bound() -> None:
    store = new_store(max_bytes=3 * (MESSAGE_OVERHEAD + 110))
    for number in range(10):
        put(store, queue_id=number % 2)
    queues = [store.queue("t", queue_id) for queue_id in (0, 1)]
    assert [(queue.start, queue.end) for queue in queues] == [(4, 5), (3, 5)]
    assert store.message_at(0) is None
    assert store.log.end - store.log.start == 3
    assert decode_messages(queues[1][4].data, "b")[0].queue_offset == 4


def test_the_newest_message_is_never_dropped() -> None:
    store = new_store(max_bytes=1)
    for _ in range(3):
        last = put(store)
    queue = store.queue("t", 0)
    assert (queue.start, queue.end) == (2, 3)
    assert queue[2] is last


def test_a_topic_created_again_starts_at_offset_0() -> None:
    store = new_store(max_bytes=4 * (MESSAGE_OVERHEAD + 110))
    old = put(store)
    store.delete_topic("t")
    assert store.find_queue("t", 0) is None
    assert put(store).queue_offset == 0
    assert store.message_at(old.commit_log_offset) is old
    for _ in range(10):
        put(store)  # drops the message of the deleted topic, too
    assert store.queue("t", 0).start == 7


def test_truncate_does_not_touch_the_queue_of_a_topic_created_again() -> None:
    store = new_store()
    put(store)
    put(store)
    store.delete_topic("t")
    new = put(store)
    store.truncate(1)
    assert (store.queue("t", 0).start, store.queue("t", 0).end) == (0, 0)
    put(store)
    store.truncate(0)
    assert store.queue("t", 0).end == 0
    assert store.message_at(new.commit_log_offset) is None


def test_listeners_are_called_for_each_message() -> None:
    store = new_store()
    queue = store.queue("t", 0)
    calls: list[tuple[ConsumeQueue, StoredMessage]] = []
    queue.listeners.append(lambda *arguments: calls.append(arguments))
    stored = put(store)
    put(store, queue_id=1)
    assert calls == [(queue, stored)]


def test_stored_messages_are_not_tracked_by_the_garbage_collector() -> None:
    assert not gc.is_tracked(put(new_store()))


# The answers of a real broker to SEARCH_OFFSET_BY_TIMESTAMP for messages stored at these times.
@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [(0, 0, 0), (9, 0, 0), (10, 0, 1), (15, 2, 1), (20, 2, 4), (29, 5, 4), (30, 5, 5), (31, 6, 5)],
)
def test_search_finds_an_offset_by_store_time(time_ms: int, lower: int, upper: int) -> None:
    clock = Clock()
    store = new_store(clock)
    for stored_at in (10, 10, 20, 20, 20, 30):
        clock.now_ms = stored_at
        put(store)
    queue = store.queue("t", 0)
    assert queue.search(time_ms) == lower
    assert queue.search(time_ms, upper=True) == upper


def test_search_in_an_empty_queue_returns_0() -> None:
    queue = ConsumeQueue("t", 0)
    assert queue.search(5) == queue.search(5, upper=True) == 0


def test_the_oldest_messages_are_dropped_beyond_the_maximum_number() -> None:
    store = new_store(max_messages=3)
    stored = [put(store, queue_id=number % 2) for number in range(5)]
    assert (store.log.start, store.log.end) == (2, 5)
    assert [(store.queue("t", queue_id).start, store.queue("t", queue_id).end) for queue_id in range(2)] == [
        (1, 3),
        (1, 2),
    ]
    assert store.message_at(stored[1].commit_log_offset) is None
    assert store.message_at(stored[2].commit_log_offset) is stored[2]


def test_a_minute_rate_covers_the_last_minute_in_steps_of_10_seconds() -> None:
    clock = Clock(0)
    rate = MinuteRate(clock)
    rate.add(300, clock.now_ms)
    rate.add(300, clock.now_ms)
    rates = []
    for _ in range(9):
        rates.append(rate.value())
        clock.now_ms += 10_000
    assert rates == [0, 60, 30, 20, 15, 12, 10, 0, 0]


def test_a_minute_rate_leaves_out_the_current_10_seconds() -> None:
    clock = Clock(0)
    rate = MinuteRate(clock)
    rate.add(10, clock.now_ms)
    clock.now_ms += 10_000
    rate.add(30, clock.now_ms)
    assert rate.value() == 1
    clock.now_ms += 9_999
    assert rate.value() == 1
    clock.now_ms += 1
    assert rate.value() == 2


def test_a_minute_rate_forgets_counts_from_before_a_pause() -> None:
    clock = Clock(0)
    rate = MinuteRate(clock)
    rate.add(1000, clock.now_ms)
    clock.now_ms += 3_600_000
    rate.add(60, clock.now_ms)
    assert rate.value() == 0
    clock.now_ms += 10_000
    assert rate.value() == 1
