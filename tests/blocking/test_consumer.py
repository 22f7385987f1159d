"""Consumers, transactions and requests for threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from rocketmq_py import (
    AssignmentListener,
    Message,
    MessageQueue,
    PoppedMessage,
    Position,
    ReceivedMessage,
    TransactionState,
)
from rocketmq_py.admin import MessageType
from rocketmq_py.blocking import Client
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import ClosedError, ConfigurationError
from tests.blocking.conftest import BrokerThread, count

NUMBERS = [b"%d" % number for number in range(100)]
FIRST = "earliest"


@pytest.fixture
def sent(client: Client) -> Client:
    with client.producer("sender", send_timeout=60.0) as producer:
        for future in [producer.submit(Message("T", body)) for body in NUMBERS]:
            future.result()
    return client


def test_handlers_have_their_own_threads(sent: Client) -> None:
    seen: list[bytes] = []
    threads: set[str] = set()

    def handle(message: ReceivedMessage) -> None:
        threads.add(threading.current_thread().name)
        seen.append(message.body)
        if len(seen) == len(NUMBERS):
            consumer.stop()

    with sent.push_consumer("g", consume_from=FIRST) as consumer:
        consumer.subscribe("T")
        consumer.run(handle)
    assert sorted(seen) == sorted(NUMBERS)
    assert threads == {"rocketmq-py handler"}


def test_consumer_runs_in_the_background_and_retries(sent: Client) -> None:
    times: list[bytes] = []
    done = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        times.append(message.body)
        if len(times) == 1:
            raise LookupError("try again")
        if len(times) == len(NUMBERS) + 1:
            done.set()

    with sent.push_consumer("g", consume_from=FIRST, orderly=True, suspend_current_queue=0.01) as consumer:
        consumer.subscribe("T")
        ended = consumer.start(handle)
        done.wait()
    ended.result()
    assert sorted(set(times)) == sorted(NUMBERS)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ClosedError])
def test_a_signal_handler_that_raises_ends_a_run_when_its_handlers_have_ended(
    sent: Client, error: type[BaseException]
) -> None:
    seen: list[bytes] = []

    def raise_error(*_: object) -> None:
        raise error  # ClosedError: the signal handler has used a closed producer

    def handle(message: ReceivedMessage) -> None:
        if not seen:
            os.kill(os.getpid(), signal.SIGINT)
        seen.append(message.body)

    before = signal.signal(signal.SIGINT, raise_error)
    with sent.push_consumer("g", consume_from=FIRST) as consumer:
        consumer.subscribe("T")
        try:
            with pytest.raises(error):
                consumer.run(handle)
        finally:
            signal.signal(signal.SIGINT, before)
        first = len(seen)
        with sent.reader() as reader:
            committed = reader.committed("g", reader.offsets("T"))
    assert first == len(seen) == sum(offset or 0 for offset in committed.values())


def test_a_second_ctrl_c_right_after_the_first_ends_the_run(
    sent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        go.wait()

    with sent.push_consumer("g", consume_from=FIRST, concurrency=1) as consumer:
        consumer.subscribe("T")
        post = consumer._thread.post

        def post_and_interrupt(function: Callable[[], object]) -> None:
            post(function)
            if isinstance(function, partial) and function.func == consumer._stop:
                raise KeyboardInterrupt

        monkeypatch.setattr(consumer._thread, "post", post_and_interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                consumer.run(handle)
            assert consumer._target._session is None
        finally:
            go.set()


def test_a_second_ctrl_c_does_not_wait_for_handlers(sent: Client) -> None:
    stuck, go = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        stuck.set()
        go.wait()

    with sent.push_consumer("g", consume_from=FIRST, close_timeout=3600) as consumer:
        consumer.subscribe("T")

        def interrupt_twice() -> None:
            stuck.wait()
            os.kill(os.getpid(), signal.SIGINT)
            session = consumer._target._session
            while session is not None and not session.stopping.is_set():
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        interrupting = threading.Thread(target=interrupt_twice)
        interrupting.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                consumer.run(handle)
        finally:
            go.set()
            interrupting.join()
        with sent.reader() as reader:
            assert not any(reader.committed("g", reader.offsets("T")).values())


@pytest.mark.parametrize("how", ["stopped twice", "closing interrupted"])
def test_an_end_at_once_does_not_wait_for_handlers(sent: Client, how: str) -> None:
    """With a close_timeout of an hour the thread outlasts the consumer."""
    stuck, go = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        stuck.set()
        go.wait()

    consumer = sent.push_consumer("g", consume_from=FIRST, close_timeout=3600, concurrency=1)
    consumer.subscribe("T")
    ended = consumer.start(handle)
    stuck.wait()

    def interrupt() -> None:
        session = consumer._target._session
        while session is not None and not session.stopping.is_set():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    try:
        if how == "stopped twice":
            consumer.stop()
            consumer.stop()
        else:
            interrupting.start()
            with pytest.raises(KeyboardInterrupt):
                consumer.close()
            interrupting.join()
        ended.result(timeout=20)
        consumer.close()
        assert consumer.statistics.cut_off == 1
    finally:
        go.set()


def test_a_handler_may_stop_its_consumer_twice_and_is_waited_for(sent: Client) -> None:
    done: list[ReceivedMessage] = []
    with sent.push_consumer("g", consume_from=FIRST) as consumer:
        consumer.subscribe("T")

        def handle(message: ReceivedMessage) -> None:
            consumer.stop()
            consumer.stop()
            time.sleep(0.1)
            done.append(message)

        consumer.run(handle)
        assert done
        assert consumer.statistics.cut_off == 0


def test_wrong_handlers(client: Client) -> None:
    async def handle(message: ReceivedMessage) -> None: ...

    with client.push_consumer("g") as consumer:
        consumer.subscribe("T")
        with pytest.raises(ConfigurationError, match="plain function"):
            consumer.run(handle)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="plain function"):
            consumer.run(None)  # type: ignore[arg-type]


def test_polls(sent: Client) -> None:
    with sent.lite_pull_consumer("g", consume_from=FIRST) as consumer:
        consumer.subscribe("T")
        seen = [message.body for message in consumer.poll(max_messages=7, wait=60)]
        for message in consumer:
            seen.append(message.body)
            if len(seen) == len(NUMBERS):
                break
        consumer.commit()
    assert sorted(seen) == sorted(NUMBERS)


def test_listener_has_its_own_thread(sent: Client) -> None:
    threads: list[int] = []
    have_sought = threading.Event()

    class Listener(AssignmentListener):
        def on_assigned(self, queues: list[MessageQueue]) -> None:
            threads.append(threading.get_ident())
            for queue in queues:
                consumer.seek(queue, "latest")
            have_sought.set()

        def on_revoked(self, queues: list[MessageQueue]) -> None:
            consumer.commit()
            threads.append(threading.get_ident())

    class Async(AssignmentListener):
        async def on_revoked(self, queues: list[MessageQueue]) -> None:
            pass

    with sent.lite_pull_consumer(
        "g", consume_from=FIRST, auto_commit=False, assignment_listener=Listener()
    ) as consumer:
        consumer.subscribe("T")
        assert consumer.poll(wait=0.2) == []
        assert have_sought.wait(60)
        queues = consumer.assignment
    with sent.lite_pull_consumer("h", assignment_listener=Listener()) as consumer:
        consumer.assign(queues[:1])
    assert len(threads) == 4
    assert threading.get_ident() not in threads
    with sent.lite_pull_consumer("g") as consumer:
        with sent.reader() as reader:
            ends = reader.offsets_at("T", "latest")
        assert {queue: consumer.committed(queue) for queue in queues} == {
            queue: ends[queue] for queue in queues
        }
    with pytest.raises(ConfigurationError, match="plain methods"):
        sent.push_consumer("g", assignment_listener=Async())


def test_messages_of_an_interrupted_poll_go_to_the_next_poll(sent: Client) -> None:
    with sent.lite_pull_consumer("g", consume_from=FIRST) as consumer:
        consumer.subscribe("T")
        fetched = consumer._call(consumer._target.poll, max_messages=9, wait=60)
        consumer._undelivered.items.extend(fetched)
        seen = [message.body for message in consumer.poll(max_messages=5)]
        while len(seen) < len(NUMBERS):
            seen += [message.body for message in consumer.poll(wait=60)]
    assert sorted(seen) == sorted(NUMBERS)


@pytest.mark.parametrize("acknowledge", ["commit", "assign"])
def test_messages_of_an_interrupted_poll_are_not_acknowledged_before_they_are_polled(
    sent: Client, acknowledge: str
) -> None:
    with sent.lite_pull_consumer("g", consume_from=FIRST) as consumer:
        queues = consumer.queues("T")
        consumer.assign(queues)
        fetched = consumer._call(consumer._target.poll, max_messages=9, wait=60)
        consumer._undelivered.items.extend(fetched)
        seen = [message.body for message in consumer.poll(max_messages=5)]
        if acknowledge == "commit":
            consumer.commit()
        else:
            consumer.assign(queues)
    with sent.lite_pull_consumer("g", consume_from=FIRST) as consumer:
        consumer.assign(queues)
        while messages := consumer.poll(wait=60):
            seen += [message.body for message in messages]
            if len(seen) >= len(NUMBERS):
                break
    assert sorted(seen) == sorted(NUMBERS)


@pytest.mark.parametrize(
    ("position", "first"),
    [(1, 1), ("earliest", 0), ("latest", None), (Position.time(0), 0)],
)
def test_seek_drops_messages_of_an_interrupted_poll(
    sent: Client, position: Position | str | int, first: int | None
) -> None:
    with sent.lite_pull_consumer("g", consume_from=FIRST) as consumer:
        sought = consumer.queues("T")[0]
        consumer.assign([sought])
        consumer._undelivered.items.extend(consumer._call(consumer._target.poll, wait=60))
        consumer.seek(sought, position)
        polled = consumer.poll(max_messages=1, wait=0.1 if first is None else 60)
        assert [message.queue_offset for message in polled] == ([] if first is None else [first])


def test_pops(sent: Client) -> None:
    seen: list[bytes] = []
    with sent.pop_consumer("g", consume_from=FIRST) as consumer:
        consumer.subscribe("T")
        while len(seen) < len(NUMBERS):
            messages: list[PoppedMessage] = consumer.receive(wait=60)
            seen += [message.body for message in messages]
            consumer.ack(*messages)
    assert sorted(seen) == sorted(NUMBERS)


def test_messages_of_an_interrupted_receive_go_to_the_next_receive_of_their_topic(sent: Client) -> None:
    with sent.producer("g") as producer:
        producer.send(Message("Other", b"other"))
    with sent.pop_consumer("g", consume_from=FIRST) as consumer:
        consumer.subscribe("T")
        consumer.subscribe("Other")
        fetched = consumer._call(consumer._target.receive, "T", max_messages=3, wait=60)
        consumer._undelivered.items.extend(fetched)
        assert [message.body for message in consumer.receive("Other", wait=60)] == [b"other"]
        assert consumer.receive("T", max_messages=1) == fetched[:1]
        assert consumer.receive() == fetched[1:]


def test_concurrent_receives_return_their_own_messages(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.admin() as admin:
        admin.topics.create("T")
    with client.pop_consumer("g", consume_from=FIRST) as consumer, client.producer("sender") as producer:
        consumer.subscribe("T")
        fetched = threading.Barrier(2, timeout=60)
        call = consumer._call

        def call_together(*arguments: Any, **named: Any) -> Any:
            result = call(*arguments, **named)
            fetched.wait()  # both calls have fetched before either returns
            return result

        with monkeypatch.context() as patched, ThreadPoolExecutor(2) as pool:
            patched.setattr(consumer, "_call", call_together)
            receiving = [pool.submit(consumer.receive, max_messages=1, wait=60) for _ in range(2)]
            for body in NUMBERS[:2]:
                producer.send(Message("T", body))
            received = [[message.body for message in future.result()] for future in receiving]
        assert sorted(received) == [[b"0"], [b"1"]]


def test_messages_are_held_whatever_the_calling_thread_does() -> None:
    renewed, acknowledged = threading.Semaphore(0), threading.Event()

    def seen(code: int, *_: object) -> None:
        if code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
            renewed.release()
        elif code == RequestCode.ACK_MESSAGE:
            acknowledged.set()

    broker = BrokerThread(on_request=seen)
    with Client(broker.start()) as client, client.pop_consumer("g", consume_from=FIRST) as consumer:
        with client.producer("sender") as producer:
            producer.send(Message("T", b"x"))
        consumer.subscribe("T")
        (message,) = consumer.receive(wait=60)
        with consumer.holding(message, invisible=1.0):
            for _ in range(4):
                assert renewed.acquire(timeout=60)  # this thread waits: the trio thread renews
            assert not acknowledged.is_set()
        assert acknowledged.is_set()
        with pytest.raises(LookupError, match="mine"), consumer.holding(message):
            raise LookupError("mine")
        with pytest.raises(KeyboardInterrupt), consumer.holding(message):
            raise KeyboardInterrupt
        assert consumer.statistics.topics["T"].handled == 1
    assert consumer.statistics.topics["T"].handled == 1, "after closing, too"
    broker.stop()


def test_held_messages_of_lite_topics_are_acknowledged_after_the_block(client: Client) -> None:
    with client.admin() as admin:
        admin.topics.create("Sessions", queues=1, message_type=MessageType.LITE)
        admin.groups.create("g", attributes={"lite.bind.topic": "Sessions"})
        with (
            client.lite_topic_consumer("g", parent="Sessions") as consumer,
            client.producer("senders") as producer,
        ):
            consumer.subscribe_lite("s")
            producer.send(Message("Sessions", b"x", lite_topic="s"))
            (message,) = consumer.receive(wait=60)
            with pytest.raises(LookupError, match="mine"), consumer.holding(message):
                raise LookupError("mine")
            with consumer.holding(message):
                assert admin.lite_topics.lag("g").lag == 1
            assert admin.lite_topics.lag("g").lag == 0


def test_transactions(client: Client) -> None:
    def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    def work(message: Message, transaction_id: str) -> TransactionState:
        return TransactionState.COMMIT

    with client.transaction_producer("g", check, on_error=TransactionState.ROLLBACK) as producer:
        assert producer.send_in_transaction(Message("T", b"x"), work).state is TransactionState.COMMIT
        with producer.transaction(Message("T", b"x")) as transaction:
            assert transaction.transaction_id
        with pytest.raises(LookupError, match="mine"), producer.transaction(Message("T", b"x")):
            raise LookupError("mine")
        with pytest.raises(KeyboardInterrupt), producer.transaction(Message("T", b"x")):
            raise KeyboardInterrupt
        statistics = producer.transaction_statistics
        assert (statistics.committed, statistics.rolled_back, statistics.in_progress) == (2, 1, 0)
    assert count(client, "T") == 2


def test_requests_and_replies(client: Client) -> None:
    with client.producer("asks") as asks, client.producer("replies") as replies:

        def answer(message: ReceivedMessage) -> None:
            replies.reply(message, message.body.upper())

        with client.push_consumer("answers") as consumer:
            consumer.subscribe("Q")
            consumer.start(answer)
            assert asks.request(Message("Q", b"hello"), timeout=60).body == b"HELLO"
            futures = [asks.submit_request(Message("Q", b"%d" % number), timeout=60) for number in range(5)]
            assert [future.result().body for future in futures] == [b"0", b"1", b"2", b"3", b"4"]
