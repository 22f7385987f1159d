"""Which client of a group may consume a queue in order (Java: ``RebalanceLockManager``)."""

from __future__ import annotations

from collections.abc import Collection

import attrs
import trio

from rocketmq_py.message import MessageQueue

LOCK_LIFE = 60.0
"""Seconds after which a lock that was not renewed is free (rocketmq.broker.rebalance.lockMaxLiveTime)."""


@attrs.frozen
class _Lock:
    client_id: str
    taken_at: float

    @property
    def is_expired(self) -> bool:
        return trio.current_time() - self.taken_at > LOCK_LIFE


class QueueLocks:
    """The locks of all groups."""

    def __init__(self) -> None:
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, queues: Collection[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock the queues that are free or the client's own already, and return them."""
        locks = self._locks.setdefault(group, {})
        locked = []
        for queue in queues:
            held = locks.get(queue)
            if held is None or held.client_id == client_id or held.is_expired:
                locks[queue] = _Lock(client_id, trio.current_time())
                locked.append(queue)
        return locked

    def unlock(self, group: str, queues: Collection[MessageQueue], client_id: str) -> None:
        """Give back the client's own locks on these queues; others' are left alone."""
        locks = self._locks.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                del locks[queue]

    def clear(self) -> None:
        """Forget all locks, as a broker does that ends."""
        self._locks.clear()

    def jump(self, seconds: float) -> None:
        """Note that the clock was put forward: the locks are as old as before."""
        for locks in self._locks.values():
            for queue, lock in locks.items():
                locks[queue] = attrs.evolve(lock, taken_at=lock.taken_at + seconds)

    def holds_any(self, group: str) -> bool:
        """Tell whether any client of the group holds a lock: then the group consumes in order."""
        return any(not lock.is_expired for lock in self._locks.get(group, {}).values())
