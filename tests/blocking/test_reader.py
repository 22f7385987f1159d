"""Reading for threads."""

from __future__ import annotations

import gc
import pickle
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketmq_py import Message, OffsetRange, Position, SendResult
from rocketmq_py.blocking import Client
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.retry import RETRY_DELAYS
from rocketmq_py.errors import ClosedError, ConfigurationError, RocketMQError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.stored_message import decode_messages


@pytest.fixture
def sent(client: Client) -> list[SendResult]:
    """A thousand messages in topic T."""
    with client.producer("g", linger=0.005) as producer:
        outcomes = producer.send_all([Message("T", b"%d" % number, keys="k") for number in range(1000)])
    return [outcome for outcome in outcomes if isinstance(outcome, SendResult)]


def ranges_of(client: Client) -> list[OffsetRange]:
    with client.reader() as reader:
        return [OffsetRange(queue, first, end) for queue, (first, end) in reader.offsets("T").items()]


def test_reader_methods(client: Client, sent: list[SendResult]) -> None:
    with client.reader() as reader:
        assert reader.topics() == ["T"]
        offsets = reader.offsets(["T"])
        assert offsets == reader.offsets("T")
        assert sum(end for _, end in offsets.values()) == 1000
        assert reader.offsets_at(["T"], Position.time(0)) == dict.fromkeys(offsets, 0)
        assert reader.offsets_at(iter(["T"]), Position.time(2**50)) == {
            queue: end for queue, (_, end) in offsets.items()
        }
        with pytest.raises(TopicNotFoundError):
            reader.offsets("nowhere")


def test_committing(client: Client, sent: list[SendResult]) -> None:
    with client.reader() as reader:
        queues = list(reader.offsets("T"))
        assert reader.committed("g", queues) == dict.fromkeys(queues)
        reader.commit("g", dict.fromkeys(queues, 7))
        assert reader.committed("g", iter(queues)) == dict.fromkeys(queues, 7)


def test_iterators_of_arguments_run_in_the_callers_thread(client: Client, sent: list[SendResult]) -> None:
    def topics() -> Iterator[str]:
        threads.append(threading.current_thread())
        yield "T"

    threads: list[threading.Thread] = []
    with client.reader() as reader:
        assert {queue.topic for queue in reader.offsets(topics())} == {"T"}
    assert threads == [threading.current_thread()]


def test_a_range(client: Client, sent: list[SendResult]) -> None:
    with client.reader() as reader:
        # The queues of batches are random, so a queue may be empty.
        queue, (_, end) = max(reader.offsets("T").items(), key=lambda item: item[1][1])
        assert [one.queue_offset for one in reader.range(queue)] == list(range(end))
        some = reader.range(queue, 3, 50)
        assert [one.queue_offset for one in some] == list(range(3, 50))
        assert list(some) == [], "the end stays the end"
        with pytest.raises(ConfigurationError):
            reader.range(queue, tags="A", sql="a = 1")


def test_spans_are_pulled_whole(client: Client, sent: list[SendResult]) -> None:
    ranges = ranges_of(client)
    assert pickle.loads(pickle.dumps(ranges)) == ranges
    with client.reader() as reader:
        for options in ({}, {"parallel": 1}, {"max_buffered_bytes": 1}):
            chunks = reader.pull(ranges, **options)  # type: ignore[arg-type]
            found = [
                message.message_id
                for chunk in chunks
                for message in decode_messages(chunk.body, chunk.range.queue.broker_name)
            ]
            assert sorted(found) == sorted(result.message_id for result in sent)
            assert list(chunks) == [], "the end stays the end"
            chunks.close()
    with pytest.raises(ClosedError):
        reader.pull(ranges)


def members(client: Client) -> int:
    """Return the number of open objects of all readers of a client."""
    return sum(len(reader._children) for reader in client._children)


def test_pulls_end_when_they_are_closed_or_dropped(client: Client, sent: list[SendResult]) -> None:
    with client.reader() as reader:
        chunks = reader.pull(ranges_of(client))
        next(chunks)
        assert members(client) == 1
        were_open = [chunks.is_open]
        chunks.close()
        assert members(client) == 0
        assert [*were_open, chunks.is_open] == [True, False]
        with pytest.raises(ClosedError):
            for _ in chunks:
                pass

        with reader.pull(ranges_of(client)) as chunks:
            next(chunks)
        assert members(client) == 0

        chunks = reader.pull(ranges_of(client))
        next(chunks)
        del chunks
        gc.collect()
        reader.topics()  # reaches the trio thread after the close
        for _ in range(100):
            reader.topics()
            if not members(client):
                break
        assert members(client) == 0


def test_an_error_ends_a_pull(
    client: Client, sent: list[SendResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RETRY_DELAYS, PullState.FAILED, 0.01)  # before the retry
    with client.reader() as reader:
        chunks = reader.pull([OffsetRange(MessageQueue("T", "broker-z", 0), 0, 1)], retry_timeout=0.001)
        with pytest.raises(RocketMQError, match="broker-z"):
            list(chunks)
        assert members(client) == 0


def test_following_a_topic(client: Client, sent: list[SendResult]) -> None:
    with client.reader() as reader, client.producer("g") as producer:
        with reader.open("T", start="earliest", stop_at_end=True) as messages:
            assert len({message.message_id for message in messages}) == 1000
        with reader.open("T") as messages:
            result = producer.send(Message("T", b"new"))
            assert next(messages).message_id == result.message_id


def test_an_interruption_of_the_waiting_loses_no_message(client: Client, sent: list[SendResult]) -> None:
    with client.reader() as reader, client.producer("g") as producer:
        messages = reader.open("T")
        main = threading.main_thread().ident
        assert main is not None
        going = threading.Event()

        def interrupt() -> None:
            going.wait()
            signal.pthread_kill(main, signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may come before the waiting
            going.set()
            next(messages)
        interrupting.join()
        result = producer.send(Message("T", b"new"))
        assert next(messages).message_id == result.message_id
        messages.close()


def test_many_threads_read_through_one_reader(client: Client, sent: list[SendResult]) -> None:
    ranges = ranges_of(client)
    with client.reader() as reader:

        def read(_: int) -> int:
            return sum(chunk.next - chunk.first for chunk in reader.pull(ranges))

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(read, range(12))) == [1000] * 12
