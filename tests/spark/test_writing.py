from __future__ import annotations

import pickle
from collections.abc import Sequence

import attrs
import pyarrow as pa
import pytest

from rocketmq_py.errors import BrokerBusyError, MessageRefusedError, RocketMQError, TopicNotFoundError
from rocketmq_py.message import Message, MessageQueue, SendResult, SendStatus
from rocketmq_py.producer.selectors import SelectByHash
from rocketmq_py.spark.rows import Destination, RowReader
from rocketmq_py.spark.stamps import Origin
from rocketmq_py.spark.writing import LONGEST_PAUSE, Outcome, RowWriter, WriteError, Written

ORIGIN = Origin("query", 7, 2, attempt=1)
RESULT = SendResult(SendStatus.SEND_OK, "id", "offset id", MessageQueue("T", "a", 0), 0)
BUSY = BrokerBusyError(2, "too many requests", "broker:1")
REFUSED = MessageRefusedError(13, "the message is illegal", "broker:1")


@attrs.define
class Scripted:
    """Stands in for a producer: each list of messages gets the next answers, and in the end good ones."""

    answers: Sequence[dict[bytes, RocketMQError]]
    sent: list[list[bytes]] = attrs.field(factory=list)
    destinations: list[Sequence[Destination] | None] = attrs.field(factory=list)
    time: float = 0.0
    pauses: list[float] = attrs.field(factory=list)

    def send_all(
        self, messages: Sequence[Message], *, queues: Sequence[Destination] | None = None
    ) -> Sequence[Outcome]:
        answers = self.answers[len(self.sent)] if len(self.sent) < len(self.answers) else {}
        self.sent.append([message.body for message in messages])
        self.destinations.append(queues)
        self.time += 0.5
        return [answers.get(message.body, RESULT) for message in messages]

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds

    def write(self, *batches: Sequence[bytes | None], topic: str = "T", **columns: Sequence[str]) -> Written:
        names = ["body", *columns]
        reader = RowReader({name: place for place, name in enumerate(names)}, topic, None)
        writer = RowWriter(self, reader, ORIGIN, 60.0, lambda: self.time, self.sleep)
        return writer.write([pa.record_batch([pa.array(b), *columns.values()], names=names) for b in batches])


def test_all_rows() -> None:
    producer = Scripted([])
    assert producer.write([b"a", b"bb"], [], [b"ccc"]) == Written(3, 6, 0, 1.0, 0.5)
    assert producer.sent == [[b"a", b"bb"], [b"ccc"]]


def test_rows_that_no_broker_takes_just_then_are_sent_again() -> None:
    producer = Scripted([{b"a": BUSY, b"c": BUSY}, {b"c": BUSY}])
    written = producer.write([b"a", b"b", b"c"])
    assert producer.sent == [[b"a", b"b", b"c"], [b"a", b"c"], [b"c"]]
    assert producer.pauses == [0.1, 0.2]
    assert (written.rows, written.resent, written.body_bytes) == (3, 3, 3)


def test_they_go_to_the_same_places() -> None:
    producer = Scripted([{b"b": BUSY}])
    producer.write([b"a", b"b"], shardingKey=pa.array(["x", "y"]))
    assert producer.destinations == [[SelectByHash("x"), SelectByHash("y")], [SelectByHash("y")]]


def test_not_for_ever() -> None:
    producer = Scripted([{b"a": BUSY}] * 100)
    with pytest.raises(WriteError, match=r"row 0 \(topic 'T'\): broker:1 answered SYSTEM_BUSY") as caught:
        producer.write([b"a"])
    assert caught.value.rows == (0,)
    assert 60 <= producer.time <= 60 + LONGEST_PAUSE + 1
    assert max(producer.pauses) == LONGEST_PAUSE


def test_a_row_that_is_refused_fails_the_task_at_once() -> None:
    producer = Scripted([{}, {b"d": REFUSED}])
    with pytest.raises(WriteError) as caught:
        producer.write([b"a", b"b"], [b"c", b"d", b"e"], [b"f"])
    assert producer.sent == [[b"a", b"b"], [b"c", b"d", b"e"]]
    assert producer.pauses == []
    error = caught.value
    assert (error.acknowledged, error.rows) == (4, (3,))
    assert str(error) == (
        "partition 2 of batch 7 of query, attempt 1: 1 of 5 rows were not acknowledged; row 3 (topic 'T'): "
        "broker:1 answered MESSAGE_ILLEGAL (13): the message is illegal (refused); rows 0 to 4 but for these "
        "are stored, and no later row was sent"
    )


def test_only_the_first_ones_are_named() -> None:
    bodies = [b"%d" % number for number in range(10)]
    with pytest.raises(
        WriteError, match=r"10 of 10 rows .* row 4 .*; and 5 more; none is known to be stored"
    ):
        Scripted([dict.fromkeys(bodies, REFUSED)]).write(bodies)


def test_a_row_that_is_wrong_is_found_before_its_batch_is_sent() -> None:
    producer = Scripted([])
    with pytest.raises(
        WriteError, match=r"row 3: its body is null; rows 0 to 1 are stored, and no other"
    ) as e:
        producer.write([b"a", b"b"], [b"c", None])
    assert producer.sent == [[b"a", b"b"]]
    assert (e.value.acknowledged, e.value.rows) == (2, (3,))


def test_a_topic_that_is_not_to_be_found() -> None:
    nowhere = TopicNotFoundError("New", "127.0.0.1:9876")
    producer = Scripted([{b"a": nowhere}])
    with pytest.raises(WriteError, match="topic 'New' does not exist"):
        producer.write([b"a"], topic="New")
    assert producer.pauses == []


def test_a_topic_that_is_gone_while_its_broker_restarts() -> None:
    gone = TopicNotFoundError("Gone", "127.0.0.1:9876")
    producer = Scripted([{}, {b"b": gone}])
    producer.write([b"a"], [b"b"], topic="Gone")
    assert producer.sent == [[b"a"], [b"b"], [b"b"]]


def test_errors_travel() -> None:
    error = WriteError("text", 3, [1, 2])
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.acknowledged, again.rows) == ("text", 3, (1, 2))
