"""Offers lite topics with messages to clients, and holds their pops.

Java: ``LiteEventDispatcher``, ``PopLiteLongPollingService``.
"""

from __future__ import annotations

from typing import Final, Protocol

import attrs
import trio

from rocketmq_py.broker.held_requests import HeldRequest, HeldRequests, HoldingProcessor
from rocketmq_py.broker.pop.ordered_pops import GroupQueue, QueueTimers
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.protocol.bodies import ClientGroup
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PopLiteMessageRequest
from rocketmq_py.remoting import Connection, Deadlines

CHECK_SECONDS = 10.0
"""Seconds between two searches for clients that have stopped popping (liteEventCheckInterval)."""
INACTIVE_SECONDS = 10.0
"""Seconds without a pop after which the lite topics offered to a client are offered to others."""
IDLE_SECONDS = 35.0
"""Seconds without a pop after which a client without offers is forgotten."""


class HeldLitePop(HeldRequest):
    """A pop of a client that waits for messages.

    Attributes:
        connection, request, header: the pop.
    """

    __slots__ = ("header",)

    def __init__(self, connection: Connection, request: Command, header: PopLiteMessageRequest) -> None:
        super().__init__(connection, request, [header.client_id])
        self.header: PopLiteMessageRequest = header


class LiteDispatcherOwner(HoldingProcessor[HeldLitePop], Protocol):
    """The processor of the pops of lite topics."""

    def subscribers_of(self, queue: str) -> dict[str, list[ClientGroup]]:
        """Return the subscribers of a queue by group."""


@attrs.define(eq=False)
class ClientOffers:
    """The lite topics offered to a client.

    Attributes:
        group: the client's group.
        queues: the names of the queues, oldest offer first.
        popped_at: the time of the client's last pop, or of the first offer, on trio's clock.
        popped_at_ms: the same in epoch milliseconds.
    """

    group: str
    queues: dict[str, None]
    popped_at: float
    popped_at_ms: int


class LiteDispatcher:
    """Offers each lite topic with messages to one subscribed client of each group.

    The client's next pop reads the lite topics that it was offered. An offer wakes a held pop of the client.
    Unlike in Java, the number of lite topics offered to a client is not limited. :meth:`run` must be running.

    Args:
        state: the broker's tables.
        owner: answers held pops, and knows the subscribers.

    Attributes:
        offers: the lite topics offered to each client, by client id.
    """

    def __init__(self, state: BrokerState, owner: LiteDispatcherOwner) -> None:
        self._state = state
        self._owner = owner
        self._deadlines = Deadlines()
        self._timers = QueueTimers(self._deadlines, self)
        self._held: HeldRequests[HeldLitePop] = HeldRequests(owner, self._deadlines)  # by client id
        # The clients with new offers. run() answers their pops, because offer() is called while a message is
        # being stored.
        self._to_wake: dict[str, None] = {}
        self._parked = trio.lowlevel.ParkingLot()
        self.offers: Final[dict[str, ClientOffers]] = {}

    def offer(self, queue: str, group: str | None = None, *, except_client: str = "") -> None:
        """Offer a lite topic to a client of each group, or of one group.

        ``except_client`` gets the lite topic only if its group has no other subscriber.
        """
        for name, subscribers in self._owner.subscribers_of(queue).items():
            if group in (None, name):
                others = [one for one in subscribers if one.client_id != except_client]
                self.offer_to_client(self._state.rng.choice(others or subscribers), queue)

    def queue_is_free(self, group_queue: GroupQueue) -> None:
        """Offer a lite topic to a client of a group, because no popped message blocks it any more."""
        self.offer(group_queue.topic, group_queue.group)

    def offer_at(self, group_queue: GroupQueue, time: float) -> None:
        """Offer a lite topic to a client of a group at a time on trio's clock. Replaces an earlier time."""
        self._timers.set(group_queue, time)

    def take_offer(self, client_id: str) -> str | None:
        """Remove and return a client's oldest offer, for its pop; None if there is none."""
        offers = self.offers.get(client_id)
        if offers is None:
            return None
        offers.popped_at = trio.current_time()
        offers.popped_at_ms = self._state.now_ms()
        queue = next(iter(offers.queues), None)
        if queue is not None:
            del offers.queues[queue]
        return queue

    def offer_to_client(self, subscriber: ClientGroup, queue: str) -> None:
        """Offer a lite topic to a client."""
        offers = self.offers.get(subscriber.client_id)
        if offers is None:
            offers = self.offers[subscriber.client_id] = ClientOffers(
                subscriber.group, {}, trio.current_time(), self._state.now_ms()
            )
        offers.queues[queue] = None
        self._to_wake[subscriber.client_id] = None
        self._parked.unpark_all()

    def remove_client(self, client_id: str) -> None:
        """Offer the lite topics that were offered to a client, which has left, to others."""
        offers = self.offers.pop(client_id, None)
        if offers is not None:
            for queue in offers.queues:
                self.offer(queue, offers.group, except_client=client_id)

    def hold(
        self, connection: Connection, request: Command, header: PopLiteMessageRequest, seconds: float
    ) -> None:
        """Hold a pop for at most ``seconds``."""
        self._held.hold(HeldLitePop(connection, request, header), trio.current_time() + seconds)

    def drop_connection(self, connection: Connection) -> None:
        """Drop the pops of a closed connection."""
        self._held.drop_connection(connection)

    def shift_clock(self, seconds: float) -> None:
        """Keep the time since the last pop of each client after trio's clock was advanced by ``seconds``."""
        for offers in self.offers.values():
            offers.popped_at += seconds

    async def run(self) -> None:
        """Answer held pops, and offer lite topics of inactive clients to others, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            nursery.start_soon(self._keep_checking_clients)
            while True:
                if not self._to_wake:
                    await self._parked.park()
                to_wake, self._to_wake = self._to_wake, {}
                for client_id in to_wake:
                    self._wake(client_id)
                await trio.lowlevel.checkpoint()

    def _wake(self, client_id: str) -> None:
        """Answer held pops of a client, oldest first, as long as lite topics are offered to it."""
        for pop in self._held.of(client_id):
            offers = self.offers.get(client_id)
            if offers is None or not offers.queues:
                break
            self._held.release(pop)

    async def _keep_checking_clients(self) -> None:
        while True:
            await trio.sleep(CHECK_SECONDS)
            now = trio.current_time()
            for client_id, offers in list(self.offers.items()):
                if now - offers.popped_at > (INACTIVE_SECONDS if offers.queues else IDLE_SECONDS):
                    self.remove_client(client_id)
