"""Producers for threads."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed, wait
from itertools import repeat
from typing import Any

import attrs
import pytest
import trio
import trio.testing

import rocketmq_py
from rocketmq_py import Message, MessageQueue, SendResult
from rocketmq_py.blocking import Client, Producer, Reader
from rocketmq_py.blocking.futures import ThreadFuture
from rocketmq_py.errors import (
    ClosedError,
    ConfigurationError,
    InvalidMessageError,
    MessageTooLargeError,
    NameServerError,
    ReplyTimeoutError,
    RocketMQError,
)
from rocketmq_py.hooks import ConsumerHook, RpcHook
from rocketmq_py.producer import ProducerHook, SendContext
from rocketmq_py.remoting.nurseries import in_trio_thread
from rocketmq_py.selectors import SelectByHash
from tests.blocking.conftest import BrokerThread, count, no_collection


def body(number: int) -> bytes:
    return b"%d" % number


def bodies(client: Client, topic: str) -> list[list[bytes]]:
    """Return the number of messages of each queue of a topic."""
    with client.reader() as reader:
        return [[message.body for message in reader.range(queue)] for queue in reader.offsets(topic)]


def test_the_ways_of_sending(client: Client) -> None:
    with client.producer("g") as producer:
        result = producer.send(Message("T", b"awaited"))
        assert isinstance(result, SendResult)
        (queue, *_) = producer.queues("T")
        assert producer.send(Message("T", b"there"), queue=queue, timeout=60).queue == queue
        future = producer.submit(Message("T", b"soon"), queue=SelectByHash("key"))
        assert future.result().message_id
        assert future.exception() is None
        producer.send_oneway(Message("T", b"oneway"))
        assert len(producer.send_batch([Message("T", b"one"), Message("T", b"two")])) == 2
        assert producer.statistics.sent == 5
        assert producer.in_flight == 0


def test_sends_leave_nothing_for_the_garbage_collector(client: Client) -> None:
    with client.producer("g") as producer:
        producer.send(Message("T", b"the first waits for a route, in a task"))
        with no_collection() as requests_left:
            for _ in range(16):
                producer.send(Message("T", b"x"))
            assert requests_left() < 4, "only the read loops may still reference their last requests"


def test_errors_are_the_trio_producers(client: Client) -> None:
    with client.producer("g", max_message_size=10) as producer:
        with pytest.raises(MessageTooLargeError):
            producer.send(Message("T", bytes(11)))
        future = producer.submit(Message("T", bytes(11)))
        with pytest.raises(MessageTooLargeError):
            future.result()
        assert isinstance(future.exception(), MessageTooLargeError)
    with pytest.raises(ConfigurationError, match="did you mean 'retries'"):
        client.producer("g", retires=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="set it on the Client"):
        client.producer("g", namespace="n")  # type: ignore[call-arg]


def test_values_of_producers_are_read_in_the_trio_thread(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They iterate over dictionaries that the trio thread changes."""
    places: dict[str, bool] = {}

    def note(name: str) -> property:
        return property(lambda _: places.update({name: in_trio_thread()}) or 0)

    monkeypatch.setattr(rocketmq_py.Producer, "statistics", note("statistics"))
    monkeypatch.setattr(rocketmq_py.Producer, "in_flight", note("in_flight"))
    with client.producer("g") as producer:
        values: list[object] = [producer.statistics, producer.in_flight]
    assert values == [0, 0]
    assert places == {"statistics": True, "in_flight": True}


def test_requests_count_as_in_flight(client: Client) -> None:
    with client.producer("g") as producer:
        reply = producer.submit_request(Message("T", b"nobody replies"), timeout=1.0)
        assert producer.in_flight == producer.statistics.in_flight == 1
        with pytest.raises(ReplyTimeoutError):
            reply.result()
        assert producer.in_flight == 0


def test_queued_messages_of_batches_count_as_in_flight(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.producer("g", linger=10_000.0) as producer:
        may_go = trio.Event()
        accept = producer._target._accept

        async def accept_later(*arguments: Any) -> object:
            await may_go.wait()
            return accept(*arguments)

        monkeypatch.setattr(producer._target, "_accept", accept_later)
        futures = [producer.submit(Message("T", b"x")) for _ in range(3)]
        assert producer.in_flight == 3
        producer._thread.post(may_go.set)
        assert producer.in_flight == 3
        producer._thread.call(trio.testing.wait_all_tasks_blocked)
        assert producer.in_flight == 3
        producer.flush()
        assert all(future.done() for future in futures)
        assert producer.in_flight == 0


@pytest.mark.parametrize("way", ["send", "send_all"])
def test_messages_that_still_wait_are_stored_before_later_ones(
    client: Client, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with client.producer("g", linger=0.0) as producer:
        queue = producer.queues("T")[0]
        may_go, accept = trio.Event(), producer._target._accept

        async def accept_later(*arguments: Any) -> object:
            await may_go.wait()
            return accept(*arguments)

        def accept_first_later(*arguments: Any) -> object:
            monkeypatch.setattr(producer._target, "_accept", accept)
            return accept_later(*arguments)

        def send_last() -> int:
            message = Message("T", b"last")
            if way == "send":
                return producer.send(message, queue=queue).queue_offset
            (outcome,) = producer.send_all([message], queues=[queue])
            assert isinstance(outcome, SendResult)
            return outcome.queue_offset

        monkeypatch.setattr(producer._target, "_accept", accept_first_later)
        earlier = [producer.submit(Message("T", b"x"), queue=queue) for _ in range(3)]
        with ThreadPoolExecutor(1) as pool:
            last = pool.submit(send_last)
            while len(producer._send_queue._queue) < 3 and not last.done():
                producer._thread.call(trio.lowlevel.checkpoint)
            producer._thread.post(may_go.set)
            assert [one.result().queue_offset for one in earlier] == [0, 1, 2]
            assert last.result() == 3


def test_batched_messages_have_timeouts(client: Client, unused_address: str) -> None:
    with client.producer("g", linger=0.005) as producer:
        assert producer.submit(Message("T", b"x"), timeout=60).result()
        for timeout in ("soon", -1):
            with pytest.raises(ConfigurationError, match="timeout"):
                producer.submit(Message("T", b"x"), timeout=timeout).result()  # type: ignore[arg-type]


def test_a_selector_that_raises_fails_its_message_only(client: Client) -> None:
    def choose(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        raise LookupError("no queue for this")

    with client.producer("g") as producer:
        futures = [
            producer.submit(Message("T", b"1")),
            producer.submit(Message("T", b"2"), queue=choose),
            producer.submit(Message("T", b"3")),
        ]
        assert futures[0].result().status is futures[2].result().status
        with pytest.raises(LookupError, match="no queue for this"):
            futures[1].result()


def test_futures_work_with_the_standard_library(client: Client) -> None:
    with client.producer("g") as producer:
        futures = [producer.submit(Message("T", body(number))) for number in range(200)]
        assert {future.result().message_id for future in as_completed(futures)} == {
            future.result().message_id for future in futures
        }
        seen: list[SendResult] = []
        last = producer.submit(Message("T", b"last"))
        called = threading.Event()

        def note(future: Future[SendResult]) -> None:
            seen.append(future.result())
            called.set()

        last.add_done_callback(note)
        assert not wait([last]).not_done
        called.wait()
        assert seen == [last.result()]


def test_one_threads_messages_leave_in_order(client: Client) -> None:
    with client.producer("g") as producer:
        producer.send(Message("T", b"first"))
        queue = producer.queues("T")[0]
        with client.reader() as reader:
            (_, begin) = reader.offsets("T")[queue]
        for number in range(500):
            producer.submit(Message("T", body(number)), queue=queue)
        producer.flush()
        with client.reader() as reader:
            assert [message.body for message in reader.range(queue, begin)] == list(map(body, range(500)))


@pytest.mark.long
@pytest.mark.parametrize("limits", [{"max_in_flight": 3}, {"max_in_flight_bytes": 1000}])
def test_many_threads_share_the_space(client: Client, limits: dict[str, int]) -> None:
    with client.producer("g", **limits) as producer:  # type: ignore[arg-type]
        most: list[int] = []

        def hammer(number: int) -> int:
            futures = []
            for _ in range(100):
                futures.append(producer.submit(Message("T", bytes(200))))
                most.append(producer.in_flight)
            return len({future.result().message_id for future in futures})

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(hammer, range(8))) == [100] * 8
    assert 1 < max(most) <= 3 + 8, "each thread may pass the bound by one message"
    assert count(client, "T") == 800


def test_message_larger_than_the_limit_is_sent_alone(client: Client) -> None:
    with client.producer("g", max_in_flight_bytes=100) as producer:
        futures = [producer.submit(Message("T", bytes(1000))) for _ in range(3)]
        assert len({future.result().message_id for future in futures}) == 3


class BlockingHook(ProducerHook):
    """A hook that blocks the trio thread until it is released."""

    def __init__(self, producer: Producer) -> None:
        self.is_blocking, self.go_on = threading.Event(), threading.Event()
        producer.add_hook(self)

    def before_send(self, context: SendContext) -> None:
        self.is_blocking.set()
        self.go_on.wait()

    def after_send(self, context: SendContext) -> None:
        pass


def test_cancelling_queued_sends(client: Client) -> None:
    with client.producer("g") as producer:
        hook = BlockingHook(producer)
        first = producer.submit(Message("T", b"first"))
        hook.is_blocking.wait()
        second = producer.submit(Message("T", b"second"))
        third = producer.submit(Message("T", b"third"))
        assert not first.cancel(), "it is in flight"
        assert second.cancel()
        hook.go_on.set()
        first.result()
        third.result()
        with pytest.raises(CancelledError):
            second.result()
        assert producer.in_flight == 0
    assert count(client, "T") == 2


def test_results_that_time_out_leave_nothing_behind(client: Client) -> None:
    with client.producer("g") as producer:
        hook = BlockingHook(producer)
        future = producer.submit(Message("T", b"x"))
        hook.is_blocking.wait()
        for wait_for in (future.result, future.exception):
            for timeout in (0, 0.001):
                with pytest.raises(TimeoutError):
                    wait_for(timeout=timeout)
        assert isinstance(future, ThreadFuture)
        left = list(future._wakes or ())
        hook.go_on.set()
        assert left == []
        assert future.result().message_id


def test_waiting_for_futures_before_and_after_they_are_done(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    watch: list[Callable[[Future[SendResult]], object]] = [
        lambda future: future.result().message_id,
        lambda future: future.exception() is None,
        lambda future: wait([future]).done,
        lambda future: list(as_completed([future])),
    ]
    with client.producer("g") as producer, ThreadPoolExecutor(2 * len(watch)) as pool:
        hook = BlockingHook(producer)
        futures = [producer.submit(Message("T", b"x")) for _ in range(2 * len(watch))]
        hook.is_blocking.wait()
        assert [future.running() for future in futures] == [True] + [False] * (len(futures) - 1)
        assert not any(future.done() for future in futures)
        with pytest.raises(TimeoutError):
            futures[0].result(timeout=0)
        called: list[tuple[Future[SendResult], str]] = []
        for future in futures:
            future.add_done_callback(lambda one: called.append((one, "first")))
            future.add_done_callback(lambda _: 1 // 0)
            future.add_done_callback(lambda one: called.append((one, "last")))
        watching = [pool.submit(look, future) for look, future in zip(watch, futures, strict=False)]
        hook.go_on.set()
        assert all(watcher.result() for watcher in watching)
        producer.flush()
        assert all(future.done() and not future.running() and not future.cancelled() for future in futures)
        for future in futures:
            assert [when for one, when in called if one is future] == ["first", "last"]
        assert [record.message.split()[0] for record in caplog.records] == ["callback"] * len(futures)
        for look, future in zip(
            watch, futures[len(watch) :], strict=True
        ):  # no result has been retrieved yet
            assert look(future)
            future.add_done_callback(lambda one: called.append((one, "late")))
            assert called.pop() == (future, "late")


def test_interrupt_while_the_send_limit_is_reached(client: Client) -> None:
    with client.producer("g", max_in_flight=1) as producer:
        hook = BlockingHook(producer)
        first = producer.submit(Message("T", b"first"))
        main = threading.main_thread().ident
        assert main is not None

        def interrupt() -> None:
            hook.is_blocking.wait()
            signal.pthread_kill(main, signal.SIGINT)
            hook.go_on.set()

        hook.is_blocking.wait()
        interrupting = threading.Thread(target=interrupt)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may come a moment before, or in the call
            interrupting.start()
            while True:
                producer.submit(Message("T", b"more"))
        interrupting.join()
        first.result()
        producer.flush()
        assert producer.in_flight == 0


def test_a_callback_may_send_and_wait(client: Client) -> None:
    with client.producer("g", max_in_flight=1) as producer:
        done = threading.Event()

        def again(_: object) -> None:
            producer.send(Message("T", b"awaited"))
            first = producer.submit(Message("T", b"waits for space"))
            producer.submit(Message("T", b"waits for space, too")).result()
            first.result()
            producer.flush()
            last = producer.submit(Message("T", b"waits for its answer"))
            assert wait([last]).done == {last}
            done.set()

        producer.submit(Message("T", b"x")).add_done_callback(again)
        assert done.wait(60)
    assert count(client, "T") == 5


class RunInTrioThread(ProducerHook):
    """A hook that runs a function in the trio thread."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def before_send(self, context: SendContext) -> None:
        self._function()

    def after_send(self, context: SendContext) -> None:
        pass


def test_waiting_in_the_trio_thread_is_refused(address: str, client: Client) -> None:
    with (
        client.producer("g") as producer,
        client.producer("g", linger=0.005) as batching,
        client.reader() as reader,
    ):
        batch = [Message("T", b"x")]
        pending: list[Future[SendResult]] = []
        waits: dict[str, Callable[[], object]] = {
            "flush": producer.flush,
            "result": lambda: pending[0].result(),
            "result in time": lambda: pending[0].result(timeout=60),
            "exception": lambda: pending[0].exception(),
            "send": lambda: producer.send(Message("T", b"x")),
            "send_batch": lambda: producer.send_batch(batch),
            "queues": lambda: producer.queues("T"),
            "batching flush": batching.flush,
            "send_all": lambda: batching.send_all(batch),
            "topics": reader.topics,
            "range": lambda: next(reader.range(MessageQueue("T", "broker-a", 0))),
            "open": lambda: Producer(address),
            "client's": lambda: client.reader(),
        }
        refused: dict[str, str] = {}
        done = threading.Event()

        def call_all() -> None:
            remove()
            pending.append(producer.submit(Message("T", b"under way")))
            for name, wait in waits.items():
                try:
                    wait()
                except RuntimeError as error:
                    refused[name] = str(error)
            with pytest.raises(TimeoutError):
                pending[0].result(timeout=0)
            done.set()

        remove = producer.add_hook(RunInTrioThread(call_all))
        producer.submit(Message("T", b"x"))
        done.wait()
        assert refused.keys() == waits.keys()
        assert len(set(refused.values())) == 1
        assert "use submit, or make the call in another thread" in refused["flush"]
        assert pending[0].result().message_id


def test_close_waits_for_sends_in_flight(client: Client) -> None:
    producer = client.producer("g", send_timeout=60.0, close_timeout=60.0)  # for a busy machine
    futures = [producer.submit(Message("T", b"x")) for _ in range(2000)]
    producer.close()
    assert all(future.done() for future in futures)
    assert len({future.result().message_id for future in futures}) == 2000
    producer.close()
    assert not producer.is_open
    for use in (producer.send, producer.submit):
        with pytest.raises(ClosedError):
            use(Message("T", b"x"))


def test_closing_the_client_closes_its_producers_and_readers(address: str) -> None:
    client = Client(address)
    producer, batching, reader = client.producer("g"), client.producer("g", linger=0.005), client.reader()
    futures = [one.submit(Message("T", b"x")) for one in (producer, batching) for _ in range(100)]
    client.close()
    assert not any(one.is_open for one in (producer, batching, reader))
    assert len({future.result().message_id for future in futures}) == 200
    with pytest.raises(ClosedError):
        reader.topics()
    with pytest.raises(ClosedError, match="this Client is closed"):
        client.producer("g")


def test_nothing_opens_from_a_client_that_is_closing(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(address)
    producer = client.producer("g")
    is_closing, go_on = threading.Event(), trio.Event()

    async def drain() -> None:
        is_closing.set()
        await go_on.wait()

    monkeypatch.setattr(producer, "_drain", drain)
    closing = threading.Thread(target=client.close)
    closing.start()
    is_closing.wait()
    try:
        with pytest.raises(ClosedError, match="this Client is closed; open a new one"):
            client.producer("late")
    finally:
        client._thread.post(go_on.set)
        closing.join()
    assert not client._children


def test_second_close_waits_for_the_first(client: Client) -> None:
    """An interrupted open closes the producer in the background, and closing its client closes it again."""
    producer = client.producer("g", close_timeout=3600)

    async def close_twice() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer._end)
            await producer._closing.wait()
            await producer._end()  # no message is submitted any more, so no other call waits for the close

    producer._thread.call(close_twice)
    assert not producer.is_open


def test_drain_may_find_the_producer_closed_by_another_call(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = client.producer("g")
    drain = producer._send_queue.drain

    async def overtaken() -> None:
        monkeypatch.undo()  # the other call drains as usual
        await drain()
        await producer._closed.wait()

    monkeypatch.setattr(producer._send_queue, "drain", overtaken)

    async def close_twice() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer._end)
            nursery.start_soon(producer._end)

    producer._thread.call(close_twice)
    assert not producer.is_open


def test_closed_objects_raise_closed_error(address: str) -> None:
    client = Client(address)
    producer, batching, reader = client.producer("g"), client.producer("g", linger=0.005), client.reader()
    message = Message("T", b"x")
    alone = Producer(address)
    alone.close()
    client.close()
    uses: list[Callable[[], object]] = [
        lambda: alone.send(message),
        lambda: alone.submit(message),
        lambda: alone.flush(),
        lambda: producer.send_batch([message]),
        lambda: producer.queues("T"),
        lambda: batching.send(message),
        lambda: batching.submit(message),
        lambda: batching.flush(),
        lambda: reader.topics(),
        lambda: reader.open("T"),
        lambda: client.reader(),
    ]
    for use in uses:
        with pytest.raises(ClosedError, match=r"^this \w+ is closed; open a new one$"):
            use()


def test_wrong_types_raise_errors_that_name_them(client: Client) -> None:
    with client.producer("g") as producer, client.producer("g", linger=0.005) as batching:
        for one in (producer, batching):
            with pytest.raises(InvalidMessageError, match="message must be a Message, not bytes"):
                one.submit(b"x")  # type: ignore[arg-type]
            assert one.statistics.in_flight == 0
        for no_list in ("x", Message("T", b"x"), 5):
            with pytest.raises(ConfigurationError, match="messages must be a list of Message"):
                batching.send_all(no_list)  # type: ignore[arg-type]
        for kind in (Producer, Reader):
            for wrong in (5, ["127.0.0.1:1"], producer, rocketmq_py.Client("127.0.0.1:1")):
                with pytest.raises(
                    ConfigurationError, match=r"address .* or a rocketmq_py\.blocking\.Client"
                ):
                    kind(wrong)  # type: ignore[arg-type]


def test_producers_with_their_own_clients(address: str) -> None:
    with Producer(address, group="g") as producer, Reader(address) as reader:
        producer.send(Message("T", b"x"))
        assert reader.topics() == ["T"]


def test_unreachable_name_server_raises(unused_address: str) -> None:
    with Producer(unused_address, group="g", send_timeout=0.3) as producer:
        with pytest.raises(NameServerError):
            producer.send(Message("T", b"x"))
        with pytest.raises(NameServerError):
            producer.submit(Message("T", b"x")).result()


def test_a_broker_that_goes_away(client: Client) -> None:
    broker = BrokerThread()
    with Producer(broker.start(), group="g", retries=0) as producer:
        producer.send(Message("T", b"x"))
        broker.stop()
        futures = [producer.submit(Message("T", b"x"), timeout=1) for _ in range(10)]
        assert all(isinstance(future.exception(), RocketMQError) for future in futures)


# Batches


def test_send_all_keeps_the_order_of_outcomes(client: Client) -> None:
    with client.producer("g", linger=0.005, max_message_size=100_000) as producer:
        messages = [Message("T", body(number)) for number in range(3000)]
        messages[7] = Message("T", bytes(100_001))
        messages[2000] = Message("T", bytes(100_002))
        outcomes = producer.send_all(iter(messages))
        wrong = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, RocketMQError)]
        assert wrong == [7, 2000]
        assert isinstance(outcomes[7], MessageTooLargeError)
        ids = [outcome.message_id for outcome in outcomes if isinstance(outcome, SendResult)]
        assert len(set(ids)) == 2998
        assert producer.statistics.sent == 2998
        assert producer.in_flight == producer.statistics.in_flight_bytes == 0
    stored = sorted(int(one) for queue in bodies(client, "T") for one in queue)
    assert stored == [number for number in range(3000) if number not in (7, 2000)]


def test_send_all_to_queues(client: Client) -> None:
    with client.producer("g", linger=0.005) as producer:
        assert producer.send_all([]) == []
        producer.send(Message("T", b"first"))
        with client.producer("g") as single:
            queues = single.queues("T")
        wanted = [queues[number % 2] for number in range(400)]
        outcomes = producer.send_all(
            [Message("T", body(number)) for number in range(400)], queues=iter(wanted)
        )
        assert [outcome.queue for outcome in outcomes if isinstance(outcome, SendResult)] == wanted
        by_hash = producer.send_all([Message("T", b"x")] * 5, queues=repeat(SelectByHash("one"), 5))
        assert len({outcome.queue for outcome in by_hash if isinstance(outcome, SendResult)}) == 1
        with pytest.raises(InvalidMessageError, match="queues has 1 entries for 2 messages"):
            producer.send_all([Message("T", b"x")] * 2, queues=[None])
    even = [one for one in bodies(client, "T")[0] if one.isdigit()]
    assert even == [body(number) for number in range(0, 400, 2)]


def test_batches_of_many_threads(client: Client) -> None:
    with client.producer("g", linger=0.005, max_in_flight_bytes=20_000) as producer:

        def hammer(number: int) -> int:
            rng = random.Random(number)
            futures = [producer.submit(Message("T", rng.randbytes(100))) for _ in range(300)]
            return len({future.result().message_id for future in futures})

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(hammer, range(6))) == [300] * 6
    assert count(client, "T") == 1800


def test_flushing_does_not_wait_for_the_linger(client: Client) -> None:
    with client.producer("g", linger=10_000.0) as producer:
        futures = [producer.submit(Message("T", body(number))) for number in range(10)]
        producer.flush()
        assert all(future.done() for future in futures)
        assert attrs.asdict(producer.statistics)["sent"] == 10


def descriptors_and_threads() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.long
def test_64_threads_send_read_and_close(address: str) -> None:
    """64 threads use a shared producer, their own producers and readers. Nothing leaks."""
    ids: list[str] = []
    with Client(address) as client:  # creates the objects that the process keeps
        client.producer("p").send(Message("T", b"first"))
    before = descriptors_and_threads()

    with Client(address) as client, client.producer("shared") as shared:

        def work(number: int) -> None:
            with Producer(address, group=f"own-{number}") as own:
                sent = [
                    shared.send(Message("T", b"1")),
                    shared.submit(Message("T", b"2")).result(),
                    own.send(Message("T", b"3")),
                    *own.send_batch([Message("T", b"4"), Message("T", b"5")]),
                ]
                with client.admin() as admin:
                    for result in sent:
                        assert admin.messages.get(result.offset_message_id) is not None
            ids.extend(result.offset_message_id for result in sent)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(ids)) == 64 * 5
    deadline = time.monotonic() + 10
    while any(now > then for now, then in zip(descriptors_and_threads(), before, strict=True)):
        assert time.monotonic() < deadline, f"{before} before, {descriptors_and_threads()} now"
        time.sleep(0.01)  # the broker in this process notices closed connections later


def test_hooks_with_async_methods_are_refused(client: Client) -> None:
    class Sends(ProducerHook):
        async def after_send(self, context: SendContext) -> None: ...

    class Receives(ConsumerHook):
        async def before_consume(self, context: object) -> None: ...

    class Requests(RpcHook):
        async def after_answer(self, context: object) -> None: ...

    with client.producer("g") as producer, client.push_consumer("g") as push, client.pop_consumer("h") as pop:
        added: list[tuple[Callable[[Any], object], object, str]] = [
            (producer.add_hook, Sends(), "after_send"),
            (push.add_hook, Receives(), "before_consume"),
            (pop.add_hook, Receives(), "before_consume"),
            (client.add_rpc_hook, Requests(), "after_answer"),
        ]
        for add, hook, method in added:
            with pytest.raises(ConfigurationError, match=rf"hook\.{method} must be a plain function"):
                add(hook)
