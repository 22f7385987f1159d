"""Locks on queues that are consumed in order: kept while they are wanted, and lost when a broker says so."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.config import LOCK_INTERVAL, LOCK_LIFE
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue, queue_name
from rocketmq_py.remoting.running import open_nursery

logger: Final = logging.getLogger("rocketmq_py.consumer")

BROKER_LOCK_LIFE = 2 * LOCK_LIFE
REFUSED_SECONDS = 0.5
"""Until a lock is asked for again that another member has: that one releases it when it has heard of it."""
FAILED_SECONDS = 3.0
"""Until it is asked for again when the broker did not answer."""
GATHER_SECONDS = 0.01
"""Queues are acquired many at a time: what is wanted within this time is asked for together."""


def _nothing() -> None:
    """Do nothing."""


class Lock:
    """The right to consume one queue in order, and whether a call is making use of it.

    Args:
        queue: the queue.
        held_until: trio's time until which it is trusted.
        interval: seconds between two renewals.
        life: seconds for which it is trusted here; half of those for which the broker keeps it.

    Attributes:
        queue: the queue.
        busy: whether messages of the queue are being handled: no other call may begin then.
        asked: whether the broker is being asked for it.
        ask_at: when to ask for it, on trio's clock.
        got_at: when it was last got or renewed; -inf if it never was.
        on_held: called when it has been got.
        on_lost: called when another member may have had it: what is known of the queue counts no more.
    """

    def __init__(
        self,
        queue: MessageQueue,
        *,
        held_until: float = -math.inf,
        interval: float = LOCK_INTERVAL,
        life: float = LOCK_LIFE,
    ) -> None:
        self.queue = queue
        self._interval = interval
        self._life = life
        self._broker_life = 2 * life
        self.busy: bool = False
        self.asked: bool = False
        self.ask_at: float = -math.inf
        self.got_at: float = -math.inf
        self.on_held: Callable[[], None] = _nothing
        self.on_lost: Callable[[], None] = _nothing
        self._held_until = held_until
        # The broker gives it to nobody else before this time; -inf if it was never held, or is lost.
        self._alone_until = -math.inf
        # The same, if the broker has got a request that was not answered.
        self._perhaps_until = -math.inf
        self._has_waited = False
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def is_held(self) -> bool:
        """Whether the queue may be consumed."""
        return trio.current_time() < self._held_until

    @property
    def may_be_kept(self) -> bool:
        """Whether the broker may keep it for this member."""
        return trio.current_time() < max(self._alone_until, self._perhaps_until)

    async def until_held(self) -> None:
        """Wait until the queue may be consumed."""
        while not self.is_held:
            await self._changed.park()

    async def until_free(self) -> None:
        """Wait until it may be released: no message is being handled, and no request for it under way."""
        while self.busy or self.asked:
            await self._changed.park()

    def free(self) -> None:
        """Note that the call is over that made use of it."""
        self.busy = False
        self._changed.unpark_all()

    def asking(self) -> None:
        """Note that the broker is being asked for it."""
        self.asked = True
        self._perhaps_until = math.inf

    def answered(self) -> None:
        """Note that the request for it is over, with whatever outcome."""
        self.asked = False
        self._perhaps_until = trio.current_time() + self._broker_life
        self._changed.unpark_all()

    def got(self, asked_at: float) -> None:
        """Note that the broker has given it, or gives it still, when asked at this time."""
        was_held, was_lost = self.is_held, -math.inf < self._alone_until <= trio.current_time()
        self.got_at = asked_at
        self._has_waited = False
        self._held_until = asked_at + self._life
        self._alone_until = asked_at + self._broker_life
        self.ask_at = asked_at + self._interval
        if was_lost:
            self.on_lost()
        if not was_held:
            self._changed.unpark_all()
            self.on_held()

    def refused(self) -> None:
        """Note that another member has it."""
        was_got = self._alone_until > -math.inf
        self._held_until = self._alone_until = self._perhaps_until = -math.inf
        self.ask_at = trio.current_time() + REFUSED_SECONDS
        if was_got:
            logger.warning(
                "%s is locked by another member: it is consumed here no more", queue_name(self.queue)
            )
            self.on_lost()
        elif not self._has_waited:
            logger.info("%s is locked by another member still: waiting for it", queue_name(self.queue))
        self._has_waited = True


class QueueLocks:
    """Gets and keeps the locks of one member. Java: ``RebalanceImpl.lockAll``.

    Args:
        client: the member.
        group: its group.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._retry_logs = RetryLogs(logger, "queue lock", "broker", group=group)
        self._locks: dict[MessageQueue, Lock] = {}
        self._wanted = trio.Event()

    async def acquire(self, lock: Lock) -> None:
        """Wait until the lock is held. From then on it is kept, until it is released."""
        # Whose queue was revoked before this ran shall not ask: nobody would release what it gets.
        await trio.lowlevel.checkpoint_if_cancelled()
        self._locks[lock.queue] = lock
        if not lock.is_held:
            lock.ask_at = trio.current_time() + GATHER_SECONDS
            self._wanted.set()
        await lock.until_held()

    async def until_free(self, lock: Lock) -> None:
        """Wait until a lock may be released; from then on it is not renewed any more."""
        await lock.until_free()
        self._locks.pop(lock.queue, None)

    async def release(self, locks: Collection[Lock]) -> None:
        """Release locks. Failures are logged: the broker then keeps them for a minute at the most."""
        kept = [lock for lock in locks if lock.may_be_kept]
        for lock in locks:
            self._locks.pop(lock.queue, None)
        async with open_nursery() as nursery:
            for broker_name, queues in _by_broker(kept).items():
                nursery.start_soon(self._unlock, broker_name, [lock.queue for lock in queues])

    async def run(self) -> None:
        """Ask for the locks that are wanted, and renew those that are held, until cancelled."""
        while True:
            with trio.move_on_at(min((lock.ask_at for lock in self._locks.values()), default=math.inf)):
                await self._wanted.wait()
            self._wanted = trio.Event()
            now = trio.current_time()
            if all(lock.ask_at > now for lock in self._locks.values()):
                continue
            due = [lock for lock in self._locks.values() if lock.ask_at <= now + GATHER_SECONDS]
            async with open_nursery() as nursery:
                for broker_name, locks in _by_broker(due).items():
                    # At once: who gives a queue up before the task runs shall wait for the answer.
                    for lock in locks:
                        lock.asking()
                    nursery.start_soon(self._ask, broker_name, locks)

    async def _ask(self, broker_name: str, locks: Sequence[Lock]) -> None:
        asked_at = trio.current_time()
        queues = [lock.queue for lock in locks]
        try:
            locked = await self._client.brokers.lock(self._group, self._client.client_id, broker_name, queues)
        except RocketMQError as error:
            self._retry_logs.failed(broker_name, error, queues=len(queues), retry_in=FAILED_SECONDS)
            for lock in locks:
                lock.ask_at = trio.current_time() + FAILED_SECONDS
            return
        finally:
            for lock in locks:
                lock.answered()
        self._retry_logs.succeeded(broker_name)
        for lock in locks:
            if lock.queue in locked:
                lock.got(asked_at)
            else:
                lock.refused()

    async def _unlock(self, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        try:
            await self._client.brokers.unlock(self._group, self._client.client_id, broker_name, queues)
        except RocketMQError as error:
            logger.info(
                "group %s: %d queues of %s not unlocked: %s", self._group, len(queues), broker_name, error
            )


def _by_broker(locks: Iterable[Lock]) -> dict[str, list[Lock]]:
    by_broker: dict[str, list[Lock]] = {}
    for lock in locks:
        by_broker.setdefault(lock.queue.broker_name, []).append(lock)
    return by_broker
