from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py import selectors
from rocketmq_py.callables import NeverBlocks
from rocketmq_py.errors import ConfigurationError, InvalidMessageError, NoQueueError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer.destinations import destination_of, select_by_key
from rocketmq_py.selectors import QueueSelector, SelectByHash, SelectByMachineRoom, SelectByRandom, java_hash

MESSAGE = Message("T", b"body")

# From the Java client 5.5.0: a String, an Integer, or a Long if needed, its hashCode(), and the
# queue that SelectMessageQueueByHash chooses of 3, 4, 7 and 16.
JAVA_CHOICES = [
    ("", 0, (0, 0, 0, 0)),
    ("a", 97, (1, 1, 6, 1)),
    ("order-1", -1207111310, (2, 2, 6, 14)),
    ("order-20240229", 1263131752, (1, 0, 1, 8)),
    ("customer:4711", 2115208703, (2, 3, 6, 15)),
    ("polygenelubricants", -2147483648, (2, 0, 2, 0)),
    ("GydZG_", -2147483648, (2, 0, 2, 0)),
    ("\u00e9t\u00e9", 227742, (0, 2, 4, 14)),
    ("\u8ba2\u5355", 1129459, (1, 3, 2, 3)),
    ("\U0001f680", 1773027, (0, 3, 4, 3)),
    ("caf\u00e9 \U0001f469\u200d\U0001f4bb", -1305944352, (0, 0, 6, 0)),
    ("\ud800", 55296, (0, 0, 3, 0)),
    ("\uffff", 65535, (0, 3, 1, 15)),
    ("x\u0000y", 115441, (1, 1, 4, 1)),
    ("the quick brown fox jumps over the lazy dog", -2082818701, (1, 1, 5, 13)),
    (0, 0, (0, 0, 0, 0)),
    (1, 1, (1, 1, 1, 1)),
    (-1, -1, (1, 1, 1, 1)),
    (42, 42, (0, 2, 0, 10)),
    (-7, -7, (1, 3, 0, 7)),
    (2147483647, 2147483647, (1, 3, 1, 15)),
    (-2147483648, -2147483648, (2, 0, 2, 0)),
    (2147483648, -2147483648, (2, 0, 2, 0)),
    (-2147483649, -2147483648, (2, 0, 2, 0)),
    (4294967296, 1, (1, 1, 1, 1)),
    (4294967295, -1, (1, 1, 1, 1)),
    (-4294967296, -1, (1, 1, 1, 1)),
    (1709210096123, -186888074, (2, 2, 2, 10)),
    (-1709210096123, -186888073, (1, 1, 1, 9)),
    (9223372036854775807, -2147483648, (2, 0, 2, 0)),
    (-9223372036854775808, -2147483648, (2, 0, 2, 0)),
    (6442450944, -2147483647, (1, 3, 1, 15)),
]


def queues(count: int, broker_name: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("T", broker_name, queue_id) for queue_id in range(count)]


@pytest.mark.parametrize(("key", "hashed", "chosen"), JAVA_CHOICES)
def test_a_key_has_the_same_queue_as_in_java(
    key: str | int, hashed: int, chosen: tuple[int, int, int, int]
) -> None:
    assert java_hash(key) == hashed
    select: QueueSelector = SelectByHash(key)
    assert tuple(select(queues(count), MESSAGE).queue_id for count in (3, 4, 7, 16)) == chosen
    assert select(queues(1), MESSAGE).queue_id == 0


@given(st.text() | st.integers(-(2**63), 2**63 - 1), st.integers(1, 20))
def test_any_key_has_one_queue(key: str | int, count: int) -> None:
    chosen = {SelectByHash(key)(queues(count), MESSAGE) for _ in range(2)}
    assert len(chosen) == 1
    assert chosen <= set(queues(count))
    assert -(2**31) <= java_hash(key) < 2**31


@pytest.mark.parametrize("key", [None, 1.0, b"order", True, 2**63, -(2**63) - 1, ("a",)])
def test_invalid_keys_are_rejected(key: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a str or an int of at most 64 bits"):
        SelectByHash(key)


def test_random_selection_uses_all_queues() -> None:
    random.seed(1)
    assert {SelectByRandom()(queues(4), MESSAGE) for _ in range(100)} == set(queues(4))
    assert SelectByRandom()(queues(1), MESSAGE) == queues(1)[0]


def test_machine_rooms_use_their_own_queues_equally() -> None:
    here, there = queues(2, "hz1@broker-a") + queues(1, "hz2@broker-b"), queues(4, "sh@broker-c")
    elsewhere = queues(1, "hz1") + queues(1, "hz1@x@broker-d") + queues(1, "broker@hz1")
    select: QueueSelector = SelectByMachineRoom({"hz1", "hz2"})
    chosen = Counter(select(elsewhere + there + here, MESSAGE) for _ in range(30))
    assert chosen == dict.fromkeys(here, 10)


def test_machine_rooms_of_one_send_each_spread_their_messages() -> None:
    here = queues(4, "hz@broker-a")
    assert len({SelectByMachineRoom({"hz"})(here, MESSAGE) for _ in range(100)}) == 4


def test_machine_rooms_without_a_queue_raise() -> None:
    with pytest.raises(NoQueueError, match=r"topic 'T' has no writable queue .* hz1, hz2; .* room@broker"):
        SelectByMachineRoom(["hz2", "hz1"])(queues(4, "sh@broker-c") + queues(4), MESSAGE)


@pytest.mark.parametrize("rooms", ["hz1", [], [1], None, 5, (room for room in ["hz1"])])
def test_invalid_rooms_are_rejected(rooms: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a list of one or more names"):
        SelectByMachineRoom(rooms)


@pytest.mark.parametrize(
    ("key", "chosen"),
    [  # Guava's Hashing.consistentHash(key.hashCode(), n) for 1, 3, 4, 8, 16 and 100 queues
        ("order-1", (0, 0, 3, 3, 3, 3)),
        ("order-2", (0, 2, 2, 2, 11, 46)),
        ("a", (0, 0, 0, 0, 0, 29)),
        ("grün", (0, 0, 0, 0, 11, 94)),
        ("customer 4711", (0, 0, 3, 3, 9, 31)),
    ],
)
def test_a_sharding_key_has_the_same_queue_as_in_the_proxy(key: str, chosen: tuple[int, ...]) -> None:
    message = Message("T", b"x", sharding_key=key)
    for count, queue_id in zip((1, 3, 4, 8, 16, 100), chosen, strict=True):
        queues = [MessageQueue("T", "a", number) for number in range(count)]
        assert select_by_key(queues, message) == queues[queue_id]
        if key.isascii() and " " not in key:
            assert select_by_key(queues, Message("T", b"x", lite_topic=key)) == queues[queue_id]


def test_a_message_with_a_lite_topic_cannot_be_sent_to_a_chosen_queue() -> None:
    message = Message("T", b"x", lite_topic="s")
    assert destination_of(message, None) is select_by_key
    with pytest.raises(InvalidMessageError, match="cannot be sent to a chosen queue"):
        destination_of(message, MessageQueue("T", "a", 0))


def test_the_trio_thread_may_call_every_selector_of_the_library() -> None:
    kinds = {getattr(selectors, name) for name in selectors.__all__} - {QueueSelector}
    assert kinds
    assert all(issubclass(kind, NeverBlocks) for kind in kinds)
