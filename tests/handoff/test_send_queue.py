"""The space that pipelined sends wait for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import trio

from rocketmq_py import Message
from rocketmq_py.blocking.base_producers import ThreadSendQueue
from rocketmq_py.errors import ClosedError, SendForbiddenError
from rocketmq_py.handoff.send_queue import QueuedSend
from rocketmq_py.handoff.trio_thread import TrioThread
from rocketmq_py.producer.closing import Closing
from rocketmq_py.producer.statistics import Counters


class Owner:
    """A producer that gets sends by a function of the test."""

    def __init__(self, submit: Callable[[QueuedSend], Coroutine[Any, Any, object] | None]) -> None:
        self._submit = submit

    def _submit_to_target(self, send: QueuedSend) -> Coroutine[Any, Any, object] | None:
        return self._submit(send)

    def _closed_error(self) -> ClosedError:
        return ClosedError("closed")


def test_a_sender_is_woken_only_when_its_message_fits() -> None:
    thread = TrioThread()
    thread.start()
    route = trio.Event()
    queue = ThreadSendQueue(
        thread, Owner(lambda _: route.wait()), Closing(Counters(), "g"), max_count=100, max_bytes=1000
    )
    queue.open(thread._nursery)
    message = Message("T", bytes(200))
    size = queue.check(message)
    first, *_ = [queue.send(message, None) for _ in range(3)]
    assert not queue.has_space(size)

    woken: list[bool] = []
    assert queue.must_wait(lambda: woken.append(True), size)
    thread.call(trio.lowlevel.checkpoint)  # the first message waits for a route, and the others in the queue
    assert (queue.in_flight, queue.queued, woken) == (1, 3, [])

    thread.call_plain(route.set)
    while queue.queued:
        thread.call(trio.lowlevel.checkpoint)
    assert not woken
    thread.call_plain(partial(first._succeed, "result"))
    assert woken == [True]
    thread.stop()


def test_a_small_message_does_not_wait_for_the_space_of_a_large_one() -> None:
    thread = TrioThread()
    thread.start()
    queue = ThreadSendQueue(
        thread, Owner(lambda _: None), Closing(Counters(), "g"), max_count=100, max_bytes=4000
    )
    queue.open(thread._nursery)
    first, second = [queue.send(Message("T", bytes(size)), None) for size in (500, 3200)]
    thread.call(trio.lowlevel.checkpoint)
    assert queue.in_flight == 2
    woken: list[str] = []
    assert queue.must_wait(lambda: woken.append("large"), 3700)
    assert queue.must_wait(lambda: woken.append("small"), 600)

    thread.call_plain(partial(second._succeed, "result"))
    assert woken == ["small"]
    thread.call_plain(partial(first._succeed, "result"))
    assert woken == ["small", "large"]
    thread.stop()


def test_sends_that_are_refused_one_after_the_other_let_other_tasks_run() -> None:
    thread = TrioThread()
    thread.start()
    scope = trio.CancelScope()
    ticks: list[float] = []
    ticks_seen: list[int] = []

    async def tick() -> None:
        with scope:
            while True:
                ticks.append(trio.current_time())
                await trio.lowlevel.checkpoint()

    async def refuse(_: object) -> None:
        ticks_seen.append(len(ticks))
        raise SendForbiddenError("no")

    queue = ThreadSendQueue(
        thread,
        Owner(refuse),
        Closing(Counters(), "g"),
        max_count=100,
        max_bytes=10_000,
    )
    queue.open(thread._nursery)
    thread.call_plain(partial(thread._nursery.start_soon, tick))
    futures = [queue.send(Message("T", b"x"), None) for _ in range(20)]
    assert all(isinstance(future.exception(), SendForbiddenError) for future in futures)
    thread.call_plain(scope.cancel)
    assert len(set(ticks_seen)) >= len(futures) // 2, "trio runs the tasks of one pass in a random order"
    assert queue.queued == queue.in_flight == 0
    thread.stop()
