"""Handlers called in reused tasks of the event loop, which must behave like new tasks."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from rocketmq_py import AssignmentListener, ConsumeLater, Message, MessageQueue, ReceivedMessage
from rocketmq_py.aio import Producer, PushConsumer
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.handoff.trio_thread import trio_thread
from rocketmq_py.hooks import ConsumeContext, ConsumerHook
from rocketmq_py.metrics import MetricSource
from tests.aio.conftest import run

FIRST = "earliest"
NUMBERS = [b"%d" % number for number in range(200)]
variable: contextvars.ContextVar[bytes] = contextvars.ContextVar("variable", default=b"unset")


async def send(address: str, bodies: Sequence[bytes] = NUMBERS) -> None:
    async with Producer(address, group="sender") as producer:
        await asyncio.gather(*[await producer.submit(Message("T", body)) for body in bodies])


def test_a_handler_that_waits_runs_up_to_concurrency_times_each_call_with_its_own_context(
    address: str,
) -> None:
    async def main() -> None:
        await send(address)
        running = most = 0
        seen: list[bytes] = []
        mixed: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if variable.get() != b"unset":
                mixed.append(message.body)
            variable.set(message.body)
            await asyncio.sleep(0)
            async with asyncio.timeout(60):
                await asyncio.sleep(0.001)
            if variable.get() != message.body:
                mixed.append(message.body)
            running -= 1
            seen.append(message.body)
            if len(seen) == len(NUMBERS):
                consumer.stop()

        async with PushConsumer(address, group="g", consume_from=FIRST, concurrency=5) as consumer:
            consumer.subscribe("T")
            await consumer.run(handle)
        assert sorted(seen) == sorted(NUMBERS)
        assert (mixed, most) == ([], 5)

    run(main())


def test_a_context_variable_whose_value_cannot_be_compared_stays_in_its_call(address: str) -> None:
    class Incomparable:
        def __eq__(self, _: object) -> bool:
            raise ValueError("no truth value")

        __hash__ = None  # type: ignore[assignment]  # as of arrays

    async def main() -> None:
        await send(address, NUMBERS[:20])
        seen: list[object] = []
        own: contextvars.ContextVar[Incomparable] = contextvars.ContextVar("own")
        own.set(of_the_caller := Incomparable())

        async def handle(_: ReceivedMessage) -> None:
            seen.append(own.get())
            own.set(Incomparable())
            if len(seen) == 20:
                consumer.stop()

        async with PushConsumer(address, group="g", consume_from=FIRST, concurrency=2) as consumer:
            consumer.subscribe("T")
            await consumer.run(handle)
        assert [value is of_the_caller for value in seen] == [True] * 20

    run(main())


@pytest.mark.parametrize("waits", [False, True])
def test_a_loop_with_eager_tasks_calls_handlers_up_to_concurrency_times(address: str, waits: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        # uvloop passes the factory an argument that it does not accept on all versions of Python.
        if sys.version_info >= (3, 12) and isinstance(loop, asyncio.BaseEventLoop):
            loop.set_task_factory(asyncio.eager_task_factory)
        running = most = 0
        seen: list[bytes] = []
        idle = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if waits:
                await asyncio.sleep(0.001)
            running -= 1
            seen.append(message.body)
            if len(seen) == len(NUMBERS):
                idle.set()
            elif len(seen) == 2 * len(NUMBERS):
                consumer.stop()

        async with PushConsumer(address, group="g", consume_from=FIRST, concurrency=5) as consumer:
            consumer.subscribe("T")
            await send(address)
            consuming = asyncio.create_task(consumer.run(handle))
            await idle.wait()  # the workers have nothing to do, and must wake up again
            await send(address)
            await consuming
        assert sorted(seen) == sorted(NUMBERS * 2)
        assert most == (5 if waits else 1)

    run(main())


@pytest.mark.parametrize("waits", [False, True])
def test_nothing_begins_after_a_stop_and_nothing_is_lost(address: str, waits: bool) -> None:
    async def main() -> None:
        await send(address)
        seen: list[bytes] = []
        stopped_at = 0

        async def handle(message: ReceivedMessage) -> None:
            nonlocal stopped_at
            seen.append(message.body)
            if len(seen) == 50 or len(seen) == len(NUMBERS):
                consumer.stop()
                stopped_at = len(seen)
            if waits:
                await asyncio.sleep(0)

        async with PushConsumer(address, group="g", consume_from=FIRST, concurrency=4) as consumer:
            consumer.subscribe("T")
            await consumer.run(handle)
            assert len(seen) == stopped_at == 50
            await consumer.run(handle)
        assert sorted(seen) == sorted(NUMBERS)

    run(main())


def test_plain_handlers_and_lists(address: str) -> None:
    async def main() -> None:
        await send(address)
        seen: list[bytes] = []
        places: set[int] = set()

        def handle(messages: list[ReceivedMessage]) -> None:
            places.add(threading.get_ident())
            seen.extend([message.body for message in messages])
            messages.clear()  # the list belongs to the handler
            if len(seen) == len(NUMBERS):
                consumer.stop()

        async with PushConsumer(address, group="g", consume_from=FIRST, batch_size=7) as consumer:
            consumer.subscribe("T")
            await consumer.run(handle)
        assert sorted(seen) == sorted(NUMBERS)
        assert threading.get_ident() not in places

    run(main())


@pytest.mark.parametrize("when", ["while it waits", "when it returns"])
def test_cancelled_handler_task_counts_as_failed_and_others_continue(address: str, when: str) -> None:
    async def main() -> None:
        await send(address, NUMBERS[:20])
        seen: list[bytes] = []
        failed: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            if not failed:
                failed.append(message.body)
                task = asyncio.current_task()
                assert task is not None
                if when == "while it waits":
                    asyncio.get_running_loop().call_soon(task.cancel)
                    await asyncio.Event().wait()
                task.cancel()
            seen.append(message.body)
            if len(set(seen)) == 20:
                consumer.stop()

        # In order, a failed message is retried soon, before all later ones.
        async with PushConsumer(
            address, group="g", consume_from=FIRST, concurrency=2, orderly=True, suspend_current_queue=0.01
        ) as consumer:
            consumer.subscribe("T")
            await consumer.run(handle)
        assert sorted(seen) == sorted(NUMBERS[:20])

    run(main())


@pytest.mark.parametrize("hooks", [[], [ConsumerHook()]])
def test_timed_out_call_is_cancelled_and_replaced(hooks: list[ConsumerHook], address: str) -> None:
    async def main() -> None:
        await send(address, NUMBERS[:20])
        seen: list[bytes] = []
        cancelled: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            if not cancelled:
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.append(message.body)
            seen.append(message.body)
            if len({*seen, *cancelled}) == 20:
                consumer.stop()

        async with PushConsumer(
            address, group="g", consume_from=FIRST, concurrency=1, consume_timeout=0.2
        ) as consumer:
            for hook in hooks:
                consumer.add_hook(hook)
            consumer.subscribe("T")
            await consumer.run(handle)
        # On a busy machine other calls may time out, too.
        assert sorted({*seen, *cancelled}) == sorted(NUMBERS[:20])
        assert len(cancelled) == 1

    run(main())


def test_hooks_are_called_around_each_call(address: str) -> None:
    class Notes(ConsumerHook):
        def __init__(self) -> None:
            self.bodies: list[bytes] = []
            self.ended: list[bool] = []

        async def before_consume(self, context: ConsumeContext) -> None:
            await asyncio.sleep(0)
            self.bodies += [message.body for message in context.messages]

        def after_consume(self, context: ConsumeContext) -> None:
            self.ended.append(context.success)

    async def main() -> None:
        await send(address)
        seen: list[bytes] = []
        notes = Notes()

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)
            if len(seen) == len(NUMBERS):
                consumer.stop()

        async with PushConsumer(address, group="g", consume_from=FIRST) as consumer:
            consumer.add_hook(notes)
            consumer.subscribe("T")
            await consumer.run(handle)
        assert sorted(seen) == sorted(notes.bodies) == sorted(NUMBERS)
        assert notes.ended == [True] * len(NUMBERS)

    run(main())


def test_invalid_handlers_raise_the_errors_of_the_trio_api(address: str) -> None:
    async def main() -> None:
        async def yields(_: ReceivedMessage) -> Any:
            yield

        async with PushConsumer(address, group="g") as consumer:
            consumer.subscribe("T")
            with pytest.raises(ConfigurationError, match="yield in it"):
                await consumer.run(yields)

    run(main())


def test_closing_the_loop_while_all_handlers_wait_stops_the_consumer(address: str) -> None:
    """No further call is handed to the closed loop."""

    async def main() -> PushConsumer:
        consumer = PushConsumer(address, group="g", consume_from=FIRST, concurrency=2, close_timeout=0.1)
        await consumer.start()
        consumer.subscribe("T")
        waiting: list[ReceivedMessage] = []
        both_wait = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            waiting.append(message)
            if len(waiting) == 2:
                both_wait.set()
            await asyncio.Event().wait()

        kept.append(asyncio.create_task(consumer.run(handle)))
        await both_wait.wait()
        kept.extend(asyncio.all_tasks())
        return consumer

    kept: list[asyncio.Task[Any]] = []
    asyncio.run(send(address, NUMBERS[:2]))
    loop = asyncio.new_event_loop()
    consumer = loop.run_until_complete(main())
    loop.close()
    trio_thread().call(consumer._closed.wait, timeout=60)
    assert not consumer.is_open
    for task in kept:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    kept.clear()


def test_loop_blocked_longer_than_all_timeouts_loses_nothing(address: str) -> None:
    """A result that arrived during the block counts, since deadlines are not checked on the loop."""

    async def main() -> None:
        await send(address)
        seen: list[bytes] = []
        sent: list[asyncio.Future[Any]] = []
        started: list[ReceivedMessage] = []

        async def handle(message: ReceivedMessage) -> None:
            if not started:
                started.append(message)
                sent.extend([await producer.submit(Message("Other", body)) for body in NUMBERS[:20]])
                time.sleep(1.5)
            seen.append(message.body)
            if len(seen) == len(NUMBERS):
                consumer.stop()

        async with (
            Producer(address, group="g", send_timeout=1.0) as producer,
            PushConsumer(address, group="g", consume_from=FIRST) as consumer,
        ):
            consumer.subscribe("T")
            await consumer.run(handle)
            results = await asyncio.gather(*sent)
        assert len(results) == 20
        assert sorted(seen) == sorted(NUMBERS)

    run(main())


def test_calls_that_fail_at_once_or_after_a_wait_are_metered(address: str) -> None:
    async def main() -> None:
        await send(address, [b"fine", b"fails", b"waits", b"waits and fails", b"returns"])
        source = MetricSource()
        left = 5

        async def handle(message: ReceivedMessage) -> ConsumeLater | None:
            nonlocal left
            left -= 1
            if not left:
                consumer.stop()
            if message.body.startswith(b"waits"):
                await asyncio.sleep(0.01)
            if message.body.endswith(b"fails"):
                raise ValueError("no")
            return ConsumeLater() if message.body == b"returns" else None

        async with PushConsumer(address, group="g", consume_from=FIRST) as consumer:
            source.add(consumer)
            consumer.subscribe("T")
            await consumer.run(handle)
            samples = source.collect("process").items()
        calls = {dict(labels)["invocation_status"]: histogram.count for labels, histogram in samples}
        assert calls == {"success": 2, "failure": 3}

    run(main())


@pytest.mark.parametrize("settings", [{}, {"batch_size": 1}, {"orderly": True}], ids=str)
def test_plain_handlers_block_threads_up_to_concurrency_but_not_the_loop(
    address: str, settings: dict[str, Any]
) -> None:
    async def main() -> None:
        await send(address, NUMBERS[:8])
        loop = asyncio.get_running_loop()
        seen: list[Any] = []
        calls, meeting = itertools.count(), threading.Barrier(3)

        def handle(item: Any) -> None:
            # Passes only if three calls block at once, and the loop runs meanwhile.
            if next(calls) < 3:
                meeting.wait(60)
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(60)
            seen.append((threading.get_ident(), variable.get()))
            variable.set(b"of a call")
            if len(seen) == 8:
                consumer.stop()

        variable.set(b"of the caller")
        options: dict[str, Any] = {"concurrency": 3, **settings}
        async with PushConsumer(address, group="g", consume_from=FIRST, **options) as consumer:
            consumer.subscribe("T")
            await consumer.run(handle)
        threads = {thread for thread, _ in seen}
        assert threading.get_ident() not in threads
        assert len(threads) <= 3
        assert {value for _, value in seen} == {b"of the caller"}

    run(main())


@pytest.mark.parametrize("hooks", [[], [ConsumerHook()]], ids=len)
def test_the_loop_awaits_what_a_plain_handler_returns(address: str, hooks: list[ConsumerHook]) -> None:
    async def main() -> None:
        await send(address, NUMBERS[:10])
        seen: list[bytes] = []
        called: set[int] = set()

        async def store(message: ReceivedMessage) -> ConsumeLater | None:
            assert asyncio.current_task() is not None
            await asyncio.sleep(0.001)
            assert variable.get() == message.body
            seen.append(message.body)
            if len(seen) == 10:
                consumer.stop()
            return ConsumeLater() if message.body == b"7" else None

        def decorated(message: ReceivedMessage) -> Any:
            called.add(threading.get_ident())
            variable.set(message.body)
            return store(message)

        async with PushConsumer(address, group="g", consume_from=FIRST) as consumer:
            for hook in hooks:
                consumer.add_hook(hook)
            consumer.subscribe("T")
            await consumer.run(decorated)
            assert consumer.statistics.failed == 1
        assert sorted(seen) == sorted(NUMBERS[:10])
        assert threading.get_ident() not in called

    run(main())


def test_cancelling_a_run_cancels_what_plain_handlers_have_returned(address: str) -> None:
    async def main() -> None:
        await send(address, NUMBERS[:1])
        waits = asyncio.Event()
        cancelled: list[bytes] = []

        async def wait(message: ReceivedMessage) -> None:
            try:
                waits.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cancelled.append(message.body)

        async with PushConsumer(address, group="g", consume_from=FIRST) as consumer:
            consumer.subscribe("T")
            running = asyncio.create_task(consumer.run(lambda message: wait(message)))
            await waits.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert cancelled == NUMBERS[:1]

    run(main())


def test_plain_methods_of_a_listener_run_in_threads_with_the_context_of_run(address: str) -> None:
    async def main() -> None:
        await send(address, NUMBERS[:1])
        calls: list[tuple[str, bool, bytes]] = []

        class Listener(AssignmentListener):
            def note(self, method: str) -> None:
                calls.append((method, threading.get_ident() == here, variable.get()))

            def on_assigned(self, queues: list[MessageQueue]) -> None:
                self.note("assigned")

            def on_revoked(self, queues: list[MessageQueue]) -> Any:
                self.note("revoked")
                return self.finish()

            async def finish(self) -> None:
                await asyncio.sleep(0)
                self.note("finished")

        async def handle(message: ReceivedMessage) -> None:
            consumer.stop()

        here = threading.get_ident()
        async with PushConsumer(
            address, group="g", consume_from=FIRST, assignment_listener=Listener()
        ) as consumer:
            consumer.subscribe("T")
            variable.set(b"of the caller")
            await consumer.run(handle)
        assert set(calls) == {
            ("assigned", False, b"of the caller"),
            ("revoked", False, b"of the caller"),
            ("finished", True, b"of the caller"),
        }

    run(main())


@pytest.mark.parametrize("how", ["stopped twice", "closing cancelled", "block cancelled"])
def test_an_end_at_once_does_not_wait_for_handlers(address: str, how: str) -> None:
    """The default close_timeout would let the test time out."""

    async def main() -> None:
        running, is_closing = asyncio.Event(), asyncio.Event()

        async def handle(_: ReceivedMessage) -> None:
            running.set()
            await asyncio.Event().wait()

        async def use() -> None:
            async with PushConsumer(address, group="g", consume_from=FIRST) as consumer:
                consumers.append(consumer)
                consumer.subscribe("T")
                consuming.append(asyncio.create_task(consumer.run(handle)))
                await running.wait()
                if how == "stopped twice":
                    consumer.stop()
                    consumer.stop()
                elif how == "block cancelled":
                    await asyncio.Event().wait()
                is_closing.set()

        consumers: list[PushConsumer] = []
        consuming: list[asyncio.Task[None]] = []
        async with asyncio.timeout(15):
            using = asyncio.create_task(use())
            await running.wait()
            if how == "closing cancelled":
                await is_closing.wait()
            if how != "stopped twice":
                using.cancel()
            await asyncio.wait([using])
            assert using.cancelled() == (how != "stopped twice")
            await consuming[0]
        assert consumers[0].statistics.cut_off == 1

    asyncio.run(send(address, NUMBERS[:1]))
    asyncio.run(main())


def test_a_handler_may_stop_its_consumer_twice_and_is_waited_for(address: str) -> None:
    async def main() -> None:
        done = []
        async with PushConsumer(address, group="g", consume_from=FIRST) as consumer:
            consumer.subscribe("T")

            async def handle(message: ReceivedMessage) -> None:
                consumer.stop()
                consumer.stop()
                await asyncio.sleep(0.1)
                done.append(message)

            await consumer.run(handle)
            assert done
            assert consumer.statistics.handled == len(done)
            assert consumer.statistics.cut_off == 0

    asyncio.run(send(address, NUMBERS[:1]))
    asyncio.run(main())
