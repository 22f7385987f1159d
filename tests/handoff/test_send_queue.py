"""The space that pipelined sends wait for."""

from __future__ import annotations

from functools import partial

import trio

from rocketmq_py import Message
from rocketmq_py.blocking.sends import ThreadSendQueue
from rocketmq_py.handoff.trio_thread import TrioThread


def test_a_sender_is_woken_only_when_its_message_fits() -> None:
    thread = TrioThread()
    thread.start()
    route = trio.Event()
    queue = ThreadSendQueue(thread, lambda _: route.wait(), max_count=100, max_bytes=1000)
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
    thread.call_plain(partial(first.succeed, "result"))
    assert woken == [True]
    thread.stop()
