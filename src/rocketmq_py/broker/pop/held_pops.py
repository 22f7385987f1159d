"""Long polling: pops that are held until a message arrives (Java: ``PopLongPollingService``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import trio

from rocketmq_py.broker.held_requests import HeldRequest, HeldRequests, HoldingProcessor
from rocketmq_py.broker.pop.ordered_pops import GroupQueue
from rocketmq_py.broker.pop.queue_timers import QueueTimers
from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, MessageFilter, StoredMessage
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.bodies import ALL_QUEUES
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PopMessageRequest
from rocketmq_py.remoting import Connection, Deadlines

MAX_HELD = 1024
"""Maximum number of held pops of a group, for one queue or for all queues of a topic (popPollingSize)."""


class HeldPop(HeldRequest):
    """A pop that waits for a message.

    Args:
        connection: the client's connection.
        request: the pop.
        header: its header.
        message_filter: its filter.
        queues: the queues that it pops from.

    Attributes:
        group_queue: the group, the topic, and the queue or ALL_QUEUES.
    """

    __slots__ = ("group_queue", "header", "message_filter")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PopMessageRequest,
        message_filter: MessageFilter,
        queues: tuple[ConsumeQueue, ...],
    ) -> None:
        self.group_queue: GroupQueue = requested_group_queue(header)
        super().__init__(connection, request, [self.group_queue, *queues])
        self.header: PopMessageRequest = header
        self.message_filter: MessageFilter = message_filter

    def matches_any(self, messages: Iterable[StoredMessage]) -> bool:
        """Return whether any of the messages passes the filter. Messages of a retry topic always pass."""
        passes = self.message_filter
        return any(
            passes is None or message.topic.startswith(RETRY_PREFIX) or passes(message)
            for message in messages
        )


def requested_group_queue(header: PopMessageRequest) -> GroupQueue:
    """Return the group, the topic, and the queue or ALL_QUEUES of a pop."""
    return GroupQueue(header.topic, header.consumer_group, max(ALL_QUEUES, header.queue_id))


class HeldPops:
    """All held pops. :meth:`run` must be running for them to be answered.

    New messages answer one pop of each group. If that pop leaves messages in the queue, call :meth:`wake` to
    answer another one.

    Args:
        processor: answers a pop that is no longer held.
    """

    def __init__(self, processor: HoldingProcessor[HeldPop]) -> None:
        self._deadlines = Deadlines()
        self._held: HeldRequests[HeldPop] = HeldRequests(processor, self._deadlines, self)
        # the offset of the first message that has arrived and that :meth:`run` has not examined
        self._first_arrivals: dict[ConsumeQueue, int] = {}
        self._to_wake: dict[GroupQueue, None] = {}
        self._timers = QueueTimers(self._deadlines, self)
        self._parked = trio.lowlevel.ParkingLot()

    def hold(
        self,
        connection: Connection,
        request: Command,
        header: PopMessageRequest,
        message_filter: MessageFilter,
        queues: tuple[ConsumeQueue, ...],
        seconds: float,
    ) -> bool:
        """Hold a pop for at most ``seconds``. Returns False, and does not hold it, beyond ``MAX_HELD``."""
        pop = HeldPop(connection, request, header, message_filter, queues)
        if self._held.count(pop.group_queue) >= MAX_HELD:
            return False
        self._held.hold(pop, trio.current_time() + seconds)
        return True

    def wake(self, group_queue: GroupQueue) -> None:
        """Answer one pop of a group for a queue, or for ALL_QUEUES, soon."""
        self._to_wake[group_queue] = None
        self._parked.unpark_all()

    def wake_at(self, group_queue: GroupQueue, time: float) -> None:
        """Wake a pop for a queue, and one for ALL_QUEUES of its topic, at a time on trio's clock.

        A second call for the same queue replaces the time.
        """
        self._timers.set(group_queue, time)

    def release_topic(self, topic: str) -> None:
        """Answer all pops of a topic."""
        for key in self._held.all_keys():
            if isinstance(key, GroupQueue) and key.topic == topic:
                for pop in self._held.of(key):
                    self._held.release(pop)

    def drop_connection(self, connection: Connection) -> None:
        """Drop the pops of a closed connection."""
        self._held.drop_connection(connection)

    async def run(self) -> None:
        """Answer pops, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            while True:
                if not self._first_arrivals and not self._to_wake:
                    await self._parked.park()
                to_wake, self._to_wake = self._to_wake, {}
                for group_queue in to_wake:
                    self._release_first(self._held.of(group_queue))
                arrivals, self._first_arrivals = self._first_arrivals, {}
                for queue, offset in arrivals.items():
                    self._examine(queue, offset)
                await trio.lowlevel.checkpoint()

    def queue_is_free(self, group_queue: GroupQueue) -> None:
        """Wake a pop for a queue that can be popped in order again, and one for ALL_QUEUES of its topic."""
        self.wake(group_queue)
        self.wake(group_queue._replace(queue_id=ALL_QUEUES))

    def watch(self, key: Hashable) -> None:
        """Note the messages that arrive in a queue."""
        if isinstance(key, ConsumeQueue):
            key.listeners.append(self._on_arrival)

    def stop_watching(self, key: Hashable) -> None:
        """Note the messages that arrive in a queue no longer."""
        if isinstance(key, ConsumeQueue):
            key.listeners.remove(self._on_arrival)

    def _on_arrival(self, queue: ConsumeQueue, message: StoredMessage) -> None:
        self._first_arrivals.setdefault(queue, message.queue_offset)
        self._parked.unpark_all()

    def _examine(self, queue: ConsumeQueue, offset: int) -> None:
        new_messages = queue.slice(max(offset, queue.start), queue.end)
        by_group_queue: dict[GroupQueue, list[HeldPop]] = {}
        for pop in self._held.of(queue):
            by_group_queue.setdefault(pop.group_queue, []).append(pop)
        for pops in by_group_queue.values():
            self._release_first(pop for pop in pops if pop.matches_any(new_messages))

    def _release_first(self, pops: Iterable[HeldPop]) -> None:
        first = next(iter(pops), None)
        if first is not None:
            self._held.release(first)
