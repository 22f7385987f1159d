from __future__ import annotations

import functools
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.concurrent import ConcurrentDispatch
from rocketmq_py.consumer.push.dispatch import YIELD_EVERY
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.dispatching import Backs, Gate, handling_in, holding, settled
from tests.consumer.received import QUEUE, received, several

Open = Callable[..., ConcurrentDispatch]


@pytest.fixture
def backs() -> Backs:
    return Backs()


@pytest.fixture
async def open_handling(nursery: trio.Nursery, backs: Backs) -> Open:
    return functools.partial(handling_in, nursery, backs=backs)


async def test_what_was_handled_is_removed(open_handling: Open) -> None:
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)

    handling = open_handling(handle)
    process_queue = holding(100)
    handling.offer(process_queue)
    await settled()
    assert seen == list(range(100))
    assert process_queue.safe_offset == 100
    process_queue.put(several([100]), 101)
    handling.offer(process_queue)
    handling.offer(process_queue)
    await settled()
    assert process_queue.safe_offset == 101
    assert handling.in_flight == 0


async def test_when_a_call_waits_those_before_it_are_done_with_and_those_behind_it_go_on(
    open_handling: Open,
) -> None:
    gate = trio.Event()
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 5:
            await gate.wait()

    handling = open_handling(handle)
    process_queue = holding(10)
    handling.offer(process_queue)
    await settled()
    assert seen == list(range(10))
    assert (process_queue.safe_offset, len(process_queue), handling.in_flight) == (5, 1, 1)
    gate.set()
    await settled()
    assert (process_queue.safe_offset, handling.in_flight) == (10, 0)


async def test_when_a_call_fails_those_before_it_are_done_with_and_those_behind_it_go_on(
    open_handling: Open, nursery: trio.Nursery
) -> None:
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 5:
            raise ValueError("not this one")

    async def never(_: ReceivedMessage, __: int) -> None:
        await trio.sleep_forever()

    process_queue = holding(10)
    handling = handling_in(nursery, handle, backs=never)
    handling.offer(process_queue)
    await settled()
    assert seen == list(range(10))
    assert (process_queue.safe_offset, len(process_queue), handling.in_flight) == (5, 1, 1)


async def test_a_handler_that_stops_it_is_called_no_more(open_handling: Open) -> None:
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 3:
            handling.close()

    process_queue = holding(10)
    handling = open_handling(handle)
    handling.offer(process_queue)
    await settled()
    await handling.drain()
    assert seen == [0, 1, 2, 3]
    assert (process_queue.safe_offset, process_queue.waiting, handling.in_flight) == (4, 6, 0)


@pytest.mark.parametrize("batch_size", [None, 2])
async def test_cancelled_in_the_middle_only_what_was_handled_is_done_with(
    backs: Backs, batch_size: int | None
) -> None:
    calls = 0

    async def handle(_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            await trio.sleep_forever()

    process_queue = holding(10)
    async with trio.open_nursery() as nursery:
        handling_in(nursery, handle, 1, backs=backs, batch_size=batch_size).offer(process_queue)
        await settled()
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 2 * (batch_size or 1)
    assert not backs.taken


async def test_every_call_is_timed_whether_it_waits_or_not(
    open_handling: Open, autojump_clock: trio.testing.MockClock
) -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset % 2:
            await trio.sleep(1)

    process_queue = holding(100)
    open_handling(handle).offer(process_queue)
    await trio.sleep(100)
    assert (process_queue.counts.calls, process_queue.counts.call_seconds) == (100, 50)


@pytest.mark.parametrize("concurrency", [1, 3, 50])
async def test_so_many_run_at_once_and_no_more(open_handling: Open, concurrency: int) -> None:
    gate = Gate()
    handling = open_handling(gate, concurrency)
    process_queue = holding(20)
    handling.offer(process_queue)
    await settled()
    assert sorted(gate.running) == list(range(min(concurrency, 20)))
    assert handling.in_flight == min(concurrency, 20)
    gate.open.set()
    await settled()
    assert len(process_queue) == 0
    assert gate.most == min(concurrency, 20)


async def test_queues_are_served_in_turn(open_handling: Open) -> None:
    order: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        order.append(message.topic)
        await trio.lowlevel.checkpoint()

    handling = open_handling(handle, concurrency=1)
    queues = [ProcessQueue(MessageQueue(topic, "b", 0), 0) for topic in "abc"]
    for process_queue in queues:
        process_queue.put([received(offset, topic=process_queue.queue.topic) for offset in range(3)], 3)
        handling.offer(process_queue)
    await settled()
    assert "".join(order) == "abcabcabc"


async def test_a_handler_that_never_waits_lets_others_run(open_handling: Open, nursery: trio.Nursery) -> None:
    handled_when_others_ran: list[int] = []
    handled = 0

    async def handle(_: ReceivedMessage) -> None:
        nonlocal handled
        handled += 1

    async def other() -> None:
        while handled < 500:
            handled_when_others_ran.append(handled)
            await trio.lowlevel.checkpoint()

    nursery.start_soon(other)
    handling = open_handling(handle)
    handling.offer(holding(500))
    await settled()
    steps = [after - before for before, after in itertools.pairwise(handled_when_others_ran)]
    # Three workers yield by themselves; trio may run what is ready twice before it is the turn of another.
    assert max(steps) <= 2 * 3 * YIELD_EVERY


async def test_a_failure_is_logged_and_given_back(
    open_handling: Open, backs: Backs, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            raise ValueError("not this one")

    process_queue = ProcessQueue(MessageQueue("%RETRY%g", "broker-a", 3), 0)
    process_queue.put([received(0), received(1, UNIQ_KEY="7F0001"), received(2)], 3)
    open_handling(handle).offer(process_queue)
    await settled()
    assert [message.queue_offset for message in backs.taken] == [1]
    assert process_queue.safe_offset == 3
    [record] = caplog.records
    assert record.message == (
        "handler failed: message=7F0001 topic=T retry_topic=%RETRY%g broker=broker-a queue=3 offset=1"
    )
    assert record.exc_info
    assert str(record.exc_info[1]) == "not this one"


async def test_what_cannot_be_given_back_is_handled_again_here_after_5_seconds(
    open_handling: Open,
    backs: Backs,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries: list[tuple[int, int, float]] = []

    async def handle(message: ReceivedMessage) -> None:
        tries.append((message.queue_offset, message.reconsume_times, trio.current_time()))
        if message.queue_offset < 2 and message.reconsume_times < 2:
            raise ValueError("no")

    backs.failures = 3
    process_queue = holding(3)
    handling = open_handling(handle, concurrency=1)
    handling.offer(process_queue)
    await trio.sleep(1)
    assert process_queue.safe_offset == 0, "the offset does not pass what is kept"
    assert len(process_queue) == 2
    await trio.sleep(100)
    assert tries == [(0, 0, 0.0), (1, 0, 0.0), (2, 0, 0.0), (0, 1, 5.0), (1, 1, 5.0), (0, 2, 10.0)]
    assert [(message.queue_offset, message.reconsume_times) for message in backs.taken] == [(1, 1)]
    assert process_queue.safe_offset == 3


@pytest.mark.parametrize("in_threads", [False, True])
async def test_a_body_that_cannot_be_read_never_reaches_the_handler(
    in_threads: bool, open_handling: Open, backs: Backs, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    def plain(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)

    async def handle(message: ReceivedMessage) -> None:
        plain(message)

    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put([received(0), received(1, corruption="not zlib"), received(2)], 3)
    open_handling(plain if in_threads else handle).offer(process_queue)
    while len(process_queue):
        await trio.sleep(0.001)
    assert sorted(seen) == [0, 2]
    assert [message.queue_offset for message in backs.taken] == [1]
    assert process_queue.safe_offset == 3
    assert "its body cannot be read: not zlib" in caplog.text


async def test_a_queue_that_is_dropped_is_handed_out_no_more(open_handling: Open, backs: Backs) -> None:
    gate = Gate()
    handling = open_handling(gate, concurrency=2)
    process_queue, other = holding(10), holding(1, MessageQueue("T", "broker-a", 1))
    handling.offer(process_queue)
    await settled()
    process_queue.dropped = True
    handling.offer(other)
    gate.open.set()
    await settled()
    assert process_queue.waiting == 8
    assert len(other) == 0
    assert handling.in_flight == 0


async def test_a_failure_in_a_queue_that_was_dropped_is_the_next_owners_affair(
    open_handling: Open, backs: Backs
) -> None:
    started, go_on = trio.Event(), trio.Event()

    async def handle(_: ReceivedMessage) -> None:
        started.set()
        await go_on.wait()
        raise ValueError("too late")

    process_queue = holding(1)
    open_handling(handle).offer(process_queue)
    await started.wait()
    process_queue.dropped = True
    go_on.set()
    await settled()
    assert not backs.taken


async def test_draining_waits_for_those_that_run_and_hands_out_no_more(
    open_handling: Open, nursery: trio.Nursery
) -> None:
    gate = Gate()
    handling = open_handling(gate)
    process_queue = holding(10)
    handling.offer(process_queue)
    await settled()
    drained = trio.Event()

    async def drain() -> None:
        await handling.drain()
        drained.set()

    nursery.start_soon(drain)
    await settled()
    assert not drained.is_set()
    handling.offer(holding(5))
    gate.open.set()
    await drained.wait()
    assert process_queue.safe_offset == 3
    assert process_queue.waiting == 7
    await handling.drain()


async def test_cancelled_handlers_have_handled_nothing(backs: Backs) -> None:
    process_queue = holding(5)
    async with trio.open_nursery() as nursery:
        handling = handling_in(nursery, Gate(), 2, backs=backs)
        handling.offer(process_queue)
        await settled()
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 0
    assert len(process_queue) == 5
    assert not backs.taken


async def test_cancelling_while_a_message_is_given_back(backs: Backs) -> None:
    async def fail(_: ReceivedMessage) -> None:
        raise ValueError("no")

    async def never(_: ReceivedMessage, __: int) -> None:
        await trio.sleep_forever()

    process_queue = holding(1)
    async with trio.open_nursery() as nursery:
        handling_in(nursery, fail, 2, backs=never).offer(process_queue)
        await settled()
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 0


async def test_a_plain_function_runs_in_a_thread(open_handling: Open, backs: Backs) -> None:
    threads: list[threading.Thread] = []
    here = threading.current_thread()
    both_run = threading.Barrier(2)

    def handle(message: ReceivedMessage) -> None:
        threads.append(threading.current_thread())
        both_run.wait()
        if message.queue_offset == 1:
            raise ValueError("no")

    process_queue = holding(2)
    open_handling(handle).offer(process_queue)
    while len(process_queue):
        await trio.sleep(0.001)
    assert len(threads) == 2
    assert here not in threads
    assert [message.queue_offset for message in backs.taken] == [1]


async def call_later(message: ReceivedMessage, seen: list[int]) -> None:
    await trio.lowlevel.checkpoint()
    seen.append(message.queue_offset)


class Callable_:  # noqa: N801  # stands for a user's class
    def __init__(self, seen: list[int]) -> None:
        self.seen = seen

    async def __call__(self, message: ReceivedMessage) -> None:
        await call_later(message, self.seen)

    async def method(self, message: ReceivedMessage) -> None:
        await call_later(message, self.seen)


@pytest.mark.parametrize(
    "make",
    [
        lambda seen: functools.partial(call_later, seen=seen),
        lambda seen: lambda message: call_later(message, seen),
        Callable_,
        lambda seen: Callable_(seen).method,
    ],
    ids=["partial", "lambda", "object", "method"],
)
async def test_whatever_is_async_is_awaited(
    open_handling: Open, make: Callable[[list[int]], Callable[[ReceivedMessage], Awaitable[None]]]
) -> None:
    seen: list[int] = []
    process_queue = holding(3)
    open_handling(make(seen)).offer(process_queue)
    while len(process_queue):
        await trio.sleep(0.001)
    assert sorted(seen) == [0, 1, 2]


async def test_an_exit_ends_it(backs: Backs) -> None:
    async def handle(_: ReceivedMessage) -> None:
        raise SystemExit(3)

    process_queue = holding(1)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            handling_in(nursery, handle, 1, backs=backs).offer(process_queue)
    assert caught.group_contains(SystemExit)
    assert process_queue.safe_offset == 0


@pytest.mark.parametrize("in_threads", [False, True])
async def test_a_failure_in_the_course_of_a_cancellation_is_logged(
    in_threads: bool, backs: Backs, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while cleaning up")

    async def handle(_: ReceivedMessage) -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            inner.start_soon(fail_when_cancelled)
            begun.set()

    caplog.set_level(logging.ERROR)
    process_queue, begun = holding(1), trio.Event()
    handler = (lambda message: handle(message)) if in_threads else handle
    async with trio.open_nursery() as nursery:
        handling_in(nursery, handler, 1, backs=backs).offer(process_queue)
        await begun.wait()
        await settled()
        nursery.cancel_scope.cancel()
    assert "handler failed: message=" in caplog.text
    assert "while cleaning up" in caplog.text
    assert process_queue.safe_offset == 0
