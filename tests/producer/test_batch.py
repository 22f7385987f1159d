from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import InvalidMessageError, MessageTooLargeError
from rocketmq_py.message import Message, MessageQueue, SendResult, SendStatus
from rocketmq_py.producer.batch import (
    MAX_BATCHED_MESSAGES,
    MAX_BATCHED_PROPERTIES,
    BatchResults,
    EncodedBatch,
    split_batch,
)
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.batch import decode_batch

MAX_SIZE = 4 * 1024 * 1024
ANSWERED = SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "", "first,second,third", MessageQueue("T", "b", 3), 17)


def new_unique_ids(count: int) -> list[str]:
    return [f"{number:032X}" for number in range(count)]


def split(messages: list[Message], max_size: int = MAX_SIZE) -> list[EncodedBatch]:
    return split_batch(messages, max_size=max_size, new_unique_ids=new_unique_ids)


def test_messages_that_fit_make_one_batch_in_order() -> None:
    messages = [
        Message("T", b"one", tags="TagA", keys=["k1", "k2"], properties={"colour": "grün"}, flag=-7),
        Message("T", b"two"),
    ]
    (batch,) = split(messages)
    assert batch.topic == "T"
    assert batch.wait_store_ok
    assert batch.messages == tuple(messages)
    assert batch.unique_ids == ("0" * 32, "0" * 31 + "1")
    first, second = decode_batch(batch.body)
    assert (first.body, first.flag, second.body, second.flag) == (b"one", -7, b"two", 0)
    assert decode_properties(first.properties.decode()) == {
        "UNIQ_KEY": "0" * 32, "WAIT": "true", "TAGS": "TagA", "KEYS": "k1 k2", "colour": "grün",
    }  # fmt: skip
    assert decode_properties(second.properties.decode()) == {"UNIQ_KEY": "0" * 31 + "1", "WAIT": "true"}


@given(st.lists(st.binary(min_size=1, max_size=400), min_size=1, max_size=60), st.integers(500, 3000))
def test_batches_are_within_the_bound_and_as_few_as_possible(bodies: list[bytes], max_size: int) -> None:
    batches = split([Message("T", body) for body in bodies], max_size)
    assert [one.body for batch in batches for one in decode_batch(batch.body)] == bodies
    assert [message.body for batch in batches for message in batch.messages] == bodies
    ids = [unique_id for batch in batches for unique_id in batch.unique_ids]
    assert len(set(ids)) == len(bodies)
    assert all(len(batch.body) <= max_size for batch in batches)
    for batch, following in itertools.pairwise(batches):
        (of_the_next,) = split([following.messages[0]])
        assert len(batch.body) + len(of_the_next.body) > max_size


def test_a_batch_may_have_the_maximum_size() -> None:
    empty = len(split([Message("T", b"x")])[0].body) - 1
    assert len(split([Message("T", b"x" * (500 - empty)), Message("T", b"y" * (500 - empty))], 1000)) == 1
    assert len(split([Message("T", b"x" * (500 - empty)), Message("T", b"y" * (501 - empty))], 1000)) == 2
    (batch,) = split([Message("T", b"x" * (1000 - empty))], 1000)
    assert len(batch.body) == 1000


def test_no_batch_has_more_messages_than_brokers_can_count() -> None:
    messages = [Message("T", b"x")] * (2 * MAX_BATCHED_MESSAGES + 1)
    batches = split(messages, 1 << 30)
    assert [len(batch.messages) for batch in batches] == [MAX_BATCHED_MESSAGES, MAX_BATCHED_MESSAGES, 1]


def test_properties_leave_space_for_those_that_brokers_append() -> None:
    def with_properties_of(size: int) -> Message:
        others = len("UNIQ_KEY=;WAIT=true;long=;") + 32
        return Message("T", b"x", properties={"long": "x" * (size - others)})

    (batch,) = split([with_properties_of(MAX_BATCHED_PROPERTIES)])
    (one,) = decode_batch(batch.body)
    assert len(one.properties) == MAX_BATCHED_PROPERTIES
    with pytest.raises(MessageTooLargeError, match=r"messages\[0\]: .* take 31744 bytes; .* 31743"):
        split([with_properties_of(MAX_BATCHED_PROPERTIES + 1)])


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (Message("Other", b"x"), r"topic is 'Other', but 'T' in messages\[0\]"),
        (Message("T", b"x", wait_store_ok=False), r"wait_store_ok is False, but True in messages\[0\]"),
        (Message("T", b"x", delay_level=3), "a delayed message cannot be in a batch"),
        (Message("T", b"x", delay=0.5), "a delayed message cannot be in a batch"),
        (Message("T", b"x", deliver_at_ms=1_700_000_000_000), "a delayed message cannot be in a batch"),
        (Message("T", b"x", priority=3), "a message with a priority cannot be in a batch"),
        (Message("T", b"x", lite_topic="s"), "a message with a lite topic cannot be in a batch"),
        (Message("T", b"x" * 900), r"it takes 974 bytes with its properties; max_message_size is 900"),
    ],
)
def test_the_error_names_the_message_that_cannot_be_batched(refused: Message, reason: str) -> None:
    with pytest.raises(InvalidMessageError, match=rf"messages\[2\]: {reason}"):
        split([Message("T", b"a"), Message("T", b"b"), refused, Message("T", b"c")], 900)


def test_batches_for_a_retry_topic_are_rejected() -> None:
    with pytest.raises(InvalidMessageError, match="'%RETRY%g' is a retry topic"):
        split([Message("%RETRY%g", b"x")])


def test_an_empty_list_is_rejected() -> None:
    with pytest.raises(InvalidMessageError, match="messages is empty"):
        split([])


def test_messages_without_wait_store_ok_share_a_batch() -> None:
    (batch,) = split([Message("T", b"x", wait_store_ok=False)] * 2)
    assert not batch.wait_store_ok


def test_each_message_has_its_own_result() -> None:
    results = BatchResults(ANSWERED, ["a", "b", "c"])
    assert len(results) == 3
    assert [result.message_id for result in results] == ["a", "b", "c"]
    assert [result.offset_message_id for result in results] == ["first", "second", "third"]
    assert [result.queue_offset for result in results] == [17, 18, 19]
    assert {result.queue for result in results} == {MessageQueue("T", "b", 3)}
    assert {result.status for result in results} == {SendStatus.FLUSH_DISK_TIMEOUT}
    assert results[-1] == results[2]
    assert results[1:] == [results[1], results[2]]
    assert repr(results) == repr(list(results))
    with pytest.raises(IndexError):
        results[3]


def test_the_results_of_a_batch_have_its_region_and_whether_to_trace() -> None:
    results = BatchResults(attrs.evolve(ANSWERED, region="eu", trace_on=False), ["a", "b"])
    assert [(result.region, result.trace_on) for result in results] == [("eu", False)] * 2


def test_a_batch_stored_as_one_entry_has_one_id() -> None:
    results = BatchResults(attrs.evolve(ANSWERED, offset_message_id="only"), ["a", "b"])
    assert [result.offset_message_id for result in results] == ["only", "only"]
    assert [result.queue_offset for result in results] == [17, 18]
