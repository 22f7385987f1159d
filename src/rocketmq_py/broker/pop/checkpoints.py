"""What was popped and is not acknowledged yet (Java: ``PopCheckPoint``, ``PopBufferMergeService``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import trio

from rocketmq_py.protocol.bodies import BatchAck
from rocketmq_py.remoting import Deadlines


class CheckpointKey(NamedTuple):
    """What the receipt handles of messages that were popped together from one queue have in common."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int


class Checkpoint:
    """Messages that were popped together.

    Attributes:
        key: what names them.
        offsets: those that are not acknowledged.
        counts: whether delivering them again counts as a failure.
    """

    __slots__ = ("_on_expiry", "counts", "key", "offsets", "tick")

    def __init__(
        self,
        key: CheckpointKey,
        offsets: Iterable[int],
        on_expiry: Callable[[Checkpoint], None],
        *,
        counts: bool,
    ) -> None:
        self.key: CheckpointKey = key
        self.offsets: Final = dict.fromkeys(offsets)
        self.counts: bool = counts
        self.tick: int = 0
        self._on_expiry = on_expiry

    def expire(self) -> None:
        """Have what is left delivered again."""
        self._on_expiry(self)


class Checkpoints:
    """All that is not acknowledged. :meth:`run` must be under way for any of it to come again.

    It comes again at its time; a real broker, which writes all this down, is some seconds late.

    Args:
        revive: delivers the messages of a checkpoint again.
    """

    def __init__(self, revive: Callable[[Checkpoint], None]) -> None:
        self._revive = revive
        self._deadlines = Deadlines()
        self._checkpoints: dict[CheckpointKey, Checkpoint] = {}

    def add(
        self, key: CheckpointKey, offsets: Iterable[int], invisible_ms: int, *, counts: bool = True
    ) -> None:
        """Note messages that were popped, and come again if they are not acknowledged in time."""
        self._forget(key)
        checkpoint = self._checkpoints[key] = Checkpoint(key, offsets, self._expire, counts=counts)
        self._deadlines.add(checkpoint, trio.current_time() + invisible_ms / 1000)

    def acknowledge(self, key: CheckpointKey, offset: int) -> None:
        """Note that a message was consumed; nothing happens if it was not popped so, or is late."""
        self._acknowledge(key, lambda popped: popped == offset)

    def acknowledge_batch(self, key: CheckpointKey, acks: BatchAck) -> None:
        """Do so for all that ``acks`` holds."""
        self._acknowledge(key, acks.holds)

    async def run(self) -> None:
        """Have messages delivered again when their time is up, until cancelled."""
        await self._deadlines.run()

    def _acknowledge(self, key: CheckpointKey, is_acknowledged: Callable[[int], bool]) -> None:
        checkpoint = self._checkpoints.get(key)
        if checkpoint is None:
            return
        for offset in [offset for offset in checkpoint.offsets if is_acknowledged(offset)]:
            del checkpoint.offsets[offset]
        if not checkpoint.offsets:
            self._forget(key)

    def _forget(self, key: CheckpointKey) -> None:
        checkpoint = self._checkpoints.pop(key, None)
        if checkpoint is not None:
            self._deadlines.remove(checkpoint)

    def _expire(self, checkpoint: Checkpoint) -> None:
        del self._checkpoints[checkpoint.key]
        self._revive(checkpoint)
