"""What handlers return, and handlers of lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.consumer.group.handler_results import ConsumeLater, ConsumeResult
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.handing import Backs, handling_in, holding, settled
from tests.consumer.received import QUEUE, received, several


def sizes_of(kept: list[list[int]]) -> list[int]:
    return [len(offsets) for offsets in kept]


async def test_later_gives_a_message_back_with_its_delay_level(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    backs = Backs()

    async def handle(message: ReceivedMessage) -> ConsumeResult | None:
        return ConsumeLater(delay_level=7) if message.queue_offset == 1 else None

    process_queue = holding(3)
    handling_in(nursery, handle, backs=backs).offer(process_queue)
    await settled()
    assert (backs.offsets, backs.levels) == ([1], [7])
    assert process_queue.safe_offset == 3
    assert not caplog.records, "it is no failure"


async def test_later_with_the_only_message_done_is_done(nursery: trio.Nursery) -> None:
    backs = Backs()

    async def handle(_: ReceivedMessage) -> ConsumeResult:
        return ConsumeLater(done=1)

    process_queue = holding(1)
    handling_in(nursery, handle, backs=backs).offer(process_queue)
    await settled()
    assert backs.offsets == []
    assert process_queue.safe_offset == 1


async def test_a_result_that_belongs_to_other_consumers_is_a_failure(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    class Other(ConsumeResult):
        pass

    async def handle(_: ReceivedMessage) -> ConsumeResult:
        return Other()

    backs = Backs()
    process_queue = holding(1)
    handling_in(nursery, handle, backs=backs).offer(process_queue)
    await settled()
    assert backs.offsets == [0]
    assert "the handler returned Other(), which says nothing to this consumer" in caplog.text


# Lists


async def test_lists_have_what_waits_of_one_queue_and_no_more_than_the_limit(nursery: trio.Nursery) -> None:
    lists: list[list[int]] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        assert len({message.topic for message in messages}) == 1
        lists.append([message.queue_offset for message in messages])
        await trio.lowlevel.checkpoint()

    handling = handling_in(nursery, handle, 1, batch_size=4, backs=Backs())
    process_queue = holding(10)
    other = ProcessQueue(MessageQueue("U", "b", 0), 0)
    other.put([received(offset, topic="U") for offset in range(20, 23)], 23)
    handling.offer(process_queue)
    handling.offer(other)
    await settled()
    assert lists == [[0, 1, 2, 3], [20, 21, 22], [4, 5, 6, 7], [8, 9]]
    assert (process_queue.safe_offset, process_queue.size) == (10, 0)


async def test_a_handler_of_lists_gets_a_list_even_of_one(nursery: trio.Nursery) -> None:
    got: list[object] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        got.append(messages)

    handling_in(nursery, handle, batch_size=1, backs=Backs()).offer(holding(2))
    await settled()
    assert [type(item) for item in got] == [list, list]


async def test_what_a_handler_does_to_its_list_changes_nothing_here(nursery: trio.Nursery) -> None:
    backs = Backs()

    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        messages.clear()
        return ConsumeLater(done=1)

    process_queue = holding(3)
    handling_in(nursery, handle, batch_size=8, backs=backs).offer(process_queue)
    await settled()
    assert backs.offsets == [1, 2]
    assert process_queue.safe_offset == 3


@pytest.mark.parametrize(("done", "back"), [(0, [0, 1, 2]), (2, [2]), (3, []), (99, [])])
async def test_the_first_of_a_list_are_done_and_the_others_come_again(
    nursery: trio.Nursery, done: int, back: list[int]
) -> None:
    backs = Backs()

    async def handle(_: list[ReceivedMessage]) -> ConsumeResult:
        return ConsumeLater(5, done=done)

    process_queue = holding(3)
    handling_in(nursery, handle, batch_size=8, backs=backs).offer(process_queue)
    await settled()
    assert backs.offsets == back
    assert set(backs.levels) <= {5}
    assert process_queue.safe_offset == 3


async def test_a_list_whose_handler_raises_comes_again_as_a_whole(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    backs = Backs()

    async def handle(_: list[ReceivedMessage]) -> None:
        raise ValueError("no")

    process_queue = holding(3)
    handling_in(nursery, handle, batch_size=8, backs=backs).offer(process_queue)
    await settled()
    assert backs.offsets == [0, 1, 2]
    assert process_queue.safe_offset == 3
    assert "offset 0) and 2 after it failed" in caplog.records[0].message


async def test_what_cannot_be_read_is_left_out_of_lists(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    backs = Backs()
    lists: list[list[int]] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        lists.append([message.queue_offset for message in messages])

    process_queue = ProcessQueue(QUEUE, 0)
    broken = {0, 1, 2, 4}
    process_queue.put([received(n, corruption="not zlib" if n in broken else None) for n in range(6)], 6)
    handling_in(nursery, handle, batch_size=3, backs=backs).offer(process_queue)
    await settled()
    assert lists == [[3, 5]]
    assert backs.offsets == [0, 1, 2, 4]
    assert process_queue.safe_offset == 6
    assert caplog.text.count("its body cannot be read: not zlib") == 4


async def test_lists_that_cannot_be_given_back_are_handled_again_here(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    backs = Backs()
    backs.failures = 2
    lists: list[tuple[float, list[int]]] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        lists.append((trio.current_time(), [message.queue_offset for message in messages]))
        if len(lists) == 1:
            raise ValueError("no")

    process_queue = holding(3)
    handling_in(nursery, handle, batch_size=8, backs=backs).offer(process_queue)
    await trio.sleep(1)
    assert len(process_queue) == 2
    await trio.sleep(10)
    assert lists[0] == (0.0, [0, 1, 2])
    assert {time for time, _ in lists[1:]} == {5.0}
    assert len(backs.offsets) == 1
    assert sorted(backs.offsets + [offset for _, offsets in lists[1:] for offset in offsets]) == [0, 1, 2]
    assert process_queue.safe_offset == 3


async def test_a_plain_function_may_take_lists(nursery: trio.Nursery) -> None:
    lists: list[list[int]] = []

    def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        lists.append([message.queue_offset for message in messages])
        return ConsumeLater(done=3)

    backs = Backs()
    process_queue = holding(4)
    handling_in(nursery, handle, batch_size=8, backs=backs).offer(process_queue)
    while len(process_queue):
        await trio.sleep(0.001)
    assert lists == [[0, 1, 2, 3]]
    assert backs.offsets == [3]


@pytest.mark.parametrize("batch_size", [None, 3])
async def test_a_dropped_queue_is_handed_out_no_more(nursery: trio.Nursery, batch_size: int | None) -> None:
    seen: list[Any] = []
    handle: Callable[[Any], Any] = seen.append
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put(several(range(4)), 4)
    process_queue.dropped = True
    handling_in(nursery, handle, batch_size=batch_size, backs=Backs()).offer(process_queue)
    await settled()
    assert seen == []
    assert process_queue.waiting == 4
