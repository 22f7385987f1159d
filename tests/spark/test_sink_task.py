"""A task of the sink: encoding, sending, retries and errors."""

from __future__ import annotations

import math
import pickle
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import attrs
import pyarrow as pa
import pytest

from rocketmq_py.environment import MonotonicClock
from rocketmq_py.errors import (
    BrokerBusyError,
    ConnectError,
    Delivery,
    MessageRefusedError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.message import Message, MessageQueue, SendResult, SendStatus
from rocketmq_py.protocol.batch import decode_batch
from rocketmq_py.selectors import SelectByHash
from rocketmq_py.spark import sink_task
from rocketmq_py.spark.batch_encoder import BatchEncoder, PreparedBatch
from rocketmq_py.spark.piece_sender import (
    BODY_SIZE,
    MAX_RETRY_DELAY,
    REASON,
    DeadLetters,
    EarlierBatchFailedError,
    PieceSender,
    SendOutcome,
    WriteSummary,
)
from rocketmq_py.spark.rows import Destination, MessageBuilder
from rocketmq_py.spark.sink_task import RowWriter, WriteError
from rocketmq_py.spark.stamps import STAMP, TaskIdentity

TASK = TaskIdentity("query", 7, 2, attempt=1)
RESULT = SendResult(SendStatus.SEND_OK, "id", "offset id", MessageQueue("T", "a", 0), 0)
QUEUES = [MessageQueue("T", "a", number) for number in range(4)]
BUSY = BrokerBusyError(2, "too many requests", "broker:1")
REFUSED = MessageRefusedError(13, "the message is illegal", "broker:1")
LARGE = b"large" * 20
"""A body that is compressed, and therefore sent as a message."""


@attrs.define
class FakeSender(MonotonicClock):
    """A fake sender, which is also the clock. A send fails as long as one of its bodies has an error left.

    Attributes:
        errors: the errors of the sends that contain a body.
        batches: all batches that were sent.
        sent: the bodies of each send.
        messages: all messages that were sent by themselves.
        destinations: the destinations of each send of messages.
        delays: the delays between retries.
    """

    errors: dict[bytes, list[RocketMQError]] = attrs.field(factory=dict)
    batches: list[PreparedBatch] = attrs.field(factory=list)
    sent: list[list[bytes]] = attrs.field(factory=list)
    messages: list[Message] = attrs.field(factory=list)
    destinations: list[Sequence[Destination] | None] = attrs.field(factory=list)
    delays: list[float] = attrs.field(factory=list)
    time: float = 0.0
    ids: int = 0

    def send_batches(self, batches: Sequence[PreparedBatch]) -> Sequence[RocketMQError | None]:
        self.time += 0.5
        return [self._send_batch(batch) for batch in batches]

    def _send_batch(self, batch: PreparedBatch) -> RocketMQError | None:
        bodies = [message.body for message in decode_batch(batch.body)]
        self.batches.append(batch)
        self.sent.append(bodies)
        return next((self.errors[body].pop(0) for body in bodies if self.errors.get(body)), None)

    def send_messages(
        self, messages: Sequence[Message], destinations: Sequence[Destination] | None
    ) -> Sequence[SendOutcome]:
        self.time += 0.5
        self.sent.append([message.body for message in messages])
        self.messages += messages
        self.destinations.append(destinations)
        errors = [self.errors.get(message.body) for message in messages]
        return [left.pop(0) if left else RESULT for left in errors]

    def new_unique_ids(self, count: int) -> Sequence[str]:
        self.ids += count
        return [f"{number:032X}" for number in range(self.ids - count, self.ids)]

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        self.time += seconds

    def writer(
        self,
        columns: Sequence[str],
        topic: str | None = "T",
        max_batch_bytes: int = 65536,
        pieces_in_flight: int = 1,
        dead_letters: DeadLetters | None = None,
    ) -> RowWriter:
        encoder = BatchEncoder(
            topic,
            TASK,
            max_batch_bytes,
            compress_from=len(LARGE),
            new_unique_ids=self.new_unique_ids,
            queues_of=lambda _: QUEUES,
        )
        return RowWriter(
            column_indexes={name: index for index, name in enumerate(columns)},
            encoder=encoder,
            builder=MessageBuilder(topic, TASK),
            piece_sender=PieceSender(self, topic, 60.0, dead_letters, self),
            description=TASK.description,
            pieces_in_flight=pieces_in_flight,
        )

    def write(
        self,
        *batches: Sequence[bytes | None],
        topic: str | None = "T",
        max_batch_bytes: int = 65536,
        pieces_in_flight: int = 1,
        dead_letters: DeadLetters | None = None,
        **columns: Sequence[str | None],
    ) -> WriteSummary:
        writer = self.writer(["body", *columns], topic, max_batch_bytes, pieces_in_flight, dead_letters)
        return writer.write([batch_of(bodies, **columns) for bodies in batches])


def batch_of(bodies: Sequence[bytes | None], **columns: Sequence[str | None]) -> pa.RecordBatch:
    arrays = [pa.array(bodies, pa.binary()), *[pa.array(values, pa.string()) for values in columns.values()]]
    return pa.record_batch(arrays, names=["body", *columns])


def test_rows_are_sent_batch_by_batch() -> None:
    sender = FakeSender()
    assert sender.write([b"a", b"bb"], [], [b"ccc"]) == WriteSummary(3, 6, 0, 1.0, 0.5)
    assert sender.sent == [[b"a", b"bb"], [b"ccc"]]


def test_request_bodies_have_the_maximum_batch_size() -> None:
    sender = FakeSender()
    bodies = [b"%d" % number for number in range(100)]
    sender.write(bodies, max_batch_bytes=1000)
    assert [body for sent in sender.sent for body in sent] == bodies
    assert all(len(batch.body) <= 1000 for batch in sender.batches)
    assert len(sender.batches) == math.ceil(sum(len(batch.body) for batch in sender.batches) / 1000)


def test_large_arrow_batches_are_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_task, "MAX_PIECE_ROWS", 3)
    monkeypatch.setattr(sink_task, "MAX_PIECE_BYTES", 10)
    sender = FakeSender()
    bodies = [b"1", b"2", b"3", b"4", b"12345", b"123456", b"12345678901", b"1"]
    assert sender.write(bodies).rows == 8
    assert sender.sent == [
        [b"1", b"2", b"3"], [b"4", b"12345"], [b"123456"], [b"12345678901"], [b"1"],
    ]  # fmt: skip
    rows = [row for batch in sender.batches for row in batch.rows.tolist()]
    assert rows == list(range(8))


def test_rows_that_a_batch_cannot_carry_are_sent_as_messages() -> None:
    sender = FakeSender()
    summary = sender.write([b"a", LARGE, b"c", LARGE], keys=["k0", "k1", "k2", "k3"])
    assert summary == WriteSummary(4, 2 + 2 * len(LARGE), 0, 1.0, 1.0)
    assert sender.sent == [[b"a", b"c"], [LARGE, LARGE]]


def test_next_rows_are_encoded_but_not_sent_before_the_acknowledgement() -> None:
    may_answer, encoded = threading.Event(), threading.Event()

    @attrs.define
    class SlowSender(FakeSender):
        def send_batches(self, batches: Sequence[PreparedBatch]) -> Sequence[RocketMQError | None]:
            errors = super().send_batches(batches)
            may_answer.wait()
            return errors

        def new_unique_ids(self, count: int) -> Sequence[str]:
            if self.ids:
                encoded.set()
            return super().new_unique_ids(count)

    sender = SlowSender()
    with ThreadPoolExecutor(1) as executor:
        task = executor.submit(sender.write, [b"a"], [b"b"])
        try:
            encoded.wait()
            assert sender.sent == [[b"a"]]
        finally:
            may_answer.set()
        assert task.result().rows == 2


@attrs.define
class SimultaneousSender(FakeSender):
    """Answers once two sends are in flight. A third one would break the barrier."""

    both: threading.Barrier = attrs.field(factory=lambda: threading.Barrier(2, timeout=60))

    def send_batches(self, batches: Sequence[PreparedBatch]) -> Sequence[RocketMQError | None]:
        errors = super().send_batches(batches)
        self.both.wait()
        return errors


def test_two_pieces_may_be_in_flight() -> None:
    sender = SimultaneousSender()
    assert sender.write([b"a"], [b"b"], [b"c"], [b"d"], pieces_in_flight=2).rows == 4
    assert sorted(body for sent in sender.sent for body in sent) == [b"a", b"b", b"c", b"d"]


def test_error_counts_the_acknowledged_rows_of_all_pieces_in_flight() -> None:
    sender = SimultaneousSender({b"a": [REFUSED]})
    with pytest.raises(WriteError, match="1 of 3 rows were not acknowledged; row 0 ") as caught:
        sender.write([b"a"], [b"b", b"c"], [b"never sent"], pieces_in_flight=2)
    assert (caught.value.acknowledged, caught.value.rows) == (2, (0,))
    assert sorted(body for sent in sender.sent for body in sent) == [b"a", b"b", b"c"]


# --- retries


def test_busy_batches_are_sent_again_with_the_same_bytes() -> None:
    sender = FakeSender({b"b": [BUSY, BUSY]})
    summary = sender.write([b"a", b"b", b"c"])
    assert sender.sent == [[b"a", b"b", b"c"]] * 3
    assert len({batch.body for batch in sender.batches}) == 1
    assert sender.delays == [0.1, 0.2]
    assert (summary.rows, summary.resent, summary.body_bytes) == (3, 6, 3)


def test_only_failed_batches_and_messages_are_sent_again() -> None:
    sender = FakeSender({b"b": [BUSY], LARGE: [BUSY]})
    summary = sender.write([b"a", b"b", LARGE, b"d"], max_batch_bytes=130)
    assert sender.sent == [[b"a"], [b"b"], [b"d"], [LARGE], [b"b"], [LARGE]]
    assert (summary.rows, summary.resent) == (4, 2)


def test_resent_rows_keep_their_queue() -> None:
    sender = FakeSender({b"b": [BUSY], LARGE: [BUSY]})
    sender.write([b"a", b"b", LARGE], shardingKey=["x", "y", "z"])
    queues = {batch.rows.tolist()[0]: batch.queue for batch in sender.batches}
    assert len(queues) == 2
    assert {batch.queue for batch in sender.batches if batch.rows.tolist() == [1]} == {queues[1]}
    assert sender.destinations[0] == sender.destinations[1]


def test_batches_not_sent_after_a_failure_do_not_count_as_resent() -> None:
    sender = FakeSender({b"a": [BUSY], b"b": [EarlierBatchFailedError(BUSY)]})
    summary = sender.write([b"a", b"b"], max_batch_bytes=130)
    assert sender.sent == [[b"a"], [b"b"], [b"a"], [b"b"]]
    assert summary.resent == 1


def test_lost_batches_are_sent_again() -> None:
    lost = RequestTimeoutError("broker:1", 10.0, Delivery.UNKNOWN)
    sender = FakeSender({b"a": [lost]})
    assert sender.write([b"a", b"b"]).resent == 2


def test_retries_end_after_the_retry_timeout() -> None:
    sender = FakeSender({b"a": [BUSY] * 100})
    with pytest.raises(WriteError, match=r"row 0 \(topic 'T'\): broker:1 answered SYSTEM_BUSY") as caught:
        sender.write([b"a"])
    assert caught.value.rows == (0,)
    assert 60 <= sender.time <= 60 + MAX_RETRY_DELAY + 1
    assert max(sender.delays) == MAX_RETRY_DELAY


def test_unreachable_broker_is_named_with_the_host_that_lacks_the_connection() -> None:
    sender = FakeSender({b"a": [ConnectError("10.0.0.2:10911", "refused")] * 100})
    with pytest.raises(WriteError) as caught:
        sender.write([b"a"])
    text = str(caught.value)
    assert "cannot connect to 10.0.0.2:10911: refused" in text
    assert text.endswith(f"run `rocketmq-py check connection` on this host, {socket.gethostname()}")


def test_missing_topic_fails_the_task_at_once() -> None:
    sender = FakeSender({b"a": [TopicNotFoundError("New", "127.0.0.1:9876")]})
    with pytest.raises(WriteError, match="topic 'New' does not exist"):
        sender.write([b"a"], topic="New")
    assert sender.delays == []


def test_topic_that_disappears_is_retried_while_its_broker_restarts() -> None:
    sender = FakeSender({b"b": [TopicNotFoundError("Gone", "127.0.0.1:9876")]})
    sender.write([b"a"], [b"b"], topic="Gone")
    assert sender.sent == [[b"a"], [b"b"], [b"b"]]


# --- errors


def test_refused_row_is_found_by_splitting_its_batch() -> None:
    sender = FakeSender({b"d": [REFUSED] * 9})
    with pytest.raises(WriteError) as caught:
        sender.write([b"a", b"b"], [b"c", b"d", b"e"], [b"f"])
    assert sender.sent == [[b"a", b"b"], [b"c", b"d", b"e"], [b"c"], [b"d", b"e"], [b"d"], [b"e"]]
    assert sender.delays == []
    error = caught.value
    assert (error.acknowledged, error.rows) == (4, (3,))
    assert str(error) == (
        "partition 2 of batch 7 of query, attempt 1: 1 of 5 rows were not acknowledged; row 3 (topic 'T'): "
        "broker:1 answered MESSAGE_ILLEGAL (13): the message is illegal (refused); the other rows from 0 to "
        "4 are stored, and no later row was sent"
    )


def test_rows_of_a_queue_keep_their_order_behind_a_refused_row() -> None:
    sender = FakeSender({b"b": [REFUSED] * 9, b"e": [EarlierBatchFailedError(REFUSED)] * 2})
    with pytest.raises(WriteError) as caught:
        sender.write([b"a", b"b", b"c", b"d", b"e"], max_batch_bytes=480, shardingKey=["k"] * 5)
    assert sender.sent[:2] == [[b"a", b"b", b"c", b"d"], [b"e"]]
    assert sender.sent[-1] == [b"e"]
    assert (caught.value.acknowledged, caught.value.rows) == (4, (1,))


def test_error_names_the_keys_and_ids_of_a_row() -> None:
    sender = FakeSender({b"b": [REFUSED] * 9, LARGE: [REFUSED]})
    with pytest.raises(WriteError) as caught:
        sender.write([b"a", LARGE, b"b"], keys=["k0", "k1", "k2"], rowId=["r0", "r1", None])
    assert caught.value.rows == (1, 2)
    assert "row 1 (topic 'T', keys 'k1', rowId 'r1'): " in str(caught.value)
    assert "row 2 (topic 'T', keys 'k2'): " in str(caught.value)


def test_error_names_only_the_first_failed_rows() -> None:
    bodies = [b"%d" % number for number in range(10)]
    with pytest.raises(
        WriteError, match=r"10 of 10 rows .* row 4 .*; and 5 more; no row is known to be stored"
    ):
        FakeSender({b"3": [BUSY] * 100}).write(bodies)


def test_invalid_row_fails_the_task_before_its_rows_are_sent() -> None:
    sender = FakeSender()
    with pytest.raises(
        WriteError, match=r"row 3 \(topic 'T'\): its body is null; rows 0 to 1 are stored, and no other"
    ) as caught:
        sender.write([b"a", b"b"], [b"c", None])
    assert sender.sent == [[b"a", b"b"]]
    assert (caught.value.acknowledged, caught.value.rows) == (2, (3,))
    with pytest.raises(WriteError, match="its body is null; no row was sent"):
        sender.write([None])


def test_failed_send_is_reported_rather_than_a_later_invalid_row() -> None:
    sender = FakeSender({b"a": [REFUSED]})
    with pytest.raises(WriteError, match=r"row 0 .*the message is illegal"):
        sender.write([b"a"], [None])


# --- dead letters

DEAD_LETTERS = DeadLetters(MessageBuilder("Dead", TASK), max_body_bytes=10)


def test_refused_and_invalid_rows_become_dead_letters() -> None:
    sender = FakeSender({b"refused": [REFUSED] * 3})  # in batches of three rows, two and one
    bodies = [b"a", None, b"refused", b"d"]
    summary = sender.write(bodies, dead_letters=DEAD_LETTERS, keys=["k0", "k1", "k2", "k3"])
    assert (summary.rows, summary.dead_letters, summary.body_bytes) == (2, 2, 2)
    assert [(message.topic, message.body, message.keys) for message in sender.messages] == [
        ("Dead", b"-", ("k1",)), ("Dead", b"refused", ("k2",)),
    ]  # fmt: skip
    null, refused = [message.properties for message in sender.messages]
    assert null == {
        REASON: "row 1 (topic 'T', keys 'k1'): its body is null", BODY_SIZE: "0", STAMP: "query/7/2/1",
    }  # fmt: skip
    assert "row 2 (topic 'T', keys 'k2'): broker:1 answered MESSAGE_ILLEGAL" in refused[REASON]
    assert sender.sent[-1] == [b"-", b"refused"]


def test_dead_letter_of_a_row_with_an_invalid_value_or_a_long_body() -> None:
    sender = FakeSender({LARGE: [REFUSED]})
    summary = sender.write([LARGE, b"b"], dead_letters=DEAD_LETTERS, keys=["k0", "k\x01"], rowId=["r0", "r1"])
    assert (summary.rows, summary.dead_letters) == (0, 2)
    long, invalid = sender.messages[-2:]
    assert (long.body, long.keys, long.properties[BODY_SIZE]) == (LARGE[:10], ("k0",), str(len(LARGE)))
    assert (invalid.body, invalid.keys, invalid.properties[STAMP]) == (b"b", (), "query/7/-/r1")
    assert "'k\\x01'" in invalid.properties[REASON]


def test_dead_letter_has_no_properties_that_are_too_long_with_the_reason() -> None:
    properties = pa.array([[("a", "x" * 32_700)]], pa.map_(pa.string(), pa.string()))
    message = DEAD_LETTERS.message({"body": pa.array([b"x"]), "properties": properties}, 0, 3, "why\x02")
    assert message.properties == {REASON: "why ", BODY_SIZE: "1", STAMP: "query/7/2/3"}


def test_refused_dead_letter_fails_the_task() -> None:
    sender = FakeSender({b"bad": [REFUSED] * 3})
    with pytest.raises(WriteError, match=r"1 of 2 rows .* row 1 ") as caught:
        sender.write([b"a", b"bad"], dead_letters=DEAD_LETTERS)
    assert (caught.value.acknowledged, caught.value.rows) == (1, (1,))


def test_dead_letters_are_sent_again_after_retriable_errors() -> None:
    sender = FakeSender({b"bad": [REFUSED, REFUSED, BUSY]})
    summary = sender.write([b"a", b"bad"], dead_letters=DEAD_LETTERS)
    assert (summary.rows, summary.dead_letters, summary.resent) == (1, 1, 1)


def test_other_errors_fail_the_task_in_spite_of_dead_letters() -> None:
    sender = FakeSender({b"a": [BUSY] * 100, b"b": [REFUSED] * 100})
    with pytest.raises(WriteError) as caught:
        sender.write([b"a", b"b", b"c"], max_batch_bytes=130, dead_letters=DEAD_LETTERS)
    assert (caught.value.acknowledged, caught.value.rows) == (1, (0, 1))
    assert sender.messages == []


def test_rows_around_an_invalid_row_keep_their_destinations() -> None:
    sender = FakeSender()
    keys = ["x", "y\x01", None]
    summary = sender.write([LARGE, b"b", LARGE], dead_letters=DEAD_LETTERS, shardingKey=keys)
    assert (summary.rows, summary.dead_letters) == (2, 1)
    assert sender.destinations == [[SelectByHash("x"), None], None]


def test_errors_survive_pickling() -> None:
    error = WriteError("text", 3, [1, 2])
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.acknowledged, copy.rows) == ("text", 3, (1, 2))
