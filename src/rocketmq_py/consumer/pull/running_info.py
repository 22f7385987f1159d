"""The pulled queues of a consumer, as operators see and move them."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.client.core import ClientCore
from rocketmq_py.consumer.group.statistics import epoch_ms
from rocketmq_py.consumer.pull.assigned_queues import AssignedQueues
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ProcessQueueInfo

_MIB = 1024 * 1024


class RunningInfo:
    """A consumer's pull loops for operators. Java: ``ProcessQueue.fillProcessQueueInfo``.

    Args:
        client: provides the clock.
        queues: the assigned queues.
    """

    def __init__(self, client: ClientCore, queues: AssignedQueues) -> None:
        self._client = client
        self._queues = queues

    def offsets(self) -> dict[MessageQueue, int]:
        """Return the offset to commit of each queue that has one."""
        safe = {loop.queue: loop.safe_offset for loop in self._queues}
        return {queue: offset for queue, offset in safe.items() if offset is not None}

    def infos(self) -> dict[MessageQueue, ProcessQueueInfo]:
        """Return the state of each queue."""
        return {loop.queue: self._info(loop) for loop in self._queues}

    def pull_again(self, topic: str) -> None:
        """End the held pulls of a topic and send new ones. Full queues are pulled, too."""
        self._queues.check_for_resets(topic)

    async def seek(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets, and commit them."""
        await self._queues.seek(offsets)

    def _info(self, loop: PullLoop) -> ProcessQueueInfo:
        process_queue, lock = loop.process_queue, loop.lock
        if process_queue is None:
            return ProcessQueueInfo(last_pull_timestamp=self._ms(loop.pulled_at))
        first, uncommitted = process_queue.safe_offset, process_queue.uncommitted
        return ProcessQueueInfo(
            commit_offset=first,
            cached_msg_min_offset=first if len(process_queue) else 0,
            cached_msg_max_offset=first + process_queue.span if len(process_queue) else 0,
            cached_msg_count=len(process_queue),
            cached_msg_size_in_mib=process_queue.size // _MIB,
            transaction_msg_min_offset=uncommitted[0].queue_offset if uncommitted else 0,
            transaction_msg_max_offset=uncommitted[-1].queue_offset if uncommitted else 0,
            transaction_msg_count=len(uncommitted),
            locked=lock is not None and lock.is_held,
            last_lock_timestamp=0 if lock is None else self._ms(lock.locked_at),
            dropped=process_queue.dropped,
            last_pull_timestamp=self._ms(loop.pulled_at),
            last_consume_timestamp=self._ms(self._queues.processed_at(loop)),
        )

    def _ms(self, time: float) -> int:
        """Convert a time on trio's clock to epoch milliseconds. 0 for a time that never came."""
        return epoch_ms(time, self._client.now_ms()) or 0
