"""Consumer offsets (Java: ``ConsumerOffsetManager``)."""

from __future__ import annotations

from collections.abc import Mapping


class OffsetTable:
    """The committed, pulled and reset offsets of all consumer groups.

    A commit is stored unchecked, even if it goes back or is beyond the end of the queue, as on real brokers.
    """

    def __init__(self) -> None:
        # offsets by queue id, by (topic, group)
        self._committed: dict[tuple[str, str], dict[int, int]] = {}
        self._reset: dict[tuple[str, str], dict[int, int]] = {}
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit an offset: the group has consumed all messages before it."""
        self._committed.setdefault((topic, group), {})[queue_id] = offset

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset, or the offset of a pending reset; None if there is neither."""
        reset = self._reset.get((topic, group))
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        offsets = self._committed.get((topic, group))
        return None if offsets is None else offsets.get(queue_id)

    def record_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record the offset of the group's next pull, for statistics."""
        self._pulled.setdefault((topic, group), {})[queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of the next pull; None if the group has neither pulled nor committed."""
        offsets = self._pulled.get((topic, group), {})
        pulled = offsets.get(queue_id)
        return self.committed(group, topic, queue_id) if pulled is None else pulled

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset a group to an offset. The reset is pending until the group's next pull or pop."""
        self._reset.setdefault((topic, group), {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset)

    def has_pending_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a reset is pending. Commits of the group are ignored until then."""
        return queue_id in self._reset.get((topic, group), {})

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a pending reset, which is no longer pending; None if there is none."""
        offsets = self._reset.get((topic, group))
        if offsets is None:
            return None
        offset = offsets.pop(queue_id, None)
        if not offsets:
            del self._reset[topic, group]
        return offset

    def clone(self, group: str, topic: str, other: str) -> None:
        """Copy the committed offsets of a group for a topic, if there are any, to another group."""
        offsets = self._committed.get((topic, group))
        if offsets is not None:
            self._committed[topic, other] = dict(offsets)

    def of_group(self, group: str) -> dict[tuple[str, int], int]:
        """Return all committed offsets of a group by topic and queue id."""
        return {
            (topic, queue_id): offset
            for (topic, committing), offsets in self._committed.items()
            if committing == group
            for queue_id, offset in offsets.items()
        }

    def topics_of(self, group: str) -> list[str]:
        """Return the topics for which a group has committed offsets."""
        return [topic for topic, committing in self._committed if committing == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets for a topic."""
        return [group for committed, group in self._committed if committed == topic]

    @property
    def count(self) -> int:
        """The number of pairs of a group and a topic with committed offsets."""
        return len(self._committed)

    def delete(self, group: str, topic: str) -> None:
        """Delete all offsets of a group for a topic."""
        for table in (self._committed, self._reset, self._pulled):
            table.pop((topic, group), None)

    def delete_topic(self, topic: str) -> None:
        """Delete all offsets of a topic."""
        for table in (self._committed, self._reset, self._pulled):
            for key in [key for key in table if key[0] == topic]:
                del table[key]

    def delete_group(self, group: str) -> None:
        """Delete all offsets of a group."""
        for table in (self._committed, self._reset, self._pulled):
            for key in [key for key in table if key[1] == group]:
                del table[key]

    def snapshot(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return all committed offsets, for :meth:`restore`."""
        return {key: dict(offsets) for key, offsets in self._committed.items()}

    def restore(self, committed: Mapping[tuple[str, str], Mapping[int, int]]) -> None:
        """Go back to the committed offsets of a snapshot."""
        self._committed = {key: dict(offsets) for key, offsets in committed.items()}
        self._pulled.clear()
