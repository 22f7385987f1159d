"""Calls of the API from handlers: from plain and async ones, in the three APIs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import trio

import rocketmq_py
from rocketmq_py import ConsumeLater, Message, MessageQueue, ReceivedMessage, aio, blocking
from rocketmq_py.handoff.callback_thread import log_records
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import PATIENCE

pytestmark = pytest.mark.sockets

KINDS = pytest.mark.parametrize(
    ("api_name", "kind"),
    [("trio", "plain"), ("trio", "async"), ("asyncio", "plain"), ("asyncio", "async"), ("threads", "plain")],
)


class Program:
    """Calls everything that a handler may call, in its first call. The second one stops the consumer.

    Args:
        producer, consumer: of one API.
        wait: how a plain handler waits for a coroutine of the API.
    """

    def __init__(self, producer: Any, consumer: Any, wait: Callable[..., Any]) -> None:
        self.seen: list[bytes] = []
        self._producer = producer
        self._consumer = consumer
        self._wait = wait

    def calls(self, message: ReceivedMessage) -> list[tuple[str, Callable[[], Any]]]:
        """Return the calls by name: methods, coroutine functions, and reads of properties."""
        producer, consumer, topic = self._producer, self._consumer, message.topic
        queue = MessageQueue(topic, message.broker_name, message.queue_id)
        hook = rocketmq_py.hooks.ConsumerHook()
        return [
            ("statistics", lambda: consumer.statistics.handled),
            ("health", lambda: consumer.health().healthy),
            ("assignment", lambda: queue in consumer.assignment),
            ("producer.health", lambda: producer.health().healthy),
            ("producer.statistics", lambda: producer.statistics.sent),
            ("pause", consumer.pause),
            ("pause queues", partial(consumer.pause, [queue])),
            ("resume", consumer.resume),
            ("subscribe", partial(consumer.subscribe, topic + "-other")),
            ("unsubscribe", partial(consumer.unsubscribe, topic + "-other")),
            ("add_hook", lambda: callable(consumer.add_hook(hook))),
            ("committed", partial(consumer.committed, queue)),
            ("lag", consumer.lag),
            ("send", partial(producer.send, Message(topic, b"second"))),
        ]

    def handle(self, message: ReceivedMessage) -> ConsumeLater | None:
        self.seen.append(message.body)
        if message.body == b"second":
            self._consumer.stop()
            return None
        for name, call in self.calls(message):
            coroutine = inspect.iscoroutinefunction(getattr(call, "func", call))
            self.check(name, self._wait(call) if coroutine else call())
        return ConsumeLater(18)  # acknowledged: as the results of async handlers

    async def handle_async(self, message: ReceivedMessage) -> ConsumeLater | None:
        self.seen.append(message.body)
        if message.body == b"second":
            self._consumer.stop()
            return None
        for name, call in self.calls(message):
            result = call()
            self.check(name, await result if inspect.isawaitable(result) else result)
        return ConsumeLater(18)

    def check(self, name: str, result: object) -> None:
        assert result is not False, name


async def on_trio(address: str, topic: str, group: str, is_plain: bool) -> list[bytes]:
    async with (
        rocketmq_py.Producer(address, group="p") as producer,
        rocketmq_py.PushConsumer(address, group=group, consume_from="earliest") as consumer,
    ):
        await producer.send(Message(topic, b"first"))
        program = Program(producer, consumer, trio.from_thread.run)
        consumer.subscribe(topic)
        await consumer.run(program.handle if is_plain else program.handle_async)
        assert consumer.statistics.failed  # ConsumeLater
    return program.seen


async def on_asyncio(address: str, topic: str, group: str, is_plain: bool) -> list[bytes]:
    loop = asyncio.get_running_loop()
    async with (
        aio.Producer(address, group="p") as producer,
        aio.PushConsumer(address, group=group, consume_from="earliest") as consumer,
    ):
        await producer.send(Message(topic, b"first"))
        program = Program(
            producer, consumer, lambda call: asyncio.run_coroutine_threadsafe(call(), loop).result(PATIENCE)
        )
        consumer.subscribe(topic)
        async with asyncio.timeout(PATIENCE):
            await consumer.run(program.handle if is_plain else program.handle_async)
        assert consumer.statistics.failed
    return program.seen


def in_threads(address: str, topic: str, group: str) -> list[bytes]:
    with (
        blocking.Producer(address, group="p") as producer,
        blocking.PushConsumer(address, group=group, consume_from="earliest") as consumer,
    ):
        producer.send(Message(topic, b"first"))
        program = Program(producer, consumer, lambda call: call())
        consumer.subscribe(topic)
        consumer.run(program.handle)
        assert consumer.statistics.failed
    return program.seen


@KINDS
async def test_handlers_may_call_everything_that_the_documentation_allows(
    cluster: ClusterUnderTest, topic: str, unique: str, api_name: str, kind: str
) -> None:
    arguments = cluster.address, topic, unique
    is_plain = kind == "plain"
    with trio.fail_after(PATIENCE):
        if api_name == "trio":
            seen = await on_trio(*arguments, is_plain)
        elif api_name == "asyncio":
            seen = await trio.to_thread.run_sync(lambda: asyncio.run(on_asyncio(*arguments, is_plain)))
        else:
            seen = await trio.to_thread.run_sync(lambda: in_threads(*arguments))
    # The first may come again meanwhile, or together with the second.
    assert seen[0] == b"first"
    assert b"second" in seen


class Failing:
    """A handler that raises an error for the first delivery, and stops the consumer in the second."""

    def __init__(self, error: BaseException) -> None:
        self.consumer: Any = None
        self.deliveries = 0
        self._error = error

    def handle(self, _: ReceivedMessage) -> None:
        self.deliveries += 1
        if self.deliveries == 1:
            raise self._error
        self.consumer.stop()

    async def handle_async(self, message: ReceivedMessage) -> None:
        self.handle(message)


IN_ORDER: dict[str, Any] = {"consume_from": "earliest", "orderly": True, "suspend_current_queue": 0.01}


async def consume_on_trio(address: str, topic: str, group: str, failing: Failing, is_plain: bool) -> None:
    async with rocketmq_py.PushConsumer(address, group=group, **IN_ORDER) as failing.consumer:
        failing.consumer.subscribe(topic)
        await failing.consumer.run(failing.handle if is_plain else failing.handle_async)


async def consume_on_asyncio(address: str, topic: str, group: str, failing: Failing, is_plain: bool) -> None:
    async with aio.PushConsumer(address, group=group, **IN_ORDER) as failing.consumer:
        failing.consumer.subscribe(topic)
        await failing.consumer.run(failing.handle if is_plain else failing.handle_async)


def consume_in_threads(address: str, topic: str, group: str, failing: Failing) -> None:
    with blocking.PushConsumer(address, group=group, **IN_ORDER) as failing.consumer:
        failing.consumer.subscribe(topic)
        failing.consumer.start(failing.handle).result()


@pytest.mark.parametrize("error", [asyncio.CancelledError, concurrent.futures.CancelledError, SystemExit])
@KINDS
async def test_cancelled_errors_of_handlers_are_failures_and_system_exit_ends_the_consumer(
    cluster: ClusterUnderTest,
    client: rocketmq_py.Client,
    topic: str,
    unique: str,
    api_name: str,
    kind: str,
    error: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing, arguments = Failing(error("mine")), (cluster.address, topic, unique)
    is_plain = kind == "plain"
    async with client.producer("p") as producer:
        await producer.send(Message(topic, b"first"))
    with trio.fail_after(PATIENCE), raises_exit() if error is SystemExit else nullcontext():
        if api_name == "trio":
            await consume_on_trio(*arguments, failing, is_plain)
        elif api_name == "asyncio":
            consume = partial(consume_on_asyncio, *arguments, failing, is_plain)
            await trio.to_thread.run_sync(lambda: asyncio.run(consume()))
        else:
            await trio.to_thread.run_sync(lambda: consume_in_threads(*arguments, failing))
    assert failing.deliveries == (1 if error is SystemExit else 2)
    log_records.flush()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    if error is not SystemExit:
        (line,) = lines
        assert line.startswith("handler failed: ")
        return
    # The threads API logs in the caller's thread, and the trio thread through a queue: the order varies.
    stopped, ended = sorted(lines)[:-1], sorted(lines)[-1]
    assert ended.startswith("the consumer ends, because its handler raised SystemExit: ")
    assert stopped == ([f"consumer stopped group={unique} error=SystemExit: mine"] * (api_name == "threads"))


@contextmanager
def raises_exit() -> Iterator[None]:
    with pytest.raises(SystemExit) as caught:
        yield
    assert caught.value.code == "mine"
