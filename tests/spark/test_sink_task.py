"""A task of the sink: sending, retries and errors."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import attrs
import pyarrow as pa
import pytest

from rocketmq_py.errors import BrokerBusyError, MessageRefusedError, RocketMQError, TopicNotFoundError
from rocketmq_py.message import Message, MessageQueue, SendResult, SendStatus
from rocketmq_py.producer.selectors import SelectByHash
from rocketmq_py.spark.rows import Destination, MessageBuilder
from rocketmq_py.spark.sink_task import MAX_RETRY_DELAY, RowWriter, SendOutcome, WriteError, WriteSummary
from rocketmq_py.spark.stamps import TaskIdentity

TASK = TaskIdentity("query", 7, 2, attempt=1)
RESULT = SendResult(SendStatus.SEND_OK, "id", "offset id", MessageQueue("T", "a", 0), 0)
BUSY = BrokerBusyError(2, "too many requests", "broker:1")
REFUSED = MessageRefusedError(13, "the message is illegal", "broker:1")


@attrs.define
class ScriptedSender:
    """A fake sender with a clock. The n-th send fails with ``errors[n]``, by body; further sends succeed."""

    errors: Sequence[dict[bytes, RocketMQError]]
    sent: list[list[bytes]] = attrs.field(factory=list)
    destinations: list[Sequence[Destination] | None] = attrs.field(factory=list)
    time: float = 0.0
    pauses: list[float] = attrs.field(factory=list)

    def send_all(
        self, messages: Sequence[Message], *, queues: Sequence[Destination] | None = None
    ) -> Sequence[SendOutcome]:
        errors = self.errors[len(self.sent)] if len(self.sent) < len(self.errors) else {}
        self.sent.append([message.body for message in messages])
        self.destinations.append(queues)
        self.time += 0.5
        return [errors.get(message.body, RESULT) for message in messages]

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds

    def write(
        self, *batches: Sequence[bytes | None], topic: str = "T", **columns: Sequence[str]
    ) -> WriteSummary:
        names = ["body", *columns]
        builder = MessageBuilder({name: index for index, name in enumerate(names)}, topic, None)
        writer = RowWriter(self, builder, TASK, 60.0, lambda: self.time, self.sleep)
        return writer.write([pa.record_batch([pa.array(b), *columns.values()], names=names) for b in batches])


def test_rows_are_sent_batch_by_batch() -> None:
    sender = ScriptedSender([])
    assert sender.write([b"a", b"bb"], [], [b"ccc"]) == WriteSummary(3, 6, 0, 1.0, 0.5)
    assert sender.sent == [[b"a", b"bb"], [b"ccc"]]


def test_rows_are_sent_again_after_retriable_errors() -> None:
    sender = ScriptedSender([{b"a": BUSY, b"c": BUSY}, {b"c": BUSY}])
    written = sender.write([b"a", b"b", b"c"])
    assert sender.sent == [[b"a", b"b", b"c"], [b"a", b"c"], [b"c"]]
    assert sender.pauses == [0.1, 0.2]
    assert (written.rows, written.resent, written.body_bytes) == (3, 3, 3)


def test_resent_rows_keep_their_destination() -> None:
    sender = ScriptedSender([{b"b": BUSY}])
    sender.write([b"a", b"b"], shardingKey=pa.array(["x", "y"]))
    assert sender.destinations == [[SelectByHash("x"), SelectByHash("y")], [SelectByHash("y")]]


def test_retries_end_after_the_retry_timeout() -> None:
    sender = ScriptedSender([{b"a": BUSY}] * 100)
    with pytest.raises(WriteError, match=r"row 0 \(topic 'T'\): broker:1 answered SYSTEM_BUSY") as caught:
        sender.write([b"a"])
    assert caught.value.rows == (0,)
    assert 60 <= sender.time <= 60 + MAX_RETRY_DELAY + 1
    assert max(sender.pauses) == MAX_RETRY_DELAY


def test_refused_row_fails_the_task_at_once() -> None:
    sender = ScriptedSender([{}, {b"d": REFUSED}])
    with pytest.raises(WriteError) as caught:
        sender.write([b"a", b"b"], [b"c", b"d", b"e"], [b"f"])
    assert sender.sent == [[b"a", b"b"], [b"c", b"d", b"e"]]
    assert sender.pauses == []
    error = caught.value
    assert (error.acknowledged, error.rows) == (4, (3,))
    assert str(error) == (
        "partition 2 of batch 7 of query, attempt 1: 1 of 5 rows were not acknowledged; row 3 (topic 'T'): "
        "broker:1 answered MESSAGE_ILLEGAL (13): the message is illegal (refused); the other rows from 0 to "
        "4 are stored, and no later row was sent"
    )


def test_error_names_only_the_first_failed_rows() -> None:
    bodies = [b"%d" % number for number in range(10)]
    with pytest.raises(
        WriteError, match=r"10 of 10 rows .* row 4 .*; and 5 more; no row is known to be stored"
    ):
        ScriptedSender([dict.fromkeys(bodies, REFUSED)]).write(bodies)


def test_invalid_row_fails_the_task_before_its_batch_is_sent() -> None:
    sender = ScriptedSender([])
    with pytest.raises(
        WriteError, match=r"row 3: its body is null; rows 0 to 1 are stored, and no other"
    ) as e:
        sender.write([b"a", b"b"], [b"c", None])
    assert sender.sent == [[b"a", b"b"]]
    assert (e.value.acknowledged, e.value.rows) == (2, (3,))


def test_missing_topic_fails_the_task_at_once() -> None:
    not_found = TopicNotFoundError("New", "127.0.0.1:9876")
    sender = ScriptedSender([{b"a": not_found}])
    with pytest.raises(WriteError, match="topic 'New' does not exist"):
        sender.write([b"a"], topic="New")
    assert sender.pauses == []


def test_topic_that_disappears_is_retried_while_its_broker_restarts() -> None:
    not_found = TopicNotFoundError("Gone", "127.0.0.1:9876")
    sender = ScriptedSender([{}, {b"b": not_found}])
    sender.write([b"a"], [b"b"], topic="Gone")
    assert sender.sent == [[b"a"], [b"b"], [b"b"]]


def test_errors_survive_pickling() -> None:
    error = WriteError("text", 3, [1, 2])
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.acknowledged, copy.rows) == ("text", 3, (1, 2))
