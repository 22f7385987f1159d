"""Messages that are handed over as bunches, to a far side that does what the test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.consumer.push.concurrent import ConcurrentDispatch
from rocketmq_py.consumer.push.handler_executor import NO_RESULT, CallBatch, HandlerCall, HandlerExecutor
from tests.consumer.dispatching import Backs, handling_in, holding, settled
from tests.consumer.received import received

TIMEOUT = 60.0


class There(HandlerExecutor):
    """Makes calls when it is told to."""

    cancels = True
    accepts_batches = True

    def __init__(self) -> None:
        super().__init__(lambda _: None, 4)
        self.cancelled: list[HandlerCall] = []

    def start(self, calls: Sequence[HandlerCall]) -> None:
        self.calls.update(calls)
        self._queue.extend(calls)

    def cancel(self, call: HandlerCall) -> bool:
        self.cancelled.append(call)
        return True

    def bunch(self) -> CallBatch:
        """Take the next one of the line."""
        bunch = self._queue.popleft()
        assert isinstance(bunch, CallBatch)
        bunch.runner = self
        return bunch

    def end(self, *ended: HandlerCall) -> None:
        for call in ended:
            call.runner = None
            self.calls.add(call)
        self.collect(list(ended))


class Handler:
    """A handler that is called there."""

    def __init__(self) -> None:
        self.there = There()

    def __call__(self, _: object) -> None:
        raise AssertionError

    def make_executor(self, _: int) -> HandlerExecutor:
        return self.there


def begun(bunch: CallBatch) -> Any:
    bunch.current = argument = bunch.waiting.popleft()
    return argument


def bunches_in(nursery: trio.Nursery, backs: Backs, concurrency: int = 4) -> tuple[ConcurrentDispatch, There]:
    handler = Handler()
    return handling_in(nursery, handler, concurrency, timeout=TIMEOUT, backs=backs), handler.there


async def test_what_is_done_is_told_with_its_bunch_and_the_rest_goes_on(nursery: trio.Nursery) -> None:
    handling, there = bunches_in(nursery, Backs())
    process_queue = holding(5)
    handling.offer(process_queue)
    bunch = there.bunch()
    assert bunch.seconds == 0.0
    assert [message.queue_offset for message in bunch.waiting] == [0, 1, 2, 3]
    bunch.done += [begun(bunch), begun(bunch)]
    bunch.seconds = 3.0
    rest = bunch.split_rest()
    there.calls.add(rest)
    there.end(bunch)
    assert process_queue.safe_offset == 2
    assert (process_queue.counts.calls, process_queue.counts.call_seconds) == (2, 3.0)
    assert [message.queue_offset for message in rest.waiting] == [2, 3]
    assert handling.in_flight == 3  # and the last one is there
    rest.done += [begun(rest), begun(rest)]
    there.end(rest)
    last = there.bunch()
    last.done.append(begun(last))
    there.end(last)
    assert process_queue.safe_offset == 5
    assert not handling.in_flight
    assert not there.calls


async def test_a_call_that_comes_to_something_else_is_settled_by_itself(nursery: trio.Nursery) -> None:
    backs = Backs()
    handling, there = bunches_in(nursery, backs)
    process_queue = holding(3)
    handling.offer(process_queue)
    bunch = there.bunch()
    failed = bunch.detach(begun(bunch))
    failed.error = ValueError("wrong")
    bunch.done += [begun(bunch), begun(bunch)]
    there.end(failed, bunch)
    await settled()
    assert backs.offsets == [0]
    assert process_queue.safe_offset == 3
    assert not handling.in_flight


async def test_nothing_of_a_queue_that_is_dropped_or_cannot_be_read_begins(nursery: trio.Nursery) -> None:
    backs = Backs()
    handling, there = bunches_in(nursery, backs)
    process_queue = holding(1)
    process_queue.put([received(1, corruption="cut off")], 2)
    handling.offer(process_queue)
    bunch = there.bunch()
    assert bunch.may_start_next(begun(bunch))
    with pytest.raises(Exception, match="cut off"):
        bunch.may_start_next(begun(bunch))
    process_queue.dropped = True
    assert not bunch.may_start_next(bunch.current)
    skipped = bunch.detach(bunch.current)
    skipped.result = NO_RESULT
    bunch.done.append(process_queue._messages[0])
    there.end(skipped, bunch)
    await settled()
    assert not handling.in_flight
    assert process_queue.safe_offset == 1


@pytest.mark.parametrize("has_begun", [False, True])
async def test_what_has_not_begun_when_it_closes_never_does(nursery: trio.Nursery, has_begun: bool) -> None:
    handling, there = bunches_in(nursery, Backs())
    process_queue = holding(4)
    handling.offer(process_queue)
    bunch = there.bunch()
    if has_begun:
        bunch.done.append(begun(bunch))
    else:
        there._queue.append(bunch)
    handling.close()
    assert not bunch.waiting
    assert handling.in_flight == has_begun
    if has_begun:
        there.end(bunch)
    await handling.drain()
    assert process_queue.safe_offset == has_begun
    assert not there.calls


async def test_one_of_a_bunch_that_takes_too_long_is_sent_back_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    backs = Backs()
    handling, there = bunches_in(nursery, backs)
    process_queue = holding(3)
    handling.offer(process_queue)
    bunch = there.bunch()
    late = begun(bunch)
    await trio.sleep(TIMEOUT * 1.5)
    assert there.cancelled == [bunch]
    assert bunch.expired is late
    assert backs.offsets == [0]
    call = bunch.detach(late)
    assert bunch.detached is call
    call.error = ValueError("after all")
    in_time = bunch.detach(begun(bunch))
    in_time.error = ValueError("wrong")
    bunch.done.append(begun(bunch))
    there.end(call, in_time, bunch)
    await settled()
    assert backs.offsets == [0, 1]
    assert process_queue.safe_offset == 3
