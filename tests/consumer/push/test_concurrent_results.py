"""Results of handlers, and handlers that take lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py.consumer.group.handler_results import ConsumeLater, ConsumeResult
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.dispatching import SentBackMessages, concurrent_dispatch, filled_queue
from tests.consumer.received import QUEUE, received, several


async def test_consume_later_sends_a_message_back_with_its_delay_level(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    sent_back = SentBackMessages()

    async def handle(message: ReceivedMessage) -> ConsumeResult | None:
        return ConsumeLater(delay_level=7) if message.queue_offset == 1 else None

    process_queue = filled_queue(3)
    concurrent_dispatch(nursery, handle, send_back=sent_back).offer(process_queue)
    await wait_all_tasks_blocked()
    assert (sent_back.offsets, sent_back.levels) == ([1], [7])
    assert process_queue.safe_offset == 3
    assert not caplog.records, "ConsumeLater is not logged as a failure"


async def test_consume_later_with_all_messages_done_sends_nothing_back(nursery: trio.Nursery) -> None:
    sent_back = SentBackMessages()

    async def handle(_: ReceivedMessage) -> ConsumeResult:
        return ConsumeLater(done=1)

    process_queue = filled_queue(1)
    concurrent_dispatch(nursery, handle, send_back=sent_back).offer(process_queue)
    await wait_all_tasks_blocked()
    assert sent_back.offsets == []
    assert process_queue.safe_offset == 1


async def test_unsupported_result_is_a_failure(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    class Other(ConsumeResult):
        pass

    async def handle(_: ReceivedMessage) -> ConsumeResult:
        return Other()

    sent_back = SentBackMessages()
    process_queue = filled_queue(1)
    concurrent_dispatch(nursery, handle, send_back=sent_back).offer(process_queue)
    await wait_all_tasks_blocked()
    assert sent_back.offsets == [0]
    assert "the handler returned Other(), which concurrent consumers do not support" in caplog.text
    assert process_queue.counts.last_error is not None
    assert "the handler returned Other()" in process_queue.counts.last_error[0]


async def test_result_that_cannot_be_described_is_a_failure(nursery: trio.Nursery) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no")

    async def handle(_: ReceivedMessage) -> object:
        return Odd()

    sent_back = SentBackMessages()
    concurrent_dispatch(nursery, handle, send_back=sent_back).offer(filled_queue(1))
    await wait_all_tasks_blocked()
    assert sent_back.offsets == [0]


# Lists


async def test_list_has_messages_of_one_queue_up_to_batch_size(nursery: trio.Nursery) -> None:
    lists: list[list[int]] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        assert len({message.topic for message in messages}) == 1
        lists.append([message.queue_offset for message in messages])
        await trio.lowlevel.checkpoint()

    dispatch = concurrent_dispatch(nursery, handle, 1, batch_size=4, send_back=SentBackMessages())
    process_queue = filled_queue(10)
    other = ProcessQueue(MessageQueue("U", "b", 0), 0)
    other.put([received(offset, topic="U") for offset in range(20, 23)], 23)
    dispatch.offer(process_queue)
    dispatch.offer(other)
    await wait_all_tasks_blocked()
    assert lists == [[0, 1, 2, 3], [20, 21, 22], [4, 5, 6, 7], [8, 9]]
    assert (process_queue.safe_offset, process_queue.size) == (10, 0)


async def test_batch_size_of_one_passes_a_list(nursery: trio.Nursery) -> None:
    got: list[object] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        got.append(messages)

    concurrent_dispatch(nursery, handle, batch_size=1, send_back=SentBackMessages()).offer(filled_queue(2))
    await wait_all_tasks_blocked()
    assert [type(item) for item in got] == [list, list]


async def test_handler_may_modify_its_list(nursery: trio.Nursery) -> None:
    sent_back = SentBackMessages()

    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        messages.clear()
        return ConsumeLater(done=1)

    process_queue = filled_queue(3)
    concurrent_dispatch(nursery, handle, batch_size=8, send_back=sent_back).offer(process_queue)
    await wait_all_tasks_blocked()
    assert sent_back.offsets == [1, 2]
    assert process_queue.safe_offset == 3


@pytest.mark.parametrize(("done", "back"), [(0, [0, 1, 2]), (2, [2]), (3, []), (99, [])])
async def test_consume_later_acknowledges_the_first_messages_of_a_list(
    nursery: trio.Nursery, done: int, back: list[int]
) -> None:
    sent_back = SentBackMessages()

    async def handle(_: list[ReceivedMessage]) -> ConsumeResult:
        return ConsumeLater(5, done=done)

    process_queue = filled_queue(3)
    concurrent_dispatch(nursery, handle, batch_size=8, send_back=sent_back).offer(process_queue)
    await wait_all_tasks_blocked()
    assert sent_back.offsets == back
    assert set(sent_back.levels) <= {5}
    assert process_queue.safe_offset == 3


async def test_all_messages_of_a_failed_list_are_sent_back(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    sent_back = SentBackMessages()

    async def handle(_: list[ReceivedMessage]) -> None:
        raise ValueError("no")

    process_queue = filled_queue(3)
    concurrent_dispatch(nursery, handle, batch_size=8, send_back=sent_back).offer(process_queue)
    await wait_all_tasks_blocked()
    assert sent_back.offsets == [0, 1, 2]
    assert process_queue.safe_offset == 3
    assert "offset=0 messages=3" in caplog.records[0].message


async def test_lists_do_not_contain_corrupt_messages(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    sent_back = SentBackMessages()
    lists: list[list[int]] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        lists.append([message.queue_offset for message in messages])

    process_queue = ProcessQueue(QUEUE, 0)
    broken = {0, 1, 2, 4}
    process_queue.put([received(n, corruption="not zlib" if n in broken else None) for n in range(6)], 6)
    concurrent_dispatch(nursery, handle, batch_size=3, send_back=sent_back).offer(process_queue)
    await wait_all_tasks_blocked()
    assert lists == [[3, 5]]
    assert sent_back.offsets == [0, 1, 2, 4]
    assert process_queue.safe_offset == 6
    assert caplog.text.count("its body cannot be read: not zlib") == 4
    assert process_queue.counts.last_error
    assert "its body cannot be read" in process_queue.counts.last_error[0]


async def test_messages_of_a_list_that_cannot_be_sent_back_are_retried_locally(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent_back = SentBackMessages()
    sent_back.failures = 2
    lists: list[tuple[float, list[int]]] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        lists.append((trio.current_time(), [message.queue_offset for message in messages]))
        if len(lists) == 1:
            raise ValueError("no")

    process_queue = filled_queue(3)
    concurrent_dispatch(nursery, handle, batch_size=8, send_back=sent_back).offer(process_queue)
    await trio.sleep(1)
    assert len(process_queue) == 2
    await trio.sleep(10)
    assert lists[0] == (0.0, [0, 1, 2])
    assert {time for time, _ in lists[1:]} == {5.0}
    assert len(sent_back.offsets) == 1
    assert sorted(sent_back.offsets + [offset for _, offsets in lists[1:] for offset in offsets]) == [0, 1, 2]
    assert process_queue.safe_offset == 3


async def test_synchronous_handler_may_take_lists(nursery: trio.Nursery) -> None:
    lists: list[list[int]] = []

    def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        lists.append([message.queue_offset for message in messages])
        return ConsumeLater(done=3)

    sent_back = SentBackMessages()
    process_queue = filled_queue(4)
    concurrent_dispatch(nursery, handle, batch_size=8, send_back=sent_back).offer(process_queue)
    while len(process_queue):
        await trio.sleep(0.001)
    assert lists == [[0, 1, 2, 3]]
    assert sent_back.offsets == [3]


@pytest.mark.parametrize("batch_size", [None, 3])
async def test_dropped_queue_is_not_dispatched(nursery: trio.Nursery, batch_size: int | None) -> None:
    seen: list[Any] = []
    handle: Callable[[Any], Any] = seen.append
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put(several(range(4)), 4)
    process_queue.dropped = True
    concurrent_dispatch(nursery, handle, batch_size=batch_size, send_back=SentBackMessages()).offer(
        process_queue
    )
    await wait_all_tasks_blocked()
    assert seen == []
    assert process_queue.waiting == 4
