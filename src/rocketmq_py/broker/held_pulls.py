"""Long polling: pulls that are held until a message arrives (Java: ``PullRequestHoldService``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import trio

from rocketmq_py.broker.held_requests import HeldRequest, HeldRequests, HoldingProcessor
from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, MessageFilter, StoredMessage
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PullMessageRequest
from rocketmq_py.remoting import Connection, Deadlines

FILTERED_HOLD_SECONDS = 5.0
"""Maximum seconds that a pull is held after messages arrived that its filter excludes.

Its answer then lets the client continue after these messages.
"""


class HeldPull(HeldRequest):
    """A pull that waits for a message.

    Args:
        connection: the client's connection.
        request: the pull.
        header: its header.
        queue: the queue that it pulls from.
        message_filter: its filter.
        expires_at: when it is answered without a message, on trio's clock.

    Attributes:
        examined_to: the offset up to which the filter has examined messages.
    """

    __slots__ = ("examined_to", "expires_at", "header", "message_filter")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PullMessageRequest,
        queue: ConsumeQueue,
        message_filter: MessageFilter,
        expires_at: float,
    ) -> None:
        super().__init__(connection, request, [queue])
        self.header: PullMessageRequest = header
        self.message_filter: MessageFilter = message_filter
        self.examined_to: int = queue.end
        self.expires_at: float = expires_at

    def matches_any(self, messages: list[StoredMessage]) -> bool:
        """Return whether any of the messages passes the filter."""
        passes = self.message_filter
        return any(passes is None or passes(message) for message in messages)


class HeldPulls:
    """All held pulls. :meth:`run` must be running for them to be answered.

    New messages are examined once per turn of the event loop, not once per message, so that a pull that waits
    during a burst of sends gets many messages in one answer.

    Args:
        processor: answers a pull that is no longer held.
    """

    def __init__(self, processor: HoldingProcessor[HeldPull]) -> None:
        self._deadlines = Deadlines()
        self._held: HeldRequests[HeldPull] = HeldRequests(processor, self._deadlines, self)
        self._changed_queues: dict[ConsumeQueue, None] = {}
        self._parked = trio.lowlevel.ParkingLot()

    def hold(
        self,
        connection: Connection,
        request: Command,
        header: PullMessageRequest,
        queue: ConsumeQueue,
        message_filter: MessageFilter,
        seconds: float,
    ) -> None:
        """Hold a pull until a message arrives that passes its filter, for at most ``seconds``."""
        expires_at = trio.current_time() + seconds
        self._held.hold(HeldPull(connection, request, header, queue, message_filter, expires_at), expires_at)

    def release_replaced(self, topic: str, find_queue: Callable[[str, int], ConsumeQueue | None]) -> None:
        """Answer the pulls from queues of a topic that was deleted and created again.

        Args:
            topic: the topic.
            find_queue: returns a queue of the topic as it is now.
        """
        for queue in self._held.all_keys():
            assert isinstance(queue, ConsumeQueue)
            if queue.topic == topic and find_queue(topic, queue.queue_id) is not queue:
                for pull in self._held.of(queue):
                    self._held.release(pull)

    def drop_connection(self, connection: Connection) -> None:
        """Drop the pulls of a closed connection."""
        self._held.drop_connection(connection)

    async def run(self) -> None:
        """Answer pulls, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            while True:
                if not self._changed_queues:
                    await self._parked.park()
                queues, self._changed_queues = self._changed_queues, {}
                for queue in queues:
                    self._examine(queue)

    def watch(self, key: Hashable) -> None:
        """Note the messages that arrive in a queue."""
        assert isinstance(key, ConsumeQueue)
        key.listeners.append(self._on_arrival)

    def stop_watching(self, key: Hashable) -> None:
        """Note the messages that arrive in a queue no longer."""
        assert isinstance(key, ConsumeQueue)
        key.listeners.remove(self._on_arrival)

    def _on_arrival(self, queue: ConsumeQueue, _: StoredMessage) -> None:
        self._changed_queues[queue] = None
        self._parked.unpark_all()

    def _examine(self, queue: ConsumeQueue) -> None:
        for pull in self._held.of(queue):
            new_messages = queue.slice(max(pull.examined_to, queue.start), queue.end)
            pull.examined_to = queue.end
            if pull.matches_any(new_messages):
                self._held.release(pull)
            elif pull.expires_at - trio.current_time() > FILTERED_HOLD_SECONDS:
                pull.expires_at = trio.current_time() + FILTERED_HOLD_SECONDS
                self._held.postpone(pull, pull.expires_at)
