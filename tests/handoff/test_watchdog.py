"""The trio thread is blocked by a user's selector, and the callers that wait for it say so."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from rocketmq_py import Message, MessageQueue, aio, blocking
from rocketmq_py.handoff import watchdog
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.handoff.trio_thread import trio_thread
from rocketmq_py.producer import ProducerHook, SendContext
from tests.blocking.conftest import BrokerThread

PATIENCE = 60


@pytest.fixture
def address() -> Iterator[str]:
    broker = BrokerThread()
    yield broker.start()
    broker.stop()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have waiting callers check the thread more often than each second."""
    for module in ("watchdog", "calls", "loop_link", "hosted"):
        for name in ("STUCK_SECONDS", "SIGNAL_CHECK_SECONDS"):
            monkeypatch.setattr(f"rocketmq_py.handoff.{module}.{name}", 0.05, raising=False)
    monkeypatch.setattr("rocketmq_py.blocking.futures.SIGNAL_CHECK_SECONDS", 0.05)
    monkeypatch.setattr("rocketmq_py.blocking.base_producers.SIGNAL_CHECK_SECONDS", 0.05)


class Blocking:
    """A selector that blocks the thread that calls it until the warning is in the log."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        self.has_begun.set()
        self.may_end.wait(PATIENCE)
        return queues[0] if queues else MessageQueue("T", "broker-a", 0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    log_records.flush()
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def until_warned(caplog: pytest.LogCaptureFixture) -> None:
    deadline = time.monotonic() + PATIENCE
    while not warnings(caplog):
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def send(producer: Any, selector: Blocking) -> None:
    producer.send(Message("T", b"x"), queue=selector, timeout=PATIENCE)


def submit(producer: Any, selector: Blocking) -> None:
    producer.submit(Message("T", b"x"), queue=selector, timeout=PATIENCE).result(PATIENCE)


@pytest.mark.parametrize("call", [send, submit])
def test_a_blocked_thread_is_reported_once_with_its_stack_by_the_caller_that_waits(
    address: str, caplog: pytest.LogCaptureFixture, call: Callable[[Any, Blocking], None]
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.handoff")
    selector = Blocking()
    with blocking.Producer(address, group="p") as producer:
        producer.send(Message("T", b"first"))
        sending = threading.Thread(target=call, args=(producer, selector))
        sending.start()
        assert selector.has_begun.wait(PATIENCE)
        until_warned(caplog)
        health = producer.health()
        [reason] = health.reasons
        assert not health.healthy
        assert health.client.reasons == (reason,)
        assert (
            "the background thread of rocketmq_py does not run, it is blocked in Blocking.__call__" in reason
        )
        assert not trio_thread().watchdog.check()  # type: ignore[func-returns-value]
        selector.may_end.set()
        sending.join(PATIENCE)
        assert producer.health().healthy
    [line] = warnings(caplog)
    assert "Selectors, hooks and finalizers must not block. It stands here:" in line
    assert "in __call__\n    self.may_end.wait(PATIENCE)" in line
    assert any("runs again after=" in record.getMessage() for record in caplog.records)


def test_a_hook_that_blocks_is_named(address: str, caplog: pytest.LogCaptureFixture) -> None:
    selector = Blocking()

    class Hook(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            selector([], context.messages[0])

    with blocking.Producer(address, group="p") as producer:
        producer.add_hook(Hook())
        sending = threading.Thread(target=producer.send, args=(Message("T", b"x"),))
        sending.start()
        assert selector.has_begun.wait(PATIENCE)
        until_warned(caplog)
        [reason] = producer.health().reasons
        selector.may_end.set()
        sending.join(PATIENCE)
    assert "it is blocked in test_a_hook_that_blocks_is_named.<locals>.Hook.before_send (" in reason


def test_a_loop_reports_a_blocked_thread_while_something_is_open_on_it(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        blocked, may_end = threading.Event(), threading.Event()

        def block() -> None:
            blocked.set()
            may_end.wait(PATIENCE)

        async with aio.Client(address) as client:
            assert "background thread" not in str(client.health())
            trio_thread().post(block)
            await asyncio.to_thread(blocked.wait, PATIENCE)
            await asyncio.to_thread(until_warned, caplog)
            assert "it is blocked in test_a_loop_reports" in client.health().reasons[0]
            may_end.set()
            async with client.push_consumer("g") as consumer:
                assert "run() has not been called" in consumer.health().reasons[0]

    asyncio.run(main())
    assert len(warnings(caplog)) == 1


def test_neither_a_thread_that_answers_nor_a_pause_of_the_whole_process_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Thread:
        ident = threading.get_ident()

        def __init__(self) -> None:
            self.probes: list[Callable[[], object]] = []

        def post(self, function: Callable[[], object]) -> None:
            self.probes.append(function)

    clock = [0.0]
    monkeypatch.setattr(watchdog, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr("rocketmq_py.handoff.watchdog.time.monotonic", lambda: clock[0])
    thread: Any = Thread()
    trio_thread()  # with the thread that calls logging handlers
    dog = watchdog.Watchdog(thread)

    def check_at(*times: float) -> None:
        for clock[0] in times:
            dog.check()

    for moment in (10, 11, 12):
        check_at(moment)
        thread.probes.pop()()  # answered
    check_at(100, 200, 200.5, 300)  # no check for a long time
    assert (warnings(caplog), len(thread.probes)) == ([], 1)
    check_at(301, 302, 303)
    assert len(warnings(caplog)) == 1
    assert dog.is_stuck
    thread.probes.pop()()
    assert not dog.is_stuck
