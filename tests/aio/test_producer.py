"""Producers for asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Message, MessageQueue, ReceivedMessage, SendResult, TransactionState
from rocketmq_py.aio import Client, Producer, Reader, TransactionProducer
from rocketmq_py.errors import (
    ClosedError,
    ConfigurationError,
    InvalidMessageError,
    MessageTooLargeError,
    NameServerError,
    ReplyTimeoutError,
    RocketMQError,
    SendForbiddenError,
    TopicNotFoundError,
)
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.handoff.trio_thread import trio_thread
from rocketmq_py.hooks import RpcContext, RpcHook
from rocketmq_py.producer import ProducerHook, SendContext
from rocketmq_py.selectors import QueueSelector, SelectByHash
from tests.aio.conftest import run
from tests.blocking.conftest import BrokerThread, no_collection

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def count(address: str, topic: str) -> int:
    async with Reader(address) as reader:
        return sum(end - first for first, end in (await reader.offsets(topic)).values())


def test_the_ways_of_sending(address: str) -> None:
    async def main() -> None:
        async with Producer(address, group="g") as producer:
            result = await producer.send(Message("T", b"awaited"))
            assert isinstance(result, SendResult)
            (queue, *_) = await producer.queues("T")
            assert (await producer.send(Message("T", b"there"), queue=queue, timeout=60)).queue == queue
            future = await producer.submit(Message("T", b"soon"), queue=SelectByHash("key"))
            assert (await future).message_id
            await producer.send_oneway(Message("T", b"oneway"))
            assert len(await producer.send_batch([Message("T", b"one"), Message("T", b"two")])) == 2
            assert producer.statistics.sent == 5
            assert producer.in_flight == 0
        assert not producer.is_open

    run(main())


def test_futures_work_with_asyncio(address: str) -> None:
    async def main() -> None:
        async with Producer(address, group="g", max_in_flight=8) as producer:
            futures = [await producer.submit(Message("T", b"%d" % number)) for number in range(300)]
            done, pending = await asyncio.wait(futures)
            assert not pending
            results = await asyncio.gather(*futures)
            assert len({result.message_id for result in results}) == len(done) == 300
            threads: list[int] = []
            last = await producer.submit(Message("T", b"last"))
            last.add_done_callback(lambda _: threads.append(threading.get_ident()))
            await producer.flush()
            assert last.done()
            await asyncio.sleep(0)
            assert threads == [threading.get_ident()]
        assert await count(address, "T") == 301

    run(main())


def test_all_methods_of_a_future(address: str) -> None:
    async def main() -> None:
        async with Producer(address, group="g", max_message_size=10) as producer:
            go_on = threading.Event()
            trio_thread().post(go_on.wait)
            future = await producer.submit(Message("T", b"x"))
            assert asyncio.isfuture(future)
            assert not future.done()
            with pytest.raises(asyncio.InvalidStateError):
                future.result()
            with pytest.raises(asyncio.InvalidStateError):
                future.exception()
            go_on.set()
            result = await future
            assert isinstance(result, SendResult)
            assert await future is future.result() is result
            assert future.exception() is None
            assert await asyncio.wait_for(future, 60) is result
            assert await asyncio.shield(future) is result
            assert (await asyncio.gather(future))[0] is result
            copied: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: copied.set_result(done.result()))
            assert await copied is result
            other = await producer.submit(Message("T", b"x"))
            assert isinstance(await asyncio.wait_for(other, 60), SendResult)
            failed = await producer.submit(Message("T", bytes(11)))
            for _ in range(2):
                with pytest.raises(MessageTooLargeError):
                    await failed
            with pytest.raises(MessageTooLargeError):
                failed.result()
            assert isinstance(failed.exception(), MessageTooLargeError)
            go_on.clear()
            trio_thread().post(go_on.wait)
            cancelled = await producer.submit(Message("T", b"x"))
            assert cancelled.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert cancelled.cancelled()

    run(main())


def test_flush_does_not_wait_for_later_sends(address: str) -> None:
    may_go = {b"first": asyncio.Event(), b"later": asyncio.Event()}

    class Holds(ProducerHook):
        async def before_send(self, context: SendContext) -> None:
            await may_go[context.messages[0].body].wait()

    async def main() -> None:
        async with Producer(address, group="g") as producer:
            producer.add_hook(Holds())
            first = await producer.submit(Message("T", b"first"))
            flushing = asyncio.create_task(producer.flush())
            await asyncio.sleep(0)
            await asyncio.to_thread(
                trio_thread().call, trio.testing.wait_all_tasks_blocked
            )  # the flush has started
            later = await producer.submit(Message("T", b"later"))
            may_go[b"first"].set()
            await flushing
            assert first.done()
            assert not later.done()
            may_go[b"later"].set()
            await later

    run(main())


def test_sends_leave_nothing_for_the_garbage_collector(address: str) -> None:
    async def main() -> None:
        async with Producer(address, group="g") as producer:
            await producer.send(Message("T", b"the first waits for a route, in a task"))
            with no_collection() as requests_left:
                await asyncio.gather(*[producer.send(Message("T", b"x")) for _ in range(16)])
                await asyncio.gather(*[await producer.submit(Message("T", b"x")) for _ in range(16)])
                assert requests_left() < 4, "only the read loops may still reference their last requests"

    run(main())


@pytest.mark.parametrize("left", [0, -1], ids=["one loop", "two loops counted at the same moment"])
def test_a_task_that_always_finds_space_lets_other_tasks_run(address: str, left: int) -> None:
    async def main() -> None:
        async with Producer(address, group="g") as producer:
            await producer.send(Message("T", b"x"))
            producer._send_queue._until_yield = left
            has_run = asyncio.Event()

            async def set_event() -> None:
                has_run.set()

            other = asyncio.create_task(set_event())
            await producer.submit(Message("T", b"x"))
            assert has_run.is_set()
            await other

    run(main())


def test_messages_of_one_task_leave_in_order(address: str) -> None:
    async def main() -> None:
        async with Producer(address, group="g", max_in_flight=3, send_timeout=60.0) as producer:
            await producer.send(Message("T", b"first"))
            (queue, *_) = await producer.queues("T")
            async with Reader(address) as reader:
                (_, begin) = (await reader.offsets("T"))[queue]
                for number in range(300):
                    await producer.submit(Message("T", b"%d" % number), queue=queue)
                await producer.flush()
                bodies = [message.body async for message in reader.range(queue, begin)]
        assert bodies == [b"%d" % number for number in range(300)]

    run(main())


def test_errors_are_the_trio_producers_and_lead_to_the_users_line(address: str) -> None:
    async def main() -> None:
        async with Producer(address, group="g", max_message_size=10) as producer:
            with pytest.raises(MessageTooLargeError) as raised:
                await producer.send(Message("T", bytes(11)))
            files = [frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)]
            assert files[0] == __file__
            assert not any("trio_thread" in file or "producer/producer.py" in file for file in files[3:])
            future = await producer.submit(Message("T", bytes(11)))
            with pytest.raises(MessageTooLargeError):
                await future
            with pytest.raises(InvalidMessageError, match="message must be a Message, not bytes"):
                await producer.submit(b"x")  # type: ignore[arg-type]
        for use in (producer.send, producer.submit):
            with pytest.raises(ClosedError, match="this Producer is closed"):
                await use(Message("T", b"x"))
        with pytest.raises(ClosedError, match="use it inside `async with Producer"):
            await Producer(address).send(Message("T", b"x"))
        with pytest.raises(ClosedError, match="opened before"):
            await producer.start()

    run(main())
    with pytest.raises(ConfigurationError, match="did you mean 'retries'"):
        Producer(address, retires=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match=r"a rocketmq_py\.aio\.Client"):
        Producer(5)  # type: ignore[arg-type]


class Noting(ProducerHook):
    """Records the thread and the context of its calls."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, str]] = []
        self.forbids = False

    def check_forbidden(self, context: SendContext) -> None:
        if self.forbids:
            raise PermissionError("not today")

    async def before_send(self, context: SendContext) -> None:
        await asyncio.sleep(0)
        self.seen.append(("before", threading.get_ident(), variable.get()))

    def after_send(self, context: SendContext) -> None:
        self.seen.append(("after", threading.get_ident(), variable.get()))


def test_selectors_and_hooks_are_called_on_the_loop(address: str) -> None:
    async def main() -> None:
        here = threading.get_ident()
        variable.set("mine")
        chosen: list[tuple[int, str]] = []

        def choose(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
            chosen.append((threading.get_ident(), variable.get()))
            return queues[-1]

        def fail(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
            raise LookupError("no queue for this")

        async with Producer(address, group="g") as producer:
            hook = Noting()
            remove = producer.add_hook(hook)
            result = await producer.send(Message("T", b"x"), queue=choose)
            assert result.queue == (await producer.queues("T"))[-1]
            await (await producer.submit(Message("T", b"x"), queue=choose))
            await producer.send_batch([Message("T", b"x")], queue=choose)
            assert chosen == [(here, "mine")] * 3
            assert hook.seen == [("before", here, "mine"), ("after", here, "mine")] * 3
            with pytest.raises(LookupError, match="no queue for this"):
                await producer.send(Message("T", b"x"), queue=fail)
            with pytest.raises(InvalidMessageError, match="the selector returned None"):
                await producer.send(Message("T", b"x"), queue=lambda queues, message: None)  # type: ignore[arg-type]
            hook.forbids = True
            with pytest.raises(SendForbiddenError, match="Noting forbids"):
                await producer.send(Message("T", b"x"))
            remove()
            await producer.send(Message("T", b"x"))

    run(main())


def test_selectors_of_keyword_messages_are_called_on_the_loop(address: str) -> None:
    async def main() -> None:
        threads: list[int] = []
        message = Message("T", b"x")

        def choose(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
            threads.append(threading.get_ident())
            return queues[-1]

        def work(message: Message, transaction_id: str) -> TransactionState:
            return TransactionState.COMMIT

        def check(message: ReceivedMessage) -> TransactionState:
            return TransactionState.COMMIT

        async with (
            Client(address) as client,
            client.transaction_producer("g", check=check) as producer,
            client.producer("g2", linger=0.005) as batching,
        ):
            await producer.send(message=message, queue=choose)
            await (await producer.submit(message=message, queue=choose))
            await producer.send_oneway(message=message, queue=choose)
            await producer.send_batch(messages=iter([message]), queue=choose)  # type: ignore[arg-type]
            with pytest.raises(ReplyTimeoutError):
                await producer.request(message=message, queue=choose, timeout=0.1)
            with pytest.raises(ReplyTimeoutError):
                await (await producer.submit_request(message=message, queue=choose, timeout=0.1))
            await producer.send_in_transaction(message=message, local_work=work, queue=choose)
            async with producer.transaction(message=message, queue=choose):
                pass
            await batching.send(message=message, queue=choose)
            await (await batching.submit(message=message, queue=choose))
            await batching.send_oneway(message=message, queue=choose)
            await batching.send_all(messages=[message], queues=[choose])
        assert threads == [threading.get_ident()] * 12

    run(main())


def uses_of_selectors(
    producer: TransactionProducer, batching: Producer
) -> dict[str, Callable[[Any, Any], Awaitable[object]]]:
    """Return a function for each method with a selector. It takes the message and the selector."""

    async def transaction(message: Message, select: QueueSelector) -> None:
        async with producer.transaction(message, queue=select):
            pytest.fail("not reached")

    def work(message: Message, transaction_id: str) -> TransactionState:
        return TransactionState.COMMIT

    return {
        "send": lambda message, select: producer.send(message, queue=select),
        "submit": lambda message, select: producer.submit(message, queue=select),
        "send_oneway": lambda message, select: producer.send_oneway(message, queue=select),
        "send_batch": lambda message, select: producer.send_batch([message], queue=select),
        "request": lambda message, select: producer.request(message, queue=select),
        "submit_request": lambda message, select: producer.submit_request(message, queue=select),
        "send_in_transaction": lambda message, select: producer.send_in_transaction(
            message, work, queue=select
        ),
        "transaction": transaction,
        "batching.send": lambda message, select: batching.send(message, queue=select),
        "batching.submit": lambda message, select: batching.submit(message, queue=select),
        "batching.send_oneway": lambda message, select: batching.send_oneway(message, queue=select),
    }


def test_wrong_messages_and_selectors_raise_the_trio_producers_errors(address: str) -> None:
    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[0]

    async def select_later(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[0]

    def select_alone(message: Message) -> MessageQueue:
        raise AssertionError("not reached")

    def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async def main() -> None:
        async with (
            Client(address) as client,
            client.transaction_producer("g", check=check) as producer,
            client.producer("g2", linger=0.005) as batching,
        ):
            await producer.send(Message("T", b"x"))
            for name, use in uses_of_selectors(producer, batching).items():
                for wrong in (b"x", [Message("T", b"x")]):
                    with pytest.raises(InvalidMessageError, match="must be a Message, not"):
                        await use(wrong, select)
                with pytest.raises(ConfigurationError, match="queue must be a plain function"):
                    await use(Message("T", b"x"), select_later)
                with pytest.raises(ConfigurationError, match=r"queue is called with \(queues, message\)"):
                    await use(Message("T", b"x"), select_alone)
                with pytest.raises(InvalidMessageError, match="the selector returned None"):
                    await use(Message("T", b"x"), lambda queues, message: None)
                assert producer.statistics.sent == 1, name
            no_list: object
            for no_list in (b"x", Message("T", b"x"), []):
                with pytest.raises(InvalidMessageError):
                    await producer.send_batch(no_list, queue=select)  # type: ignore[arg-type]
            for no_list in ("x", Message("T", b"x"), 5):
                with pytest.raises(ConfigurationError, match="messages must be a list of Message"):
                    await batching.send_all(no_list, queues=[select])  # type: ignore[arg-type]

    run(main())


def test_send_all_returns_the_errors_of_selectors() -> None:
    broker = BrokerThread(auto_create_topic_enable=False)

    async def select_later(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[0]

    def select_wrong(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return MessageQueue("Other", "broker-a", 0)

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[-1]

    async def main() -> None:
        broken: list[tuple[Any, Any, type[RocketMQError]]] = [
            (b"x", select, InvalidMessageError),
            (Message("Unknown", b"x"), select, TopicNotFoundError),
            (Message("T", b"x"), select_wrong, InvalidMessageError),
            (Message("T", b"x"), select_later, ConfigurationError),
            (Message("T", b"x"), 5, InvalidMessageError),
        ]
        messages, queues = [Message("T", b"0")], [select]
        for message, queue, _ in broken:
            messages += [message, Message("T", b"good")]
            queues += [queue, select]
        async with Client(broker.start()) as client, client.admin() as admin:
            await admin.topics.create("T")
            async with client.producer("g", linger=0.005) as producer:
                outcomes = await producer.send_all(messages, queues=queues)
                assert [type(outcome) for outcome in outcomes[1::2]] == [error for _, _, error in broken]
                last = (await producer.queues("T"))[-1]
                assert [outcome.queue for outcome in outcomes[::2] if isinstance(outcome, SendResult)] == (
                    [last] * (len(broken) + 1)
                )
            with pytest.raises(ClosedError):
                await producer.send_all(messages, queues=queues)

    run(main())
    broker.stop()


def test_errors_of_rpc_hooks_are_logged_with_the_name_of_the_method(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(RpcHook):
        async def before_request(self, context: RpcContext) -> None:
            pass

        async def after_answer(self, context: RpcContext) -> None:
            raise LookupError("in a hook")

    async def main() -> None:
        async with Client(address) as client, client.producer("g") as producer:
            client.add_rpc_hook(Fails())
            await producer.send(Message("T", b"x"))

    run(main())
    log_records.flush()
    logged = [record for record in caplog.records if "hook failed method=" in record.message]
    assert logged
    assert all("Fails.after_answer; " in record.message for record in logged)


def test_a_shared_client(address: str) -> None:
    async def main() -> None:
        async with Client(address) as client:
            async with client.producer("g") as producer, client.producer("g2", linger=0.005) as batching:
                await producer.send(Message("T", b"x"))
                await batching.send(Message("T", b"x"))
                future = await batching.submit(Message("T", b"x"))
            assert future.done()
            still_open = client.producer("g3")
            await still_open.start()
        assert not still_open.is_open
        with pytest.raises(ClosedError, match="this Client is closed"):
            client.producer("g")

    run(main())


def test_batches(address: str) -> None:
    async def main() -> None:
        async with Producer(address, group="g", linger=10_000.0) as producer:
            futures = [await producer.submit(Message("T", b"%d" % number)) for number in range(500)]
            await producer.flush()
            assert all(future.done() for future in futures)
            outcomes = await producer.send_all([Message("T", b"x")] * 100)
            assert not any(isinstance(outcome, RocketMQError) for outcome in outcomes)
            by_hand = await producer.send_all(
                [Message("T", b"x")] * 2, queues=[lambda queues, _: queues[1]] * 2
            )
            assert {outcome.queue.queue_id for outcome in by_hand if isinstance(outcome, SendResult)} == {1}
            assert producer.statistics.sent == 602
            assert producer.in_flight == producer.statistics.in_flight_bytes == 0

    run(main())


@pytest.mark.parametrize("way", ["send", "send_all"])
def test_messages_that_still_wait_are_stored_before_later_ones(
    address: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    async def main() -> None:
        async with Producer(address, group="g", linger=0.0) as producer:
            queue = (await producer.queues("T"))[0]
            may_go, accept = trio.Event(), producer._target._accept

            async def accept_later(*arguments: Any) -> object:
                await may_go.wait()
                return accept(*arguments)

            def accept_first_later(*arguments: Any) -> object:
                monkeypatch.setattr(producer._target, "_accept", accept)
                return accept_later(*arguments)

            async def send_last() -> int:
                message = Message("T", b"last")
                if way == "send":
                    return (await producer.send(message, queue=queue)).queue_offset
                (outcome,) = await producer.send_all([message], queues=[queue])
                assert isinstance(outcome, SendResult)
                return outcome.queue_offset

            monkeypatch.setattr(producer._target, "_accept", accept_first_later)
            earlier = [await producer.submit(Message("T", b"x"), queue=queue) for _ in range(3)]
            last = asyncio.create_task(send_last())
            while len(producer._send_queue._queue) < 3 and not last.done():
                await asyncio.sleep(0)
            producer._thread.post(may_go.set)
            assert [(await one).queue_offset for one in earlier] == [0, 1, 2]
            assert await last == 3

    run(main())


def test_a_cancelled_send_that_still_waits_is_not_sent(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Producer(address, group="g", linger=0.0) as producer:
            may_go, accept = trio.Event(), producer._target._accept

            async def accept_later(*arguments: Any) -> object:
                await may_go.wait()
                return accept(*arguments)

            monkeypatch.setattr(producer._target, "_accept", accept_later)
            first = await producer.submit(Message("T", b"first"))
            second = asyncio.create_task(producer.send(Message("T", b"second")))
            while len(producer._send_queue) < 2:
                await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            producer._thread.post(may_go.set)
            await first
            await producer.flush()
            assert producer.statistics.sent == 1

    run(main())


def test_pending_counts_all_messages_of_batches(address: str) -> None:
    async def main() -> None:
        async with Producer(address, group="g", linger=10_000.0) as producer:
            sending = [asyncio.create_task(producer.send(Message("T", b"x"))) for _ in range(3)]
            future = await producer.submit(Message("T", b"x"), timeout=60)
            async with asyncio.timeout(60):
                while producer.in_flight < 4:
                    await asyncio.sleep(0)
            await asyncio.to_thread(trio_thread().call, trio.testing.wait_all_tasks_blocked)
            assert producer.in_flight == 4
            await producer.flush()
            await asyncio.gather(*sending, future)
            assert producer.in_flight == 0
            with pytest.raises(ConfigurationError, match="timeout"):
                await (await producer.submit(Message("T", b"x"), timeout=-1))

    run(main())


def test_requests_count_as_in_flight(address: str) -> None:
    async def main() -> None:
        async with Producer(address, group="g") as producer:
            reply = await producer.submit_request(Message("T", b"nobody replies"), timeout=1.0)
            assert producer.in_flight == producer.statistics.in_flight == 1
            with pytest.raises(ReplyTimeoutError):
                await reply
            assert producer.in_flight == 0

    run(main())


def test_errors_of_cancelled_requests_are_not_logged(address: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Producer(address, group="g") as producer:
            cancelled = await producer.submit_request(Message("T", b"x"), timeout=0.1)
            cancelled.cancel()
            with pytest.raises(ReplyTimeoutError):
                await (await producer.submit_request(Message("T", b"x"), timeout=0.2))
            assert producer.in_flight == 0
            gc.collect()

    run(main())
    log_records.flush()
    assert not [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_requests_and_replies(address: str) -> None:
    async def main() -> None:
        async with (
            Client(address) as client,
            client.producer("asks") as asks,
            client.producer("replies") as replies,
        ):

            async def answer(message: ReceivedMessage) -> None:
                await replies.reply(message, message.body.upper())

            async with client.push_consumer("answers") as consumer:
                await asks.send(Message("Other", b"x"))
                consumer.subscribe("Q")
                running = asyncio.create_task(consumer.run(answer))
                first = await asks.request(Message("Q", b"hello"), timeout=60)
                assert first.body == b"HELLO"
                futures = [await asks.submit_request(Message("Q", b"%d" % n), timeout=60) for n in range(5)]
                assert [reply.body for reply in await asyncio.gather(*futures)] == [
                    b"0",
                    b"1",
                    b"2",
                    b"3",
                    b"4",
                ]
                consumer.stop()
                await running

    run(main())


def test_transactions(address: str) -> None:
    async def main() -> None:
        here = threading.get_ident()
        asked: asyncio.Queue[tuple[bytes, int]] = asyncio.Queue()

        async def check(message: ReceivedMessage) -> TransactionState:
            asked.put_nowait((message.body, threading.get_ident()))
            return TransactionState.COMMIT

        def work(message: Message, transaction_id: str) -> TransactionState:
            assert threading.get_ident() != here  # a plain function runs in a worker thread
            assert variable.get() == "of the caller"
            return TransactionState.COMMIT

        variable.set("of the caller")
        async with TransactionProducer(address, group="g", check=check, topics=["T"]) as producer:
            done = await producer.send_in_transaction(Message("T", b"work"), work)
            assert done.state is TransactionState.COMMIT
            async with producer.transaction(Message("T", b"block")) as transaction:
                assert transaction.transaction_id
            with pytest.raises(LookupError, match="mine") as raised:
                async with producer.transaction(Message("T", b"failed")):
                    raise LookupError("mine")
            assert raised.value.__traceback__ is not None
            began = asyncio.Event()

            async def never_end() -> None:
                async with producer.transaction(Message("T", b"asked"), check_immunity=60):
                    began.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(never_end())
            await began.wait()
            assert producer.transaction_statistics.in_progress == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            statistics = producer.transaction_statistics
            assert (statistics.committed, statistics.unknown, statistics.in_progress) == (2, 1, 0)
        assert await count(address, "T") == 2

    run(main())


@pytest.mark.parametrize("is_plain", [False, True])
def test_async_checks_are_called_on_the_loop_and_plain_ones_in_threads(is_plain: bool) -> None:
    broker = BrokerThread(transaction_time_out=0.1, transaction_check_interval=0.1)
    address = broker.start()

    async def main() -> None:
        asked: asyncio.Queue[tuple[bytes, bool, str]] = asyncio.Queue()
        variable.set("mine")
        here, loop = threading.get_ident(), asyncio.get_running_loop()

        async def check(message: ReceivedMessage) -> TransactionState:
            return plain_check(message)

        def plain_check(message: ReceivedMessage) -> TransactionState:
            call = message.body, threading.get_ident() == here, variable.get()
            loop.call_soon_threadsafe(asked.put_nowait, call)
            return TransactionState.COMMIT

        async def work(message: Message, transaction_id: str) -> TransactionState:
            return TransactionState.UNKNOWN

        async with TransactionProducer(
            address, group="g", check=plain_check if is_plain else check, topics=["T"]
        ) as producer:
            await producer.send_in_transaction(Message("T", b"asked"), work)
            assert await asked.get() == (b"asked", not is_plain, "mine")

    run(main())
    broker.stop()


def test_unreachable_name_server_raises_and_a_timeout_cancels(unused_address: str) -> None:
    async def main() -> None:
        async with Producer(unused_address, group="g", send_timeout=0.3) as producer:
            with pytest.raises(NameServerError):
                await producer.send(Message("T", b"x"))
            with pytest.raises(NameServerError):
                await (await producer.submit(Message("T", b"x")))

    run(main())
