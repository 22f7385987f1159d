"""Event loops and processes that end with open clients, and several event loops in one process."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

import pytest
import trio

from rocketmq_py import Message, ReceivedMessage, SendResult
from rocketmq_py.aio import Producer, PushConsumer
from rocketmq_py.blocking import Client
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import ClosedError, OutsideEventLoopError
from rocketmq_py.handoff.loop_link import LoopLink, _LoopClosedDetector, current_link
from rocketmq_py.handoff.trio_thread import TrioThread, WakeupFd, trio_thread
from rocketmq_py.producer.pending import _Failure
from tests.blocking.conftest import BrokerThread, count

RunProgram: TypeAlias = Callable[..., str]


async def send_some(address: str) -> None:
    async with Producer(address, group="g") as producer:
        await asyncio.gather(*[producer.send(Message("T", b"x")) for _ in range(20)])


def test_one_loop_after_another(address: str) -> None:
    for _ in range(5):
        asyncio.run(send_some(address))
    with Client(address) as client:
        assert count(client, "T") == 100


def test_loops_in_several_threads_share_one_producer(address: str) -> None:
    ready, go_on = threading.Event(), threading.Event()
    shared: list[Producer] = []

    async def own() -> None:
        async with Producer(address, group="g", max_in_flight=4) as producer:
            shared.append(producer)
            ready.set()
            await asyncio.to_thread(go_on.wait)

    async def use() -> None:
        futures = [await shared[0].submit(Message("T", b"x")) for _ in range(100)]
        await asyncio.gather(*futures)

    owner = threading.Thread(target=asyncio.run, args=(own(),))
    owner.start()
    ready.wait()
    with ThreadPoolExecutor(8) as pool:
        for used in [pool.submit(asyncio.run, use()) for _ in range(8)]:
            used.result()
    go_on.set()
    owner.join()
    with Client(address) as client:
        assert count(client, "T") == 800


def test_one_producer_on_alternating_loops_and_outside_of_them(address: str) -> None:
    producer = Producer(address, group="g")
    loops = [asyncio.new_event_loop() for _ in range(2)]
    loops[0].run_until_complete(producer.start())
    for loop in loops * 3:
        future = loop.run_until_complete(producer.submit(Message("T", b"x")))
        assert future.get_loop() is loop
        assert isinstance(loop.run_until_complete(future), SendResult)
    with pytest.raises(OutsideEventLoopError):
        producer.submit(Message("T", b"x")).send(None)
    loops[0].run_until_complete(producer.aclose())
    for loop in loops:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@pytest.mark.apis("asyncio")  # uses the internals of a selector event loop
@pytest.mark.parametrize("has_wakeup_fd", [True, False])
def test_loop_is_woken_once_per_trio_step(has_wakeup_fd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        link, loop = current_link(), asyncio.get_running_loop()
        came: list[int] = []
        all_came = asyncio.Event()
        wakes: list[object] = []
        wakes_before: list[int] = []
        waker: Any = link._wakeup_fd if has_wakeup_fd else loop
        name = "wake" if has_wakeup_fd else "call_soon_threadsafe"
        wake = getattr(waker, name)
        if not has_wakeup_fd:  # as with other event loops
            link._wakeup_fd = None

        def note(*arguments: Any) -> None:
            wakes.append(arguments)
            wake(*arguments)

        def hand_over() -> None:  # in the trio thread
            for number in range(100):
                link.deliver(came.append, number)
            link.deliver(all_came.set)
            wakes_before.append(len(wakes))

        monkeypatch.setattr(waker, name, note)
        link.thread.post(hand_over)
        await all_came.wait()
        assert came == list(range(100))
        assert wakes_before == [0]
        assert len(wakes) == 1

    asyncio.run(main())


@pytest.mark.parametrize("kind", [_Failure, WakeupFd, _LoopClosedDetector])
def test_finalizer_after_interrupted_construction_raises_nothing(
    kind: type[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(unraisable.object))
    kind.__new__(kind)
    assert kind.__del__ not in raised  # type: ignore[attr-defined]


@pytest.mark.apis("asyncio")  # uses the internals of a selector event loop
def test_alternating_loops_leave_no_descriptors_and_run_their_callbacks() -> None:
    loops = [asyncio.new_event_loop() for _ in range(2)]
    came: list[int] = []

    async def come() -> LoopLink:
        return current_link()

    first = loops[0].run_until_complete(come())
    first.deliver(came.append, 1)  # the loop is not running
    first._wake()
    for loop in loops * 10:
        loop.run_until_complete(come())
    readers = [len(loop._selector.get_map()) for loop in loops]  # type: ignore[attr-defined]
    assert sorted(readers) == [1, 2]  # asyncio's own, and the link of the last loop
    assert came == [1]
    first.deliver(came.append, 2)
    first._wake()
    loops[0].run_until_complete(asyncio.sleep(0))
    assert came == [1, 2]
    for loop in loops:
        loop.close()


def test_no_task_waits_for_a_thread_that_has_ended() -> None:
    async def main() -> None:
        thread = TrioThread()
        thread.start()
        link = LoopLink(asyncio.get_running_loop(), thread)
        has_begun = threading.Event()

        def fail() -> None:
            has_begun.wait(10)
            thread._nursery.cancel_scope.cancel()  # the queued call never starts

        thread.post(fail)
        waiting = asyncio.create_task(link.call(trio.sleep_forever))
        await asyncio.sleep(0)
        has_begun.set()
        with pytest.raises(ClosedError, match="has ended"):
            await waiting
        thread.join()
        with pytest.raises(ClosedError, match="has ended"):
            await link.call(trio.sleep_forever)

    asyncio.run(main())


@pytest.mark.parametrize("debug", [False, True])
def test_task_keeps_its_context_even_if_empty(debug: bool) -> None:
    variable = contextvars.ContextVar[int]("variable")

    async def call_in_between() -> int:
        link = current_link()
        await link.call(trio.lowlevel.checkpoint)
        token = variable.set(1)
        await link.call(trio.lowlevel.checkpoint)
        seen = variable.get()
        variable.reset(token)  # fails in another context
        return seen

    async def main() -> int:
        return await asyncio.create_task(call_in_between(), context=contextvars.Context())

    assert asyncio.run(main(), debug=debug) == 1


def test_task_error_that_ends_the_loop_does_not_stop_other_deliveries() -> None:
    loop = asyncio.new_event_loop()

    async def main() -> None:
        link = current_link()
        may_go_on, is_held_up = threading.Event(), threading.Event()

        def hold_up() -> None:
            is_held_up.set()
            may_go_on.wait(10)

        async def end() -> None:
            await link.call(trio.lowlevel.checkpoint)
            raise SystemExit(3)

        link.thread.post(hold_up)
        is_held_up.wait(10)
        others = [asyncio.create_task(link.call(trio.lowlevel.checkpoint)) for _ in range(5)]
        ending = asyncio.create_task(end())
        others += [asyncio.create_task(link.call(trio.lowlevel.checkpoint)) for _ in range(5)]
        await asyncio.sleep(0)
        may_go_on.set()
        tasks.extend([*others, ending])
        await asyncio.wait(tasks)
        raise AssertionError("not reached")

    tasks: list[asyncio.Task[None]] = []
    with pytest.raises(SystemExit):
        loop.run_until_complete(main())
    *others, ending = tasks
    loop.run_until_complete(asyncio.wait(others))
    assert isinstance(ending.exception(), SystemExit)
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_a_delivery_interrupted_once_is_repeated_also_after_one_that_was_dropped() -> None:
    calls: list[str] = []

    def defective() -> None:
        calls.append("defective")
        raise ValueError("on purpose")

    def interrupted() -> None:
        calls.append("interrupted")
        if calls.count("interrupted") == 1:
            raise KeyboardInterrupt

    async def main() -> None:
        link = current_link()
        link._outbox.extend([(defective, ()), (interrupted, ())])
        for error in (ValueError, ValueError, KeyboardInterrupt):
            with pytest.raises(error):
                link._take_outbox()
        link._take_outbox()
        assert not link._outbox

    asyncio.run(main())
    assert calls == ["defective", "defective", "interrupted", "interrupted"]


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_delivery_that_an_exception_interrupts_is_repeated_once(failures: int) -> None:
    calls: list[str] = []

    def deliver() -> None:
        calls.append("interrupted")
        if len(calls) <= failures:
            raise TimeoutError  # as signal handlers with an alarm do

    async def main() -> None:
        link = current_link()
        reported: list[BaseException] = []
        link.loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        next_one = asyncio.Event()
        link.thread.post(partial(link.deliver, deliver))
        link.thread.post(partial(link.deliver, next_one.set))
        await next_one.wait()
        assert [type(error) for error in reported] == [TimeoutError] * min(failures, 2)

    asyncio.run(main())
    assert calls == ["interrupted"] * 2


def test_a_call_that_is_cancelled_has_ended_unless_it_is_cancelled_again() -> None:
    async def main() -> None:
        link = current_link()
        is_cancelled, has_ended = asyncio.Event(), asyncio.Event()

        async def end_late(may_end: trio.Event) -> None:
            try:
                await trio.sleep_forever()
            finally:
                link.deliver(is_cancelled.set)
                with trio.CancelScope(shield=True):
                    await may_end.wait()
                link.deliver(has_ended.set)

        async def begin(may_end: trio.Event) -> asyncio.Task[None]:
            is_cancelled.clear()
            has_ended.clear()
            task = asyncio.create_task(link.call(partial(end_late, may_end)))
            await link.call(trio.lowlevel.checkpoint)
            assert task.cancel("enough")
            await is_cancelled.wait()
            assert not task.done()
            return task

        may_end = trio.Event()
        task = await begin(may_end)
        link.thread.post(may_end.set)
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await task
        assert has_ended.is_set()
        may_end = trio.Event()
        task = await begin(may_end)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not has_ended.is_set()
        link.thread.post(may_end.set)
        await has_ended.wait()

    asyncio.run(main())


def test_end_of_a_loop_closes_its_producers(address: str) -> None:
    opened: list[Producer] = []

    async def main() -> None:
        producer = Producer(address, group="g")
        opened.append(producer)
        await producer.start()
        for _ in range(50):
            await producer.submit(Message("T", b"x"))

    asyncio.run(main())
    assert not opened[0].is_open
    assert not trio_thread().open
    with Client(address) as client:
        assert count(client, "T") == 50


def test_closing_the_loop_stops_its_consumer(address: str) -> None:
    async def main() -> PushConsumer:
        # More workers than messages exist, because workers whose calls started on the closed loop hang.
        consumer = PushConsumer(address, group="g", concurrency=64)
        await consumer.start()
        consumer.subscribe("T")

        async def handle(message: ReceivedMessage) -> None:
            raise AssertionError("the loop is closed")

        running = asyncio.create_task(consumer.run(handle))
        while not consumer.assignment:
            await asyncio.sleep(0.01)
        running.add_done_callback(lambda _: None)
        return consumer

    asyncio.run(send_some(address))
    loop = asyncio.new_event_loop()
    consumer = loop.run_until_complete(main())
    kept = list(asyncio.all_tasks(loop))  # tasks that call handlers, too, if messages have arrived already
    loop.close()  # early: neither its tasks nor its generators have ended
    with Client(address) as client, client.producer("g") as producer:
        while consumer.is_open:
            producer.send(Message("T", b"for a loop that is gone"))
            time.sleep(0.01)
    trio_thread().call(consumer._closed.wait)
    assert not consumer.is_open
    for task in kept:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine = task.get_coro()
        assert inspect.iscoroutine(coroutine)
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()  # it would warn that it was never awaited
    kept.clear()


def test_handler_that_blocks_its_loop_delays_no_other_client(address: str) -> None:
    async def main() -> None:
        await send_some(address)
        blocked = threading.Event()
        seen: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            if not seen:
                with Client(address) as client, client.producer("g") as producer:
                    producer.send(Message("Other", b"x"))
                blocked.set()
            seen.append(message.body)
            if len(seen) == 20:
                consumer.stop()

        async with PushConsumer(address, group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            await consumer.run(handle)
        assert blocked.is_set()

    asyncio.run(main())


def test_a_handler_that_blocks_its_loop_for_ten_seconds_costs_neither_membership_nor_messages() -> None:
    """The block is longer than the default request timeout and the heartbeat timeout of many brokers."""
    heartbeats: list[float] = []

    def note(code: int, topic: str | None, peer: str) -> None:
        if code == RequestCode.HEART_BEAT:
            heartbeats.append(time.monotonic())

    broker = BrokerThread(on_request=note)
    address = broker.start()
    blocked: list[float] = []
    seen: list[bytes] = []
    times: list[int] = []

    async def main() -> None:
        async with (
            Producer(address, group="g", heartbeat_interval=1.0) as producer,
            PushConsumer(address, group="g", consume_from="earliest", heartbeat_interval=1.0) as consumer,
        ):

            async def handle(message: ReceivedMessage) -> None:
                if not blocked:
                    sent.extend([await producer.submit(Message("Other", b"x")) for _ in range(20)])
                    blocked.append(time.monotonic())
                    time.sleep(10)
                    blocked.append(time.monotonic())
                seen.append(message.body)
                times.append(message.reconsume_times)
                if len(seen) == 20:
                    consumer.stop()

            sent: list[asyncio.Future[SendResult]] = []
            consumer.subscribe("T")
            await consumer.run(handle)
            assert len(await asyncio.gather(*sent)) == 20

    with Client(address) as client, client.producer("g") as producer:
        for number in range(20):
            producer.send(Message("T", b"%d" % number))
    try:
        asyncio.run(main())
        with Client(address) as client, client.reader() as reader:
            committed = reader.committed("g", reader.offsets("T"))
    finally:
        broker.stop()
    assert sorted(seen) == sorted(b"%d" % number for number in range(20))
    assert times == [0] * 20
    assert sum(offset or 0 for offset in committed.values()) == 20
    began, ended = blocked
    assert len([heard for heard in heartbeats if began < heard < ended]) >= 10  # two clients


INTERRUPTED = """
    import asyncio, logging, os, signal, sys
    from rocketmq_py import Message
    from rocketmq_py.aio import Producer, PushConsumer

    async def main():
        async with Producer(sys.argv[1], group="g") as producer:
            await producer.send(Message("T", b"x"))
        async with PushConsumer(sys.argv[1], group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")

            async def handle(message):
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.Event().wait()

            await consumer.run(handle)

    logging.disable(logging.WARNING)  # the handler that is cut off
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c(address: str, run_program: RunProgram) -> None:
    assert run_program(INTERRUPTED, address) == "interrupted\n"


CONSUMING_AT_THE_END = """
    import asyncio, logging, os, signal, sys
    from rocketmq_py.aio import PushConsumer

    cut_off = []

    def keep(record):
        if record.getMessage().startswith("handler cut off: "):
            cut_off.append(record)
            return False
        return True

    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("rocketmq_py.consumer").addFilter(keep)

    async def main():
        consumer = PushConsumer(
            sys.argv[1], group="g", consume_from="earliest", concurrency=8,
            orderly=sys.argv[3] == "True",
        )
        await consumer.start()
        consumer.subscribe("T")
        both_wait = asyncio.Event()

        async def handle(message):
            waiting.append("message=" + message.message_id)
            if len(waiting) == 2:
                both_wait.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)  # tasks run between the calls, with clients still open

        running.append(asyncio.create_task(consumer.run(handle)))
        await both_wait.wait()
        if sys.argv[2] == "Ctrl-C":
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        if sys.argv[2] == "exception":
            raise ZeroDivisionError

    running, waiting = [], []
    try:
        asyncio.run(main())
    except (KeyboardInterrupt, ZeroDivisionError):
        pass
    assert running[0].cancelled()
    assert {*waiting} <= {record.args[0].split()[0] for record in cut_off}  # others were about to begin
    assert len(cut_off) <= 8
"""


@pytest.mark.parametrize(
    ("end", "orderly"), [("return", False), ("return", True), ("exception", False), ("Ctrl-C", False)]
)
def test_exit_during_handler_calls_names_them_and_messages_are_redelivered(
    address: str, run_program: RunProgram, end: str, orderly: bool
) -> None:
    """All tasks of the loop are cancelled. Cancelled handler tasks do not count as failed."""
    asyncio.run(send_some(address))
    assert run_program(CONSUMING_AT_THE_END, address, end, str(orderly)) == ""
    times: list[int] = []

    def take(message: ReceivedMessage) -> None:
        times.append(message.reconsume_times)
        if len(times) == 20:
            consumer.stop()

    with Client(address) as client, client.push_consumer("g", consume_from="earliest") as consumer:
        consumer.subscribe("T")
        consumer.run(take)
    assert times == [0] * 20


OPEN_AT_THE_END = """
    import asyncio, sys
    from rocketmq_py import Message
    from rocketmq_py.aio import Producer

    loop = asyncio.new_event_loop()

    async def main():
        producer = Producer(sys.argv[1], group="g")
        await producer.start()
        for _ in range(20):
            await producer.submit(Message("T", b"x"))

    loop.run_until_complete(main())
    loop.close()
"""


def test_process_may_end_with_open_clients(address: str, run_program: RunProgram) -> None:
    assert run_program(OPEN_AT_THE_END, address) == ""
    with Client(address) as client:
        assert count(client, "T") == 20


FORKED = """
    import asyncio, os, sys
    from rocketmq_py import Message
    from rocketmq_py.aio import Producer
    from rocketmq_py.errors import ClosedError

    async def main():
        producer = Producer(sys.argv[1], group="g")
        await producer.start()
        await producer.send(Message("T", b"parent"))
        return producer

    loop = asyncio.new_event_loop()
    producer = loop.run_until_complete(main())
    child = os.fork()
    if not child:
        try:
            asyncio.run(producer.send(Message("T", b"x")))
        except ClosedError as error:
            assert "opened in the parent process" in str(error)
        else:
            os._exit(1)
        asyncio.run(main())
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    loop.run_until_complete(producer.send(Message("T", b"parent")))
    loop.run_until_complete(producer.aclose())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork link")
def test_a_forked_child(address: str, run_program: RunProgram) -> None:
    assert run_program(FORKED, address) == ""
    with Client(address) as client:
        assert count(client, "T") == 3


FORKED_WHILE_SENDING = """
    import asyncio, os
    from rocketmq_py import Message
    from rocketmq_py.aio import Producer
    from rocketmq_py.errors import ClosedError
    from rocketmq_py.testing import run_broker

    def in_child(producer):
        try:
            asyncio.run(producer.send(Message("T", b"child")))
        except ClosedError:
            return 0
        return 1

    async def main(broker):
        async with Producer(broker.name_server_address, group="g") as producer:
            await producer.send(Message("T", b"parent"))
            with broker.freeze():
                futures = [await producer.submit(Message("T", b"parent")) for _ in range(199)]
                child = os.fork()
                if not child:
                    os._exit(in_child(producer))
                assert os.waitpid(child, 0) == (child, 0)
                assert not any([future.done() for future in futures])
            await asyncio.gather(*futures)
            assert producer.statistics.retried == 0
            assert len(broker.messages("T")) == 200

    with run_broker(topics=["T"]) as broker:
        asyncio.run(main(broker))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork link")
def test_fork_with_messages_in_flight_sends_each_once(run_program: RunProgram) -> None:
    assert run_program(FORKED_WHILE_SENDING) == ""
