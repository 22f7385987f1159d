"""How far each consumer group has come in each queue (Java: ``ConsumerOffsetManager``)."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import OffsetAnswer, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from rocketmq_py.remoting import Connection


class OffsetTable:
    """Committed offsets, and how far pulls have come, by topic and group.

    A commit is taken as it is, lower ones and ones beyond the end too: so do real brokers.
    """

    def __init__(self) -> None:
        self._committed: dict[tuple[str, str], dict[int, int]] = {}
        self._reset: dict[tuple[str, str], dict[int, int]] = {}
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that the group has consumed what is before ``offset``."""
        self._committed.setdefault((topic, group), {})[queue_id] = offset

    def note_pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note where the group's next pull begins, for the statistics."""
        self._pulled.setdefault((topic, group), {})[queue_id] = offset

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset, or the one that it was reset to; None if there is none."""
        reset = self._reset.get((topic, group))
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        offsets = self._committed.get((topic, group))
        return None if offsets is None else offsets.get(queue_id)

    def snapshot(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return all committed offsets, as :meth:`restore` takes them."""
        return {place: dict(offsets) for place, offsets in self._committed.items()}

    def restore(self, committed: Mapping[tuple[str, str], Mapping[int, int]]) -> None:
        """Go back to what was committed at an earlier time."""
        self._committed = {place: dict(offsets) for place, offsets in committed.items()}
        self._pulled.clear()

    def of_group(self, group: str) -> dict[tuple[str, int], int]:
        """Return all offsets that the group has committed, by topic and queue id."""
        return {
            (topic, queue_id): offset
            for (topic, committing), offsets in self._committed.items()
            if committing == group
            for queue_id, offset in offsets.items()
        }

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Have the group go on from ``offset``: its next pull or pop is told so."""
        self._reset.setdefault((topic, group), {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Tell whether the group has yet to be told of a reset: until then its commits do not count."""
        return queue_id in self._reset.get((topic, group), {})

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where the group shall go on, None where that was not changed; it is told with this."""
        offsets = self._reset.get((topic, group))
        if offsets is None:
            return None
        offset = offsets.pop(queue_id, None)
        if not offsets:
            del self._reset[topic, group]
        return offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where the next pull begins, None if the group has neither pulled nor committed."""
        offsets = self._pulled.get((topic, group), {})
        pulled = offsets.get(queue_id)
        return self.committed(group, topic, queue_id) if pulled is None else pulled

    def forget_group(self, group: str) -> None:
        """Forget all that is known of a group."""
        for table in (self._committed, self._reset, self._pulled):
            for key in [key for key in table if key[1] == group]:
                del table[key]

    def clone(self, group: str, topic: str, other: str) -> None:
        """Give another group the offsets that this one has committed for a topic, if there are any."""
        offsets = self._committed.get((topic, group))
        if offsets is not None:
            self._committed[topic, other] = dict(offsets)

    def topics_of(self, group: str) -> list[str]:
        """Return the topics for which the group has committed offsets."""
        return [topic for topic, committing in self._committed if committing == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets for the topic."""
        return [group for committed, group in self._committed if committed == topic]

    def forget_topic(self, topic: str) -> None:
        """Forget all offsets of a topic."""
        for table in (self._committed, self._reset, self._pulled):
            for key in [key for key in table if key[0] == topic]:
                del table[key]


class OffsetRequests:
    """Answers the requests for consumer offsets. Java: ``ConsumerManageProcessor``."""

    def __init__(
        self,
        offsets: OffsetTable,
        store: MessageStore,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
    ) -> None:
        self._offsets = offsets
        self._store = store
        self._topics = topics
        self._subscription_groups = subscription_groups

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
        }

    def _query(self, connection: Connection, request: Command) -> None:
        header = QueryConsumerOffsetRequest.from_fields(request.fields)
        offset = self._offsets.committed(header.consumer_group, header.topic, header.queue_id)
        if offset is None or offset < 0:
            offset = self._offset_of_new_group(header)
        connection.respond(request, ResponseCode.SUCCESS, OffsetAnswer(offset=offset).to_fields())

    def _offset_of_new_group(self, header: QueryConsumerOffsetRequest) -> int:
        if header.set_zero_if_not_found is False:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
            )
        # Everything here is in memory: a queue that still has its first message lets new groups begin there.
        queue = self._store.find_queue(header.topic, header.queue_id)
        if queue is None or queue.start > 0 or queue.end == 0:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
        return 0

    def _update(self, connection: Connection, request: Command) -> None:
        header = UpdateConsumerOffsetRequest.from_fields(request.fields)
        if not self._subscription_groups.knows(header.consumer_group):
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.consumer_group} not exist!"
            )
        if self._topics.get(header.topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        place = header.consumer_group, header.topic, header.queue_id
        if self._offsets.is_reset(*place):
            # What a consumer commits before it knows must not undo what a tool has asked for.
            connection.respond(request, ResponseCode.SUCCESS, remark="Offset has been previously reset")
            return
        self._offsets.commit(*place, header.commit_offset)
        connection.respond(request, ResponseCode.SUCCESS)
