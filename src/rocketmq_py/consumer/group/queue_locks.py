"""Queue locks of orderly consumers: acquire them from the brokers, renew and release them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.settings import LOCK_INTERVAL, LOCK_MAX_LIVE_TIME
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.consumer")

BROKER_LOCK_MAX_LIVE_TIME = 2 * LOCK_MAX_LIVE_TIME
REFUSED_SECONDS = 0.5
"""Seconds until the next request for a lock that another member holds."""
RECONNECT_SECONDS = 0.1
FAILED_SECONDS = 3.0
"""Seconds until the next request after the broker did not answer."""
GATHER_SECONDS = 0.01
"""Lock requests that become due within this time are sent together."""


def _nothing() -> None:
    """Do nothing."""


class QueueLock:
    """This member's lock on one queue. Only the member that holds it consumes the queue.

    Args:
        queue: the queue.
        held_until: trio's time until which the lock counts as held. For locks that no broker knows.
        interval: seconds between two renewals.
        max_live_time: seconds for which a lock counts as held after a renewal. The broker keeps it for twice
            as long.

    Attributes:
        queue: the queue.
        busy: whether a handler call with messages of the queue is running. No other one may start then.
        is_requesting: whether a request for the lock is in flight.
        request_at: trio's time of the next request for the lock.
        locked_at: trio's time of the last request that the broker granted; -inf if there was none.
        on_acquired: called when the lock becomes held.
        on_lost: called when another member may have held the lock in the meantime. The offset known here may
            then be out of date.
    """

    def __init__(
        self,
        queue: MessageQueue,
        *,
        held_until: float = -math.inf,
        interval: float = LOCK_INTERVAL,
        max_live_time: float = LOCK_MAX_LIVE_TIME,
    ) -> None:
        self.queue = queue
        self._interval = interval
        self._max_live_time = max_live_time
        self._broker_max_live_time = 2 * max_live_time
        self.busy: bool = False
        self.is_requesting: bool = False
        self.request_at: float = -math.inf
        self.locked_at: float = -math.inf
        self.on_acquired: Callable[[], None] = _nothing
        self.on_lost: Callable[[], None] = _nothing
        self._held_until = held_until
        # Until this time the broker grants the lock to no other member. -inf if it was never held or is lost.
        self._exclusive_until = -math.inf
        # The same for the case that the broker granted a request whose response was lost.
        self._possibly_locked_until = -math.inf
        self._refused_at: float | None = None  # since then another member has held it
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def is_held(self) -> bool:
        """Whether the queue may be consumed."""
        return trio.current_time() < self._held_until

    @property
    def may_be_locked(self) -> bool:
        """Whether the broker may hold the lock for this member."""
        return trio.current_time() < max(self._exclusive_until, self._possibly_locked_until)

    async def wait_until_held(self) -> None:
        """Wait until the queue may be consumed."""
        while not self.is_held:
            await self._changed.park()

    async def wait_until_idle(self) -> None:
        """Wait until the lock may be released: no handler call is running, and no request is in flight."""
        while self.busy or self.is_requesting:
            await self._changed.park()

    def mark_idle(self) -> None:
        """Record that the handler call has ended."""
        self.busy = False
        self._changed.unpark_all()

    def request_started(self) -> None:
        """Record that a request for the lock is in flight."""
        self.is_requesting = True
        self._possibly_locked_until = math.inf

    def request_ended(self) -> None:
        """Record that the request has ended, with or without a response."""
        self.is_requesting = False
        self._possibly_locked_until = trio.current_time() + self._broker_max_live_time
        self._changed.unpark_all()

    def granted(self, requested_at: float) -> None:
        """Record that the broker granted or renewed the lock, on a request sent at this time."""
        was_held = self.is_held
        had_expired = -math.inf < self._exclusive_until <= trio.current_time()
        self.locked_at = requested_at
        if self._refused_at is not None:
            logger.info(
                "queue lock obtained: topic=%s broker=%s queue=%d after=%.1fs",
                self.queue.topic, self.queue.broker_name, self.queue.queue_id,
                trio.current_time() - self._refused_at,
            )  # fmt: skip
            self._refused_at = None
        self._held_until = requested_at + self._max_live_time
        self._exclusive_until = requested_at + self._broker_max_live_time
        self.request_at = requested_at + self._interval
        if had_expired:
            self.on_lost()
        if not was_held:
            self._changed.unpark_all()
            self.on_acquired()

    def refused(self) -> None:
        """Record that another member holds the lock."""
        was_granted = self._exclusive_until > -math.inf
        self._held_until = self._exclusive_until = self._possibly_locked_until = -math.inf
        self.request_at = trio.current_time() + REFUSED_SECONDS
        place = self.queue.topic, self.queue.broker_name, self.queue.queue_id
        if was_granted:
            logger.warning(
                "queue lock lost: topic=%s broker=%s queue=%d; another member has locked the queue", *place
            )
            self.on_lost()
        elif self._refused_at is None:
            logger.info(
                "waiting for queue lock: topic=%s broker=%s queue=%d; another member holds it", *place
            )
        if self._refused_at is None:
            self._refused_at = trio.current_time()


class QueueLocks:
    """Acquires, renews and releases the queue locks of one member. Java: ``RebalanceImpl.lockAll``.

    Args:
        client: sends the requests. Its client id is the member's.
        group: the consumer group.
    """

    def __init__(self, client: ClientCore, group: str) -> None:
        self._client = client
        self._group = group
        self._retry_logs = RetryLogs(logger, "queue lock", "broker", group=group)
        self._locks: dict[MessageQueue, QueueLock] = {}
        self._wake_up = trio.Event()

    async def acquire(self, lock: QueueLock) -> None:
        """Wait until the lock is held. It is renewed from then on, until it is released."""
        # If the queue was revoked before this task ran, a request would leave a lock that is never released.
        await trio.lowlevel.checkpoint_if_cancelled()
        self._locks[lock.queue] = lock
        if not lock.is_held:
            lock.request_at = trio.current_time() + GATHER_SECONDS
            self._wake_up.set()
        await lock.wait_until_held()

    async def wait_until_idle(self, lock: QueueLock) -> None:
        """Wait until a lock may be released, then stop renewing it."""
        await lock.wait_until_idle()
        self._locks.pop(lock.queue, None)

    async def release(self, locks: Collection[QueueLock]) -> None:
        """Release locks. Failures are logged, and the broker's locks then expire within a minute."""
        locked = [lock for lock in locks if lock.may_be_locked]
        for lock in locks:
            self._locks.pop(lock.queue, None)
        async with open_nursery() as nursery:
            for broker_name, broker_locks in _by_broker(locked).items():
                nursery.start_soon(self._unlock, broker_name, [lock.queue for lock in broker_locks])

    async def run(self) -> None:
        """Request locks and renew them when they are due, until cancelled."""
        async with open_nursery() as nursery:  # a broker that does not answer must not delay the others
            while True:
                with trio.move_on_at(self._next_request_at()):
                    await self._wake_up.wait()
                self._wake_up = trio.Event()
                now = trio.current_time()
                if self._next_request_at() > now:
                    continue
                due = [lock for lock in self._requestable_locks() if lock.request_at <= now + GATHER_SECONDS]
                for broker_name, locks in _by_broker(due).items():
                    # Marked before the task starts, so that a release in between waits for the response.
                    for lock in locks:
                        lock.request_started()
                    nursery.start_soon(self._request, broker_name, locks)

    def _next_request_at(self) -> float:
        return min((lock.request_at for lock in self._requestable_locks()), default=math.inf)

    def _requestable_locks(self) -> list[QueueLock]:
        """Return the locks without a request in flight."""
        return [lock for lock in self._locks.values() if not lock.is_requesting]

    async def _request(self, broker_name: str, locks: Sequence[QueueLock]) -> None:
        requested_at = trio.current_time()
        queues = [lock.queue for lock in locks]
        try:
            locked = await self._client.brokers.lock(self._group, self._client.client_id, broker_name, queues)
        except RocketMQError as error:
            # A request waits for a broker that cannot be reached.
            pause = RECONNECT_SECONDS if error._not_reached else FAILED_SECONDS
            self._retry_logs.failed(broker_name, error, queues=len(queues), retry_in=pause)
            for lock in locks:
                lock.request_at = trio.current_time() + pause
            return
        finally:
            for lock in locks:
                lock.request_ended()
            self._wake_up.set()  # the time of their next request counts again
        self._retry_logs.succeeded(broker_name)
        for lock in locks:
            if lock.queue in locked:
                lock.granted(requested_at)
            else:
                lock.refused()

    async def _unlock(self, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        try:
            await self._client.brokers.unlock(self._group, self._client.client_id, broker_name, queues)
        except RocketMQError as error:
            logger.info(
                "queue unlock failed; the locks expire by themselves: group=%s broker=%s queues=%d error=%s",
                self._group, broker_name, len(queues), error,
            )  # fmt: skip


def _by_broker(locks: Iterable[QueueLock]) -> dict[str, list[QueueLock]]:
    by_broker: dict[str, list[QueueLock]] = {}
    for lock in locks:
        by_broker.setdefault(lock.queue.broker_name, []).append(lock)
    return by_broker
