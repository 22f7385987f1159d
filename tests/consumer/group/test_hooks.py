"""Hooks run around handler calls and around the messages that a poll returns."""

from __future__ import annotations

import contextvars
import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.consumer import (
    CommitOffset,
    ConsumeContext,
    ConsumeLater,
    ConsumeOperation,
    ConsumerHook,
    LitePullConsumer,
    Suspend,
)
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.concurrent_dispatch import ConcurrentDispatch
from rocketmq_py.consumer.push.orderly_dispatch import OrderlyDispatch
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.trace import ConsumeReturnType
from tests.consumer.conftest import Fill
from tests.consumer.dispatching import ScriptedReturns, SentBackMessages, filled_queue
from tests.consumer.lite_pull.test_consumer import consumer_of as lite_pull_consumer_of
from tests.consumer.lite_pull.test_consumer import numbers
from tests.consumer.pop.test_consumer import consumer_of as pop_consumer_of
from tests.consumer.pop_broker import message, pop_brokers
from tests.consumer.push_consumers import RecordingHandler, consumer_of
from tests.consumer.received import QUEUE, several


class RecordingHook(ConsumerHook):
    """A hook with sync methods that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.contexts: list[ConsumeContext] = []

    def before_consume(self, context: ConsumeContext) -> None:
        self.calls.append("before")
        context.state[self] = len(self.calls)

    def after_consume(self, context: ConsumeContext) -> None:
        assert context.state[self]
        self.calls.append("after")
        self.contexts.append(context)


class AsyncRecordingHook(RecordingHook):
    """A hook with async methods that records its calls."""

    async def before_consume(self, context: ConsumeContext) -> None:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        super().before_consume(context)

    async def after_consume(self, context: ConsumeContext) -> None:  # type: ignore[override]
        super().after_consume(context)
        await trio.lowlevel.checkpoint()


def hooks_of(*hooks: ConsumerHook, timeout: float = math.inf) -> ConsumerHooks:
    all_hooks = ConsumerHooks("g", "client", lambda: 7, timeout=timeout)
    for hook in hooks:
        all_hooks.add(hook)
    return all_hooks


CreateDispatch = Callable[..., ConcurrentDispatch | OrderlyDispatch]


@pytest.fixture(params=["concurrent", "orderly"])
async def create_dispatch(request: pytest.FixtureRequest, nursery: trio.Nursery) -> CreateDispatch:
    def create(
        handle: Callable[..., Any], hooks: ConsumerHooks, batch_size: int | None = None
    ) -> ConcurrentDispatch | OrderlyDispatch:
        if request.param == "concurrent":
            return ConcurrentDispatch(
                nursery,
                handle,
                PushConsumerSettings(
                    group="g", concurrency=3, batch_size=batch_size, consume_timeout=math.inf
                ),
                failed_messages=ScriptedReturns(),
                hooks=hooks,
            )
        settings = PushConsumerSettings(
            group="g", orderly=True, concurrency=3, batch_size=batch_size, suspend_current_queue=math.inf
        )
        return OrderlyDispatch(nursery, handle, settings, dead_letter_queue=ScriptedReturns(), hooks=hooks)

    return create


def process_queue_of(dispatch: ConcurrentDispatch | OrderlyDispatch, count: int) -> ProcessQueue:
    if isinstance(dispatch, ConcurrentDispatch):
        return filled_queue(count)
    process_queue = ProcessQueue(QUEUE, 0, QueueLock(QUEUE, held_until=math.inf))
    process_queue.put(several(range(count)), count)
    return process_queue


@pytest.mark.parametrize("hook_class", [RecordingHook, AsyncRecordingHook])
async def test_hooks_run_before_and_after_a_handler_call(
    create_dispatch: CreateDispatch, hook_class: type[RecordingHook], jumping_clock: trio.testing.MockClock
) -> None:
    async def handle(message: ReceivedMessage) -> None:
        hook.calls.append("handle")
        await trio.sleep(2)

    hook = hook_class()
    dispatch = create_dispatch(handle, hooks_of(hook))
    process_queue = process_queue_of(dispatch, 1)
    dispatch.offer(process_queue)
    await trio.sleep(3)
    assert hook.calls == ["before", "handle", "after"]
    (context,) = hook.contexts
    assert (context.consumer_group, context.client_id) == ("g", "client")
    assert (context.operation, context.queue, context.started_ms) == (ConsumeOperation.PROCESS, QUEUE, 7)
    assert [one.queue_offset for one in context.messages] == [0]
    assert (context.result, context.error, context.seconds) == (None, None, 2)
    assert (context.returned, context.success) == (ConsumeReturnType.SUCCESS, True)
    assert process_queue.safe_offset == 1


async def test_hooks_run_once_for_a_list_of_messages(create_dispatch: CreateDispatch) -> None:
    async def handle(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    sizes: list[int] = []
    dispatch = create_dispatch(handle, hooks_of(hook := RecordingHook()), batch_size=3)
    dispatch.offer(process_queue_of(dispatch, 5))
    await wait_all_tasks_blocked()
    assert sizes == [3, 2]
    assert [[one.queue_offset for one in each.messages] for each in hook.contexts] == [[0, 1, 2], [3, 4]]


async def test_hooks_see_the_exception_of_the_handler(create_dispatch: CreateDispatch) -> None:
    async def handle(message: ReceivedMessage) -> None:
        raise failure

    failure = ValueError("no")
    dispatch = create_dispatch(handle, hooks_of(hook := RecordingHook()))
    dispatch.offer(process_queue_of(dispatch, 1))
    await wait_all_tasks_blocked()
    (context,) = hook.contexts
    assert context.error is failure
    assert (context.returned, context.success) == (ConsumeReturnType.EXCEPTION, False)


@pytest.mark.parametrize(
    ("result", "returned"),
    [
        (ConsumeLater(), ConsumeReturnType.FAILED),
        (Suspend(), ConsumeReturnType.FAILED),
        (CommitOffset(), ConsumeReturnType.SUCCESS),
        (None, ConsumeReturnType.SUCCESS),
        ("anything", ConsumeReturnType.FAILED),
    ],
)
async def test_hooks_see_the_result_of_the_handler(result: object, returned: ConsumeReturnType) -> None:
    async def handle(item: object) -> object:
        return result

    hooks = hooks_of(hook := RecordingHook())
    assert await hooks.call(handle, QUEUE, several([0])[0]) is result
    (context,) = hook.contexts
    assert context.result is result
    assert (context.returned, context.success) == (returned, returned is ConsumeReturnType.SUCCESS)


async def test_an_exception_of_a_hook_is_logged_and_ignored(
    create_dispatch: CreateDispatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(ConsumerHook):
        def before_consume(self, context: ConsumeContext) -> None:
            raise ValueError("before")

        async def after_consume(self, context: ConsumeContext) -> None:
            raise ValueError("after")

    dispatch = create_dispatch(lambda message: None, hooks_of(Broken(), hook := RecordingHook()))
    process_queue = process_queue_of(dispatch, 1)
    dispatch.offer(process_queue)
    while process_queue.safe_offset != 1:
        await trio.sleep(0)
    assert hook.calls == ["before", "after"]
    assert caplog.text.count("Broken.before_consume; the message continues") == 1
    assert caplog.text.count("Broken.after_consume; the message continues") == 1


async def test_after_consume_runs_in_reverse_order(create_dispatch: CreateDispatch) -> None:
    variable = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []

    class SetVariable(ConsumerHook):
        def __init__(self, value: str) -> None:
            self.value = value

        def before_consume(self, context: ConsumeContext) -> None:
            context.state[self] = variable.set(self.value)

        def after_consume(self, context: ConsumeContext) -> None:
            seen.append(variable.get())
            variable.reset(context.state[self])

    async def handle(message: ReceivedMessage) -> None:
        seen.append(f"handler: {variable.get()}")

    dispatch = create_dispatch(handle, hooks_of(SetVariable("outer"), SetVariable("inner")))
    dispatch.offer(process_queue_of(dispatch, 2))
    await wait_all_tasks_blocked()
    assert seen == ["handler: inner", "inner", "outer"] * 2


async def test_a_handler_in_a_thread_sees_context_variables_of_hooks(create_dispatch: CreateDispatch) -> None:
    variable = contextvars.ContextVar("variable", default="none")
    seen: list[tuple[str, bool]] = []

    class SetVariable(ConsumerHook):
        def before_consume(self, context: ConsumeContext) -> None:
            variable.set("set")

    def handle(message: ReceivedMessage) -> None:
        seen.append((variable.get(), threading.current_thread() is threading.main_thread()))

    dispatch = create_dispatch(handle, hooks_of(SetVariable()))
    process_queue = process_queue_of(dispatch, 1)
    dispatch.offer(process_queue)
    while process_queue.safe_offset != 1:
        await trio.sleep(0)
    assert seen == [("set", False)]


async def test_a_hook_can_replace_messages(create_dispatch: CreateDispatch) -> None:
    class Decrypt(ConsumerHook):
        def before_consume(self, context: ConsumeContext) -> None:
            context.messages = [attrs.evolve(one, body=one.body.upper()) for one in context.messages]

    async def handle(message: ReceivedMessage) -> None:
        bodies.append(message.body)

    bodies: list[bytes] = []
    dispatch = create_dispatch(handle, hooks_of(Decrypt()))
    process_queue = process_queue_of(dispatch, 2)
    dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    assert bodies == [b"BODY", b"BODY"]
    assert (process_queue.safe_offset, len(process_queue)) == (2, 0)


@pytest.mark.parametrize("hook_class", [RecordingHook, AsyncRecordingHook])
async def test_hooks_see_a_timed_out_call(
    hook_class: type[RecordingHook], nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    async def handle(message: ReceivedMessage) -> None:
        await trio.sleep_forever()

    first, hook = hook_class(), hook_class()
    backs = SentBackMessages()
    dispatch = ConcurrentDispatch(
        nursery,
        handle,
        PushConsumerSettings(group="g", concurrency=1, consume_timeout=10),
        failed_messages=ScriptedReturns(backs),
        hooks=hooks_of(first, hook, timeout=10),
    )
    dispatch.offer(filled_queue(1))
    await trio.sleep(15)
    assert backs.offsets == [0]
    for each in (first, hook):
        assert each.calls == ["before", "after"]
        (context,) = each.contexts
        assert isinstance(context.error, trio.Cancelled)
        assert (context.returned, context.success) == (ConsumeReturnType.TIME_OUT, False)


async def test_hooks_see_a_cancelled_call(
    jumping_clock: trio.testing.MockClock,
) -> None:
    hooks = hooks_of(hook := RecordingHook())
    with trio.move_on_after(1):
        await hooks.call(lambda _: trio.sleep_forever(), QUEUE, message(0))
    (context,) = hook.contexts
    assert isinstance(context.error, trio.Cancelled)
    assert (context.returned, context.success, context.seconds) == (ConsumeReturnType.EXCEPTION, False, 1)


async def test_hooks_can_be_added_and_removed_while_a_consumer_runs(address: str, fill: Fill) -> None:
    await fill("T", 1)
    kept, hook = RecordingHandler(), RecordingHook()
    async with consumer_of(address) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, kept)
        await kept.until(1)
        remove = consumer.add_hook(hook)
        await fill("T", 1, first=1)
        await kept.until(2)
        remove()
        await fill("T", 1, first=2)
        await kept.until(3)
        nursery.cancel_scope.cancel()
    assert hook.calls == ["before", "after"]
    (context,) = hook.contexts
    assert (context.consumer_group, context.client_id) == ("g", core_of(consumer).client_id)


async def test_the_queue_of_a_retried_message_is_that_of_the_retry_topic(address: str, fill: Fill) -> None:
    await fill("T", 1)
    hook, done = RecordingHook(), trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            raise ValueError("the first delivery fails")
        done.set()

    async with consumer_of(address, rebalance_interval=0.1) as consumer, trio.open_nursery() as nursery:
        consumer.add_hook(hook)
        nursery.start_soon(consumer.run, handle)
        await done.wait()
        nursery.cancel_scope.cancel()
    assert [context.queue.topic for context in hook.contexts] == ["T", "%RETRY%g"]
    assert [context.messages[0].topic for context in hook.contexts] == ["T", "T"]


# Received messages


@pytest.mark.parametrize("hook_class", [RecordingHook, AsyncRecordingHook])
async def test_hooks_run_once_per_queue_of_a_poll(
    client: Client, fill: Fill, hook_class: type[RecordingHook]
) -> None:
    await fill("T", 6, queues=2)
    async with lite_pull_consumer_of(client) as consumer:
        consumer.add_hook(hook := hook_class())
        await consumer.assign(await consumer.queues("T"))
        polled: list[int] = []
        while len(polled) < 6:
            polled += numbers(await consumer.poll(max_messages=6))
    assert hook.calls == ["before", "after"] * len(hook.contexts)
    seen: dict[MessageQueue, list[int]] = {}
    for context in hook.contexts:
        assert (context.operation, context.success) == (ConsumeOperation.RECEIVE, True)
        assert context.seconds >= 0
        seen.setdefault(context.queue, []).extend(numbers(context.messages))
    assert sorted(seen.values()) == [[0, 2, 4], [1, 3, 5]]


async def test_a_poll_cancelled_in_a_hook_loses_no_message(client: Client, fill: Fill) -> None:
    class WaitForever(ConsumerHook):
        async def before_consume(self, context: ConsumeContext) -> None:
            reached.set()
            await trio.sleep_forever()

    reached = trio.Event()
    await fill("T", 6, queues=2)
    async with lite_pull_consumer_of(client) as consumer:
        remove = consumer.add_hook(WaitForever())
        await consumer.assign(await consumer.queues("T"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(functools.partial(consumer.poll, max_messages=4))
            await reached.wait()
            nursery.cancel_scope.cancel()
        remove()
        assert await poll_in_order(consumer, 6) == {0: [0, 2, 4], 1: [1, 3, 5]}


async def poll_in_order(consumer: LitePullConsumer, count: int) -> dict[int, list[int]]:
    polled: dict[int, list[int]] = {}
    while sum(map(len, polled.values())) < count:
        for one in await consumer.poll():
            polled.setdefault(one.queue_id, []).append(int(one.body))
    return polled


async def test_a_poll_returns_the_messages_of_the_hooks(client: Client, fill: Fill) -> None:
    class AddPrefix(ConsumerHook):
        def before_consume(self, context: ConsumeContext) -> None:
            context.messages = [attrs.evolve(one, body=b"1" + one.body) for one in context.messages]

    await fill("T", 1)
    async with lite_pull_consumer_of(client) as consumer:
        consumer.add_hook(AddPrefix())
        await consumer.assign(await consumer.queues("T"))
        assert numbers(await consumer.poll()) == [10]


async def test_hooks_run_for_the_messages_of_a_pop_consumer() -> None:
    async with pop_brokers() as (cluster, [broker]), pop_consumer_of(cluster.address) as consumer:
        consumer.add_hook(hook := RecordingHook())
        broker.put(message(0), message(1))
        received = await consumer.receive()
        assert numbers(list(received)) == [0, 1]
    (context,) = hook.contexts
    assert context.messages == received
    assert (context.operation, context.consumer_group, context.queue.topic) == (
        ConsumeOperation.RECEIVE,
        "g",
        "T",
    )
