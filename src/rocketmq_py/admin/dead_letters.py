"""Dead letters: what groups have given up, listed and sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from rocketmq_py import properties as names
from rocketmq_py.admin.asking import Answers, ask_each
from rocketmq_py.admin.message_values import DeadLetter, DeadLetters
from rocketmq_py.admin.part import Part
from rocketmq_py.arguments import check_instances, check_integer, optional
from rocketmq_py.consumer.read.range import Bounds, QueueRange
from rocketmq_py.errors import ConfigurationError, TopicNotFoundError
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage, SendResult
from rocketmq_py.names import check_group, dead_letter_topic
from rocketmq_py.protocol.subscription import make_subscription

RESENT_FROM = "RESENT_FROM"
"""The property of a dead letter that was sent again: the topic that it was found in."""
RESENT_MESSAGE_ID = "RESENT_MESSAGE_ID"
"""The same: its ``message_id`` there, which its sender gave it."""
MAX_LISTED = 100
_GROUP = "CID_RMQ_SYS_RESEND"


class DeadLetterQueues(Part):
    """``admin.dead_letters``."""

    async def list(
        self,
        group: str,
        *,
        max: int = MAX_LISTED,  # noqa: A002  # as in ``admin.messages.find``
        begin_ms: int | None = None,
        end_ms: int | None = None,
    ) -> DeadLetters:
        """Return the newest dead letters of a group, and how many there are.

        Args:
            group: the group.
            max: how many at the most.
            begin_ms: the first store time, epoch milliseconds.
            end_ms: the first store time that is too late.

        Raises:
            ConfigurationError: ``max`` is not above 0, or no group can have such a name.
            NameServerError: no name server answered.
        """
        max = check_integer(max, "max", lowest=1)  # noqa: A001
        begin_ms = optional(check_integer, begin_ms, "begin_ms", lowest=0)
        end_ms = optional(check_integer, end_ms, "end_ms", lowest=0)
        client = self._client
        topic = dead_letter_topic(check_group(group))
        try:
            route = await client.name_servers.route(topic)
        except TopicNotFoundError:  # it has never given anything up
            return DeadLetters(letters=(), total=0, failures={})
        queues: dict[str, list[MessageQueue]] = {
            data.broker_name: [
                MessageQueue(topic, data.broker_name, queue_id) for queue_id in range(data.read_queue_nums)
            ]
            for data in route.queue_datas
        }
        await client.routes.refresh(topic)

        async def read(name: str) -> tuple[int, Iterable[ReceivedMessage]]:
            total = 0
            newest: deque[ReceivedMessage] = deque(maxlen=max)
            for queue in queues[name]:
                first, end = await client.brokers.min_offset(queue), await client.brokers.max_offset(queue)
                total += end - first
                # Without bounds of time only the last ones are read.
                start = None if end_ms is not None else end - max
                bounds = Bounds(start_offset=start, end_offset=end, begin_ms=begin_ms, end_ms=end_ms)
                async for message in QueueRange(
                    client, queue, make_subscription(topic, version_ms=0), bounds
                ):
                    newest.append(message)
            return total, newest

        answers = await ask_each(sorted(queues), read)
        found = [message for _, some in answers.values.values() for message in some]
        found.sort(key=lambda message: message.store_time_ms)
        return DeadLetters(
            letters=tuple([DeadLetter(message) for message in found[-max:]]),
            total=sum(total for total, _ in answers.values.values()),
            failures=answers.failures,
        )

    async def resend(self, letters: Iterable[DeadLetter]) -> Answers[str, SendResult]:
        """Send dead letters to the topics that they came from; they stay where they are, too.

        They are new messages, which all groups of a topic get, with the tags, keys, sharding key and
        properties that they had, and two more: RESENT_FROM is the dead-letter topic, RESENT_MESSAGE_ID the
        ``message_id`` there. When cancelled, some have been sent.

        Returns:
            What became of each, by its ``offset_message_id``. One that does not say where it came from, or
            cannot be opened, is among the failures with a ConfigurationError.
        """
        from rocketmq_py.producer import Producer  # who only lists should not wait for it

        letters = check_instances(letters, "letters", DeadLetter)
        by_id = {letter.message.offset_message_id: letter for letter in letters}
        async with Producer(self._client, group=_GROUP) as producer:
            return await ask_each(by_id, lambda letter_id: producer.send(_again(by_id[letter_id])))


def _again(letter: DeadLetter) -> Message:
    message, topic = letter.message, letter.origin_topic
    if topic is None:
        raise ConfigurationError(f"dead letter {message.message_id} does not say which topic it came from")
    if message.corruption is not None:
        raise ConfigurationError(f"dead letter {message.message_id} cannot be opened: {message.corruption}")
    properties = {
        **message.user_properties,
        RESENT_FROM: message.topic,
        RESENT_MESSAGE_ID: message.message_id,
    }
    return Message(
        topic,
        message.body,
        message.tags,
        message.keys,
        properties,
        flag=message.flag,
        sharding_key=properties.pop(names.SHARDING_KEY, ""),
    )
