"""Which offsets of a lite pull consumer are committed, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketmq_py.client.client import Client
from rocketmq_py.consumer.group.offset_store import RemoteOffsetStore
from rocketmq_py.message import MessageQueue


class PolledOffsets:
    """An OffsetStore on the brokers that keeps to what the user has polled, and to the user's own commits.

    Pulls carry no offsets: what is committed, and when, is the commits' affair alone.

    Args:
        client: how brokers are reached.
        group: the group.
        auto_commit: whether what the queues note by themselves counts; else only :meth:`commit` does.
    """

    def __init__(self, client: Client, group: str, *, auto_commit: bool) -> None:
        self._offsets = RemoteOffsetStore(client, group)
        self._auto_commit = auto_commit
        self.open: Final = self._offsets.open
        self.close: Final = self._offsets.close
        self.read: Final = self._offsets.read
        self.forget: Final = self._offsets.forget
        self.write: Final = self._offsets.write
        self.confirm: Final = self._offsets.confirm
        self.written: Final = self._offsets.written
        self.committed: Final = self._offsets.committed

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Note how far a queue has been handled, for the next commit that comes by itself."""
        if self._auto_commit:
            self._offsets.update(queue, offset)

    def has_entry(self, _: MessageQueue) -> bool:
        """Have no pull carry an offset."""
        return False

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit these offsets now. Raises the first error if not all could be."""
        for queue, offset in offsets.items():
            self._offsets.update(queue, offset)
        for error in (await self._offsets.confirm(offsets)).values():
            raise error
