"""Dead letters: messages that a group failed on too often."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import attrs

from rocketmq_py.admin.errors import GroupNotFoundError
from rocketmq_py.admin.fan_out import PartialResults, query_each
from rocketmq_py.admin.group_state import group_on_broker
from rocketmq_py.admin.message_values import DeadLetter, DeadLetterListing
from rocketmq_py.admin.operations import Operations, any_address
from rocketmq_py.admin.resends import Resender, resend_times
from rocketmq_py.arguments import check_flag, check_instances, check_integer
from rocketmq_py.consumer.read.queue_range import Bounds, QueueRange
from rocketmq_py.errors import RocketMQError, TopicNotFoundError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import check_group, dead_letter_topic
from rocketmq_py.position import Position, check_times
from rocketmq_py.property_names import (
    DEAD_LETTER_ORIGIN_TOPIC,
    RETRY_TOPIC,
)
from rocketmq_py.protocol.subscription import make_subscription

MAX_LISTED = 100
"""Default of ``max_messages`` in :meth:`DeadLetterQueues.list`."""


class DeadLetterQueues(Operations):
    """``admin.dead_letters``: lists dead letters and sends them again."""

    async def list(
        self,
        group: str,
        *,
        max_messages: int = MAX_LISTED,
        start: Position | str = Position.earliest,
        end: Position | str = Position.latest,
    ) -> DeadLetterListing:
        """Return the newest dead letters of a group, and their total number.

        Args:
            group: the group.
            max_messages: the maximum number of dead letters to return.
            start: only messages stored at this time or later: ``Position.time(...)`` or ``"earliest"``.
            end: only messages stored before this time: ``Position.time(...)`` or ``"latest"``.

        Raises:
            ConfigurationError: ``max_messages`` is below 1, ``group`` is not a valid name, or ``start`` or
                ``end`` is another position.
            GroupNotFoundError: the group has no dead letters, and no broker knows it.
            NameServerError: no name server answered.
            NoQueueError: the dead letters may only be written to, as brokers before 4.9.2 create their topic.
                The text has the command that allows reading.
        """
        max_messages = check_integer(max_messages, "max_messages", lowest=1)
        client = self._client
        begin_ms, end_ms = check_times(start, end, now_ms=client.now_ms())
        topic = dead_letter_topic(check_group(group))
        try:
            route = await client.name_servers.find_route(topic)
        except TopicNotFoundError:  # no dead letters yet: brokers create the topic with the first one
            return DeadLetterListing(letters=(), total=0, failures=await self._require_group(group))
        queues: dict[str, list[MessageQueue]] = {
            data.broker_name: [
                MessageQueue(topic, data.broker_name, queue_id) for queue_id in range(data.read_queue_nums)
            ]
            for data in route.queue_datas
        }
        (await client.routes.refresh(topic)).queues_to_read()

        async def read(name: str) -> tuple[int, Sequence[ReceivedMessage]]:
            """Return the total of a broker's dead letters, and the newest of each of its queues."""
            total = 0
            found: list[ReceivedMessage] = []
            for queue in queues[name]:
                newest: deque[ReceivedMessage] = deque(maxlen=max_messages)
                first, after = await client.brokers.min_offset(queue), await client.brokers.max_offset(queue)
                total += after - first
                # Without an end time, the newest messages of each queue are enough.
                from_offset = None if end_ms is not None else after - max_messages
                bounds = Bounds(start_offset=from_offset, end_offset=after, begin_ms=begin_ms, end_ms=end_ms)
                async for message in QueueRange(
                    client, queue, make_subscription(topic, version_ms=0), bounds
                ):
                    newest.append(message)
                found += newest
            return total, found

        results = await query_each(sorted(queues), read)
        found = [message for _, newest in results.values.values() for message in newest]
        found.sort(key=lambda message: message.store_time_ms)
        letters = {
            message.offset_message_id: DeadLetter(message, self._origin_topic(message, group))
            for message in found[-max_messages:]
        }
        times = await resend_times(client, letters)
        return DeadLetterListing(
            letters=tuple(
                attrs.evolve(letter, resent_ms=times.values.get(key)) for key, letter in letters.items()
            ),
            total=sum(total for total, _ in results.values.values()),
            failures={**results.failures, **times.failures},
        )

    def _origin_topic(self, message: ReceivedMessage, group: str) -> str | None:
        properties = message.properties
        topic = properties.get(DEAD_LETTER_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC)
        # The property of a popped message names the group's retry topic of its topic.
        return topic and self._client.namespace.original_topic(topic, group)

    async def _require_group(self, group: str) -> Mapping[str, RocketMQError]:
        """Raise GroupNotFoundError if no broker knows a group. Return the errors if some did not say so."""
        client = self._client
        brokers = await self._select_brokers()
        results = await query_each(
            brokers, lambda name: group_on_broker(client, any_address(brokers[name]), group)
        )
        if any(one.is_known for one in results.values.values()):
            return {}
        if not results.failures:
            raise GroupNotFoundError(group, client.name_servers.addresses, client.namespace.name)
        return results.failures

    async def resend(
        self, letters: Iterable[DeadLetter], *, to_topic: bool = False, again: bool = False
    ) -> PartialResults[str, str]:
        """Send dead letters to the group that failed, through its retry topic.

        Members receive them as messages of the original topic, with all redeliveries again. The letters also
        stay in the dead-letter topic. The new messages have the ``message_id``, tags, keys, sharding key and
        properties of the letters, and two more properties: RESENT_FROM, the dead-letter topic, and
        RESENT_OFFSET_MESSAGE_ID, the letter's ``offset_message_id``. By these a letter that was sent again is
        recognized, also from another machine. It is skipped. Two calls at the same moment do not see each
        other's messages. A cancellation leaves some letters unsent.

        Args:
            letters: the letters.
            to_topic: whether to send them to their original topics instead, where all groups receive them.
            again: whether to send letters that were sent again before.

        Returns:
            The topic that each letter was sent to, by the letter's ``offset_message_id``. Skipped letters are
            absent. A letter without an original topic, or with a corrupt body, is among the failures with a
            ConfigurationError. A letter is a failure, and is not sent, if a broker did not say whether it was
            sent before.
        """
        check_flag(to_topic, "to_topic")
        check_flag(again, "again")
        by_id = {
            letter.message.offset_message_id: letter
            for letter in check_instances(letters, "letters", DeadLetter)
        }
        failures: dict[str, RocketMQError] = {}
        if not again:
            times = await resend_times(self._client, by_id)
            failures.update(times.failures)
            by_id = {key: letter for key, letter in by_id.items() if times.values.get(key, 0) is None}
        sent = await Resender(self._client, to_topic=to_topic).send_all(by_id)
        return PartialResults(sent.values, {**failures, **sent.failures})
