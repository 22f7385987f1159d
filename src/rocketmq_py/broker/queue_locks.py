"""Queue locks of consumers in orderly mode (Java: ``RebalanceLockManager``)."""

from __future__ import annotations

from collections.abc import Collection

import attrs
import trio

from rocketmq_py.message import MessageQueue

LOCK_SECONDS = 60.0
"""Seconds until a lock that is not renewed expires (rocketmq.broker.rebalance.lockMaxLiveTime)."""


@attrs.frozen
class _Lock:
    client_id: str
    locked_at: float

    @property
    def is_expired(self) -> bool:
        return trio.current_time() - self.locked_at > LOCK_SECONDS


class QueueLocks:
    """The queue locks of all groups: each queue of a group is locked by at most one client."""

    def __init__(self) -> None:
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, queues: Collection[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock or renew queues. Returns those that the client holds now; others are locked by its peers."""
        locks = self._locks.setdefault(group, {})
        locked = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or lock.is_expired:
                locks[queue] = _Lock(client_id, trio.current_time())
                locked.append(queue)
        return locked

    def unlock(self, group: str, queues: Collection[MessageQueue], client_id: str) -> None:
        """Unlock those of the queues that the client has locked."""
        locks = self._locks.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]

    def clear(self) -> None:
        """Drop all locks, as stopping a broker does."""
        self._locks.clear()

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of all locks after trio's clock was advanced by ``seconds``."""
        for locks in self._locks.values():
            for queue, lock in locks.items():
                locks[queue] = attrs.evolve(lock, locked_at=lock.locked_at + seconds)

    def is_orderly(self, group: str) -> bool:
        """Return whether any client of the group holds a lock, which means that it consumes in order."""
        return any(not lock.is_expired for lock in self._locks.get(group, {}).values())
