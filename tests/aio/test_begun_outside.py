"""Sends that are begun in the thread that makes them, as trio's just waits."""

from __future__ import annotations

import asyncio
import gc
import itertools
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

import pytest

from rocketmq_py import Message
from rocketmq_py.aio import Producer
from rocketmq_py.blocking import Client, PushConsumer
from rocketmq_py.blocking import Producer as BlockingProducer
from rocketmq_py.crossing.process_thread import trio_thread
from rocketmq_py.crossing.sends import SendCall
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.producer.begun import Begun
from tests.blocking.conftest import count

MOST_SENDS = 2000
"""So many are tried until trio's thread has just waited when one was begun."""


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread that each send was begun in."""
    idents: list[int] = []
    begin = Begun.begin_first_try

    def noting(begun: Begun, *arguments: Any, **named: Any) -> None:
        begin(begun, *arguments, **named)
        if begun.is_under_way:
            idents.append(threading.get_ident())

    monkeypatch.setattr(Begun, "begin_first_try", noting)
    return idents


def test_a_task_begins_its_sends_itself(address: str, threads: list[int]) -> None:
    async def main() -> int:
        async with Producer(address, group="g") as producer:
            sent = 0
            while threading.get_ident() not in threads and sent < MOST_SENDS:
                await producer.send(Message("T", b"x"))
                sent += 1
            await asyncio.gather(*[producer.send(Message("T", b"x")) for _ in range(20)])
            return sent + 20

    sent = asyncio.run(main())
    assert threading.get_ident() in threads
    with Client(address) as client:
        assert count(client, "T") == sent


@pytest.mark.doors("threads")
def test_a_thread_that_calls_alone_begins_its_sends_itself(address: str, threads: list[int]) -> None:
    def send() -> None:
        for _ in range(MOST_SENDS):
            producer.send(Message("T", b"x"))
            if threading.get_ident() in threads:
                return

    with BlockingProducer(address, group="g") as producer, PushConsumer(address, group="c") as consumer:
        consumer.subscribe("Other")
        consumer.start(lambda _: None)  # it calls as long as it runs
        other = threading.Thread(target=send)
        other.start()
        other.join()
        send()
    assert {other.ident, threading.get_ident()} <= set(threads)


@pytest.mark.doors("threads")
def test_in_the_main_thread_handlers_of_the_programs_own_may_call(address: str, threads: list[int]) -> None:
    """As one that closes what it finds: it would wait for what it has interrupted."""

    def send_too(*_: object) -> None:
        producer.send(Message("T", b"interrupting"))

    before = signal.signal(signal.SIGTERM, send_too)
    try:
        with BlockingProducer(address, group="g") as producer:
            for _ in range(50):
                producer.send(Message("T", b"x"))
                signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert threading.get_ident() not in threads
    with Client(address) as client:
        assert count(client, "T") == 100


class Interrupting:
    """Raises KeyboardInterrupt at one of the steps at which Python calls signals' handlers in a function.

    That is when a function of Python's begins, and when one of C's has ended.

    Args:
        code: the function's.
        step: which of them, from 1.

    Attributes:
        has_raised: whether it has.
        was_outside: whether any send was begun in this thread.
    """

    def __init__(self, code: CodeType, step: int) -> None:
        self._code = code
        self._left = step
        self._is_beginning = False
        self.has_raised = self.was_outside = False

    def __enter__(self) -> Interrupting:
        gc.disable()  # what it calls, and what is raised there, is no affair of ours
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _look(self, frame: FrameType, event: str, value: object) -> None:
        if event in {"call", "return"} and frame.f_code is self._code:
            self._is_beginning = event == "call"
        elif event == "return" and frame.f_code is SendCall.begin_outside.__code__:
            self.was_outside |= value is True
        if self._is_beginning and event in {"call", "c_return"}:
            self._left -= 1
            if not self._left:
                self.has_raised = True
                raise KeyboardInterrupt


def each_step(code: CodeType) -> Iterator[tuple[Interrupting, bytes]]:
    """Yield what interrupts each step of a function, and a body, until one has begun a send and ended."""
    step, skipped = 1, 0
    while True:
        interrupting = Interrupting(code, step)
        yield interrupting, b"%d %d" % (step, skipped)
        if interrupting.has_raised:
            step += 1
        elif interrupting.was_outside:
            break
        else:  # trio's thread did not wait just then
            skipped += 1
    assert step > 50


def stored_at(address: str) -> Counter[bytes]:
    """Return how often each body is stored."""
    with Client(address) as client, client.reader() as reader:
        return Counter(message.body for queue in reader.offsets("T") for message in reader.range(queue))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.mark.long
@pytest.mark.parametrize("together", [1, 4])
def test_a_handler_of_a_signal_may_raise_at_any_step(
    address: str, loop: asyncio.AbstractEventLoop, together: int
) -> None:
    """As in a notebook: the loop goes on, and what others send is neither lost nor sent twice."""

    async def send_twice(body: bytes) -> None:
        await producer.send(Message("T", b"first " + body))
        await producer.send(Message("T", body))

    async def open_one() -> Producer:
        return await Producer(address, group="g").__aenter__()

    succeeded, later = [], []
    producer = loop.run_until_complete(open_one())
    for interrupting, at in each_step(TrioThread.begin.__code__):
        bodies = [b"%s %d" % (at, number) for number in range(together)]
        tasks = [loop.create_task(send_twice(body)) for body in bodies]
        with interrupting, suppress(KeyboardInterrupt):
            loop.run_until_complete(asyncio.wait(tasks))
        loop.run_until_complete(asyncio.wait(tasks, timeout=60))
        assert all(task.done() for task in tasks)
        succeeded += [body for task, body in zip(tasks, bodies, strict=True) if task.exception() is None]
        assert trio_thread().call_sync(lambda: True)  # nobody keeps it from running
        later.append(b"later " + at)
        loop.run_until_complete(asyncio.wait_for(send_twice(later[-1]), 60))
    loop.run_until_complete(producer.aclose())
    stored = stored_at(address)
    for body in later:
        assert stored[b"first " + body] == stored[body] == 1
    for body in succeeded:  # what was under way on a connection that was given up has been tried again
        assert stored[b"first " + body] >= 1
        assert stored[body] >= 1


@pytest.mark.doors("threads")
@pytest.mark.long
@pytest.mark.parametrize("_", range(10))  # now and then trio's thread does not wait just then
def test_ctrl_c_may_come_at_any_step_of_a_send_in_the_main_thread(address: str, _: int) -> None:
    thread, succeeded, later = trio_thread(), list[bytes](), list[bytes]()
    with BlockingProducer(address, group="g") as producer:
        producer.send(Message("T", b"the way is known"))
        for interrupting, body in each_step(TrioThread.wait_for.__code__):
            with interrupting, suppress(KeyboardInterrupt):
                producer.send(Message("T", body))
                succeeded.append(body)
            assert thread.call_sync(lambda: True)  # nobody keeps it from running
            assert not thread._sends
            later.append(b"later " + body)
            producer.send(Message("T", later[-1]))
    stored = stored_at(address)
    assert [stored[body] for body in later] == [1] * len(later)
    assert all(stored[body] >= 1 for body in succeeded)


def test_what_interrupts_a_send_is_told_that_it_cannot_wait(
    address: str, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    async def main() -> None:
        async with Producer(address, group="g") as producer:
            with BlockingProducer(address, group="h") as other:
                begin = SendCall.begin_outside

                def interrupted(call: SendCall) -> bool:
                    with pytest.raises(RuntimeError) as raised:
                        other.send(Message("T", b"x"))
                    told.append(str(raised.value))
                    return begin(call)

                monkeypatch.setattr(SendCall, "begin_outside", interrupted)
                for _ in itertools.repeat(None, MOST_SENDS):
                    await producer.send(Message("T", b"x"))
                    if told:
                        break

    loop.run_until_complete(main())
    assert "a signal's handler, or a finalizer, that has interrupted a send" in told[0]
