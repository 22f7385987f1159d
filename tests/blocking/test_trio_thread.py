"""The trio thread: calls from other threads, and the file descriptors that wake it up."""

from __future__ import annotations

import contextvars
import os
import select
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio

from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.handoff.calls import SIGNAL_CHECK_SECONDS, ThreadCall
from rocketmq_py.handoff.trio_thread import TrioThread, WakeupFd, trio_thread

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def test_a_process_has_one_thread() -> None:
    with ThreadPoolExecutor(8) as pool:
        threads = {id(thread) for thread in pool.map(lambda _: trio_thread(), range(32))}
    assert len(threads) == 1
    assert trio_thread().is_usable


def test_a_result_an_error_and_the_callers_context() -> None:
    async def say() -> str:
        await trio.lowlevel.checkpoint()
        return variable.get()

    async def fail() -> None:
        raise ConfigurationError("wrong")

    variable.set("mine")
    assert trio_thread().call(say) == "mine"
    with pytest.raises(ConfigurationError, match="wrong"):
        trio_thread().call(fail)


def test_calls_of_many_threads_at_once() -> None:
    thread = trio_thread()

    def double(number: int) -> int:
        async def in_trio() -> int:
            await trio.lowlevel.checkpoint()
            return 2 * number

        return thread.call(in_trio)

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(double, range(2000))) == [2 * number for number in range(2000)]


def test_posted_functions_run_in_order_and_a_failure_stops_none(caplog: pytest.LogCaptureFixture) -> None:
    thread = trio_thread()
    busy, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def block() -> None:
        busy.set()
        go_on.wait()

    thread.post(block)
    busy.wait()
    thread.post(lambda: 1 // 0)
    for number in range(1000):
        thread.post(lambda number=number: done.append(number))  # type: ignore[misc]
    last = threading.Event()
    thread.post(last.set)
    go_on.set()
    last.wait()
    assert done == list(range(1000))
    log_records.flush()
    assert "internal error: a call into the trio thread failed" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, ClosedError])
def test_an_interrupted_call_is_cancelled_before_the_interruption_is_raised(
    error: type[BaseException],
) -> None:
    started, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        try:
            started.set()
            await trio.sleep_forever()
        finally:
            ended.set()

    main = threading.main_thread().ident
    assert main == threading.get_ident()

    def interrupt() -> None:
        started.wait()
        signal.pthread_kill(main, signal.SIGINT)

    def raise_error(*_: object) -> None:
        raise error

    interrupting = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, raise_error)
    interrupting.start()
    try:
        with pytest.raises(error):
            trio_thread().call(wait)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()
    interrupting.join()


def test_a_call_that_takes_too_long() -> None:
    go_on = trio.Event()
    with pytest.raises(TimeoutError, match="has not ended within"):
        trio_thread().call(go_on.wait, timeout=0.01)
    trio_thread().post(go_on.set)


def test_a_call_has_its_callers_context_until_its_end() -> None:
    seen, go_on = list[str](), trio.Event()

    async def look() -> None:
        seen.append(variable.get())
        await trio.lowlevel.checkpoint()
        seen.append(variable.get())
        variable.set("its own")
        await go_on.wait()
        seen.append(variable.get())

    async def let_go_on() -> None:
        seen.append(variable.get())
        go_on.set()

    with ThreadPoolExecutor(1, initializer=variable.set, initargs=("caller's",)) as pool:
        waiting = pool.submit(trio_thread().call, look)
        while len(seen) < 2:
            trio_thread().call(trio.lowlevel.checkpoint)
        trio_thread().call(let_go_on)
        waiting.result()
    assert seen == ["caller's", "caller's", variable.get(), "its own"]


def test_cancellation_within_a_call_is_caught_there() -> None:
    async def wait() -> str:
        with trio.move_on_after(0.01):
            await trio.sleep_forever()
        return "went on"

    assert trio_thread().call(wait) == "went on"


@pytest.mark.parametrize("others", [0, 1])
def test_a_cancelled_call_ends_and_no_other(others: int) -> None:
    thread = trio_thread()
    waits, ended = threading.Event(), list[str]()

    async def wait(name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(name)

    async def wait_in_nursery() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "child")
            waits.set()
            await wait("call")

    call = ThreadCall[None](thread, wait_in_nursery)
    for _ in range(others):  # alone or with others
        thread.post(ThreadCall[None](thread, trio.lowlevel.checkpoint))
    thread.post(call)
    waits.wait()
    thread.post(call.cancel)
    call.wait()
    with pytest.raises(ClosedError, match="the call was cancelled"):
        call.outcome()
    assert sorted(ended) == ["call", "child"]
    for _ in range(5):
        thread.call(trio.lowlevel.checkpoint)


def test_error_raised_during_the_cleanup_of_a_cancelled_call() -> None:
    thread, waits = trio_thread(), threading.Event()

    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("in the end")

    async def fail_in_nursery() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.lowlevel.checkpoint()
            waits.set()
            await trio.sleep_forever()

    call = ThreadCall[None](thread, fail_in_nursery)
    thread.post(call)
    waits.wait()
    thread.post(call.cancel)
    call.wait()
    with pytest.raises(ExceptionGroup) as caught:
        call.outcome()
    assert [str(error) for error in caught.value.exceptions] == ["in the end"]
    thread.call(trio.lowlevel.checkpoint)


def test_a_call_cancelled_before_it_has_its_task() -> None:
    thread = trio_thread()
    reached = list[str]()

    async def note() -> None:
        reached.append("its beginning")
        await trio.lowlevel.checkpoint()
        reached.append("its end")

    call = ThreadCall[None](thread, note)
    together = threading.Event()

    def cross() -> None:  # in the trio thread: functions posted meanwhile are run together
        thread.post(call)
        thread.post(call.cancel)
        together.set()

    thread.post(cross)
    together.wait()
    call.wait()
    with pytest.raises(ClosedError, match="the call was cancelled"):
        call.outcome()
    assert reached == ["its beginning"]
    thread.call(trio.lowlevel.checkpoint)


def test_the_thread_cannot_call_itself() -> None:
    thread = trio_thread()

    async def call_back() -> None:
        thread.call(trio.lowlevel.checkpoint)

    with pytest.raises(RuntimeError, match="cannot wait"):
        thread.call(call_back)


def test_failed_thread_fails_all_waiting_calls(caplog: pytest.LogCaptureFixture) -> None:
    thread = TrioThread()
    thread.start()

    async def wait() -> None:
        waiting.set()
        await trio.sleep_forever()

    async def fail() -> None:
        raise ValueError("a defect")

    waiting = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(thread.call, wait)
        waiting.wait()
        thread.post(lambda: thread.start_task_soon(fail))
        with pytest.raises(ClosedError, match="has ended"):
            future.result()
    thread.join()
    with pytest.raises(ClosedError, match="has ended") as caught:
        thread.call(trio.lowlevel.checkpoint)
    assert "a defect" in str(getattr(caught.value.__cause__, "exceptions", None))
    thread.join()
    log_records.flush()
    assert "a defect" in caplog.text
    assert not thread.is_usable
    with pytest.raises(ClosedError, match="has ended"):
        thread.call(trio.lowlevel.checkpoint)


def test_interrupt_right_after_a_wait_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, waited = ThreadCall.wait, []

    def interrupted(call: ThreadCall[None], *_: float) -> bool:
        waited.append(wait(call, 10))
        if len(waited) == 1:
            raise KeyboardInterrupt
        return waited[-1]

    monkeypatch.setattr(ThreadCall, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trio_thread().call(trio.lowlevel.checkpoint)
    assert waited == [True, True]


def test_signal_just_before_a_wait_interrupts_it_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    class Lock:
        def acquire(self, timeout: float) -> bool:
            timeouts.append(timeout)
            if len(timeouts) == 3:
                raise KeyboardInterrupt  # a signal arrived just before the wait ended
            return False

    call = ThreadCall[None](trio_thread(), trio.sleep_forever)
    monkeypatch.setattr(call, "_done", Lock())
    with pytest.raises(KeyboardInterrupt):
        call.wait()
    assert timeouts == [SIGNAL_CHECK_SECONDS] * 3


@pytest.fixture(params=["eventfd", "sockets"])
def wakeup_fd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WakeupFd:
    if request.param == "sockets":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("this system has none")
    return WakeupFd()


def is_readable(wakeup_fd: WakeupFd) -> bool:
    return bool(select.select([wakeup_fd], [], [], 0)[0])


def test_descriptor_is_readable_from_wake_up_until_drained(wakeup_fd: WakeupFd) -> None:
    assert not is_readable(wakeup_fd)
    for _ in range(3):
        wakeup_fd.wake()
        wakeup_fd.wake()
        assert is_readable(wakeup_fd)
        wakeup_fd.drain()
        assert not is_readable(wakeup_fd)


def test_more_wake_ups_than_the_buffer_holds(wakeup_fd: WakeupFd) -> None:
    for _ in range(100_000):
        wakeup_fd.wake()
    assert is_readable(wakeup_fd)


def test_drain_of_a_drained_descriptor_does_nothing(wakeup_fd: WakeupFd) -> None:
    wakeup_fd.drain()
    assert not is_readable(wakeup_fd)
