from __future__ import annotations

import gc

import pytest

from rocketmq_py.broker.store import OVERHEAD, ConsumeQueue, MessageStore, StoredMessage, Window
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.protocol.stored_message import decode_messages

ADDRESS = bytes([127, 0, 0, 1, 0, 0, 42, 159])


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1000

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


def test_a_window_keeps_numbers_while_it_forgets() -> None:
    window: Window[int] = Window()
    for number in range(10_000):
        window.append(number)
        if number % 3:
            window.forget_first()
            assert window[window.start] == window.start
    assert (window.start, window.end) == (6666, 10_000)
    assert window.slice(6666, 6669) == [6666, 6667, 6668]
    assert window.slice(9999, 12_000) == [9999]
    assert window[9999] == 9999


def test_what_is_stored_is_what_real_brokers_send() -> None:
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


def test_queues_count_on_their_own() -> None:
    store = new_store()
    offsets = [put(store, topic, queue_id).queue_offset for topic in "ab" for queue_id in (0, 1, 0)]
    assert offsets == [0, 0, 1, 0, 0, 1]
    assert store.find_queue("a", 2) is None
    assert store.find_queue("c", 0) is None


def test_a_message_is_found_by_where_it_begins() -> None:
    store = new_store()
    stored = [put(store) for _ in range(50)]
    assert [store.at(message.commit_log_offset) for message in stored] == stored
    assert store.at(1) is None
    assert store.at(-1) is None
    assert store.at(store.end_offset) is None


def test_bodies_have_a_bound() -> None:
    store = new_store(max_message_size=4)
    put(store, body=b"1234")
    with pytest.raises(InvalidMessageError, match="4 are allowed"):
        put(store, body=b"12345")
    assert store.queue("t", 0).end == 1


def test_the_oldest_messages_make_room() -> None:
    store = new_store(max_bytes=3 * (OVERHEAD + 110))
    for number in range(10):
        put(store, queue_id=number % 2)
    queues = [store.queue("t", queue_id) for queue_id in (0, 1)]
    assert [(queue.start, queue.end) for queue in queues] == [(4, 5), (3, 5)]
    assert store.at(0) is None
    assert store.log.end - store.log.start == 3
    assert decode_messages(queues[1][4].data, "b")[0].queue_offset == 4


def test_the_newest_message_stays_however_small_the_bound_is() -> None:
    store = new_store(max_bytes=1)
    for _ in range(3):
        last = put(store)
    queue = store.queue("t", 0)
    assert (queue.start, queue.end) == (2, 3)
    assert queue[2] is last


def test_a_deleted_topic_begins_anew() -> None:
    store = new_store(max_bytes=4 * (OVERHEAD + 110))
    old = put(store)
    store.forget_topic("t")
    assert store.find_queue("t", 0) is None
    assert put(store).queue_offset == 0
    assert store.at(old.commit_log_offset) is old
    for _ in range(10):
        put(store)  # the old queue's message is dropped with the others
    assert store.queue("t", 0).start == 7


def test_losing_the_end_leaves_the_queue_of_a_new_topic_alone() -> None:
    store = new_store()
    put(store)
    put(store)
    store.forget_topic("t")
    new = put(store)
    store.truncate(1)
    assert (store.queue("t", 0).start, store.queue("t", 0).end) == (0, 0)
    put(store)
    store.truncate(0)
    assert store.queue("t", 0).end == 0
    assert store.at(new.commit_log_offset) is None


def test_watchers_hear_of_each_message() -> None:
    store = new_store()
    queue = store.queue("t", 0)
    heard: list[tuple[ConsumeQueue, StoredMessage]] = []
    queue.watchers.append(lambda *arrival: heard.append(arrival))
    stored = put(store)
    put(store, queue_id=1)
    assert heard == [(queue, stored)]


def test_the_garbage_collector_does_not_walk_through_what_is_stored() -> None:
    assert not gc.is_tracked(put(new_store()))


# What a real broker answered to SEARCH_OFFSET_BY_TIMESTAMP for messages stored at these times.
@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [(0, 0, 0), (9, 0, 0), (10, 0, 1), (15, 2, 1), (20, 2, 4), (29, 5, 4), (30, 5, 5), (31, 6, 5)],
)
def test_an_offset_is_found_by_time(time_ms: int, lower: int, upper: int) -> None:
    clock = Clock()
    store = new_store(clock)
    for stored_at in (10, 10, 20, 20, 20, 30):
        clock.now_ms = stored_at
        put(store)
    queue = store.queue("t", 0)
    assert queue.search(time_ms) == lower
    assert queue.search(time_ms, upper=True) == upper


def test_an_empty_queue_has_offset_0_at_any_time() -> None:
    queue = ConsumeQueue("t", 0)
    assert queue.search(5) == queue.search(5, upper=True) == 0


def test_messages_beyond_the_bound_on_their_number_are_dropped_too() -> None:
    store = new_store(max_messages=3)
    stored = [put(store, queue_id=number % 2) for number in range(5)]
    assert (store.log.start, store.log.end) == (2, 5)
    assert [(store.queue("t", queue_id).start, store.queue("t", queue_id).end) for queue_id in range(2)] == [
        (1, 3),
        (1, 2),
    ]
    assert store.at(stored[1].commit_log_offset) is None
    assert store.at(stored[2].commit_log_offset) is stored[2]
