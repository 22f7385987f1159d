"""Sends dead letters again, and finds those that were sent again before.

A letter stays in its dead-letter topic, which cannot be changed. The message that was sent again is the mark:
it keeps the ``message_id`` of the letter, by which brokers find it, and two properties name the letter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from rocketmq_py.admin.fan_out import PartialResults, query_each
from rocketmq_py.admin.group_state import group_connections
from rocketmq_py.admin.message_values import DeadLetter
from rocketmq_py.admin.operations import any_address
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.features import SEVERAL_MESSAGES_WITH_TLS
from rocketmq_py.consumer.read.message_queries import MAX_WITH_UNIQUE_ID, look_up_unique_id
from rocketmq_py.errors import (
    ConfigurationError,
    RocketMQError,
    TopicNotFoundError,
    UnsupportedByBrokerError,
)
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.names import DEAD_LETTER_PREFIX, retry_topic
from rocketmq_py.property_names import (
    DEAD_LETTER_REASON,
    FIRST_POP_TIME,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    SHARDING_KEY,
)
from rocketmq_py.protocol.compression import CompressionType, compress
from rocketmq_py.protocol.headers import SendMessageAnswer, ViewMessageRequest
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG, COMPRESSION_TYPE_SHIFT, decode_messages

RESENT_FROM = "RESENT_FROM"
"""Property of a resent message: the dead-letter topic."""
RESENT_OFFSET_MESSAGE_ID = "RESENT_OFFSET_MESSAGE_ID"
"""Property of a resent message: the dead letter's ``offset_message_id``.

If the letter had been sent again before it failed again, the ids of the earlier letters come first, separated
by commas.
"""
PRODUCER_GROUP: Final = "CID_RMQ_SYS_RESEND"
COMPRESS_OVER = 4096
"""Bodies of this many bytes or more are compressed, since the original may have fit only when compressed."""
MAX_FAILURES = 2**31 - 1
"""The failures after which brokers move a message in a retry topic to the dead letters: never at once."""
CLOCK_SKEW_MS = 600_000
"""By how much the clocks of brokers may differ when resent messages are looked up."""
POPPING = "CONSUME_POP"
"""The consume type of groups whose members only pop."""


async def resend_times(
    client: ClientCore, letters: Mapping[str, DeadLetter]
) -> PartialResults[str, int | None]:
    """Return when each letter was first sent again, epoch milliseconds. None if it was not."""
    wanted = {key: _targets(client, letter) for key, letter in letters.items()}
    topics = {topic for targets in wanted.values() for topic in targets}
    exists = await query_each(sorted(topics), lambda topic: _exists(client, topic))
    count = await _count_to_query(client) if letters else 0

    async def time_of(key: str) -> int | None:
        for topic in wanted[key]:
            if topic in exists.failures:
                raise exists.failures[topic]
        existing = [one for one in wanted[key] if exists.values[one]]
        return await _resend_time(client, letters[key], existing, count)

    return await query_each(letters, time_of)


async def _exists(client: ClientCore, topic: str) -> bool:
    try:
        await client.routes.get(topic)
    except (
        TopicNotFoundError,
        ConfigurationError,
    ):  # or its name is too long: the group cannot pop the topic
        return False
    return True


async def _count_to_query(client: ClientCore) -> int:
    """Return how many messages with the id of a letter to query. The newest one is enough for most letters.

    Older brokers cut off answers with several messages over TLS, and the query times out.
    """
    if client.settings.tls is not None:
        for broker in (await client.name_servers.cluster_info()).broker_addr_table.values():
            version = await client.brokers.version(any_address(broker))
            if not SEVERAL_MESSAGES_WITH_TLS.is_supported_by(version):
                return 1
    return MAX_WITH_UNIQUE_ID


async def _resend_time(
    client: ClientCore, letter: DeadLetter, topics: Iterable[str], count: int
) -> int | None:
    """Look for the message with which a letter was sent again.

    Raises the error of a broker that failed if none is found.
    """
    message = letter.message
    times: list[int] = []
    failures: dict[str, RocketMQError] = {}
    for topic in topics:
        found = await look_up_unique_id(
            client,
            topic,
            message.message_id,
            begin_ms=max(message.store_time_ms - CLOCK_SKEW_MS, 0),
            count=count,
        )
        failures.update(found.failures)
        times += [
            one.store_time_ms
            for one in found.messages
            if message.offset_message_id in one.properties.get(RESENT_OFFSET_MESSAGE_ID, "").split(",")
        ]
    if not times and failures:
        raise next(iter(failures.values()))
    return min(times, default=None)


def _targets(client: ClientCore, letter: DeadLetter) -> list[str]:
    """Return the topics that a letter may have been sent to."""
    topics = [retry_topic(letter.group)]
    if letter.origin_topic is not None:
        pop_topic = client.namespace.popped_topic(letter.origin_topic, letter.group)
        topics += [pop_topic, letter.origin_topic]
    return topics


class Resender:
    """Sends dead letters again.

    Args:
        client: the client.
        to_topic: whether to send them to their original topics instead of the groups that failed.
    """

    def __init__(self, client: ClientCore, *, to_topic: bool) -> None:
        self._client = client
        self._to_topic = to_topic
        self._popping: frozenset[str] = frozenset()

    async def send_all(self, letters: Mapping[str, DeadLetter]) -> PartialResults[str, str]:
        """Send letters. Return the topic of each, by its key."""
        if not self._to_topic:
            self._popping = await self._popping_groups({letter.group for letter in letters.values()})
        ids = list(letters)
        # The first one alone: if its broker moves it back to the dead letters, the others are not sent.
        first = await query_each(ids[:1], lambda key: self._send(letters[key]))
        if any(isinstance(error, UnsupportedByBrokerError) for error in first.failures.values()):
            return PartialResults({}, dict.fromkeys(ids, next(iter(first.failures.values()))))
        others = await query_each(ids[1:], lambda key: self._send(letters[key]))
        return PartialResults({**first.values, **others.values}, {**first.failures, **others.failures})

    async def _popping_groups(self, groups: Collection[str]) -> frozenset[str]:
        """Return the groups whose members only pop. They do not read the group's own retry topic."""
        brokers = (await self._client.name_servers.cluster_info()).broker_addr_table

        async def consume_type(key: tuple[str, str]) -> str | None:
            group, name = key
            online = await group_connections(self._client, any_address(brokers[name]), group)
            return online.consume_type if online is not None else None

        found = await query_each(
            [(group, name) for group in sorted(groups) for name in brokers], consume_type
        )
        return frozenset(group for (group, _), kind in found.values.items() if kind == POPPING)

    async def _send(self, letter: DeadLetter) -> str:
        """Send a letter, and return the topic that it was sent to."""
        # Fast path: only a resend imports the producer, saves 18 % of the CPU of the imports of `dlq list`.
        from rocketmq_py.protocol.sends import send_fields

        client, message, origin = self._client, letter.message, letter.origin_topic
        if origin is None:
            raise ConfigurationError(
                f"cannot resend dead letter {message.message_id}: its properties lack the original topic"
            )
        if message.corruption is not None:
            raise ConfigurationError(f"cannot resend dead letter {message.message_id}: {message.corruption}")
        copy = _copy(letter, origin if self._to_topic else self._retry_topic(letter, origin))
        data, system_flag = message.body, 0
        if len(data) >= COMPRESS_OVER:
            data = compress(data)
            system_flag = COMPRESSED_FLAG | CompressionType.ZLIB << COMPRESSION_TYPE_SHIFT
        system_properties = {ORIGIN_MESSAGE_ID: letter.origin_message_id or message.offset_message_id}
        if not self._to_topic:
            system_properties[RETRY_TOPIC] = origin
        fields = partial(
            send_fields,
            copy,
            producer_group=PRODUCER_GROUP,
            unique_id=message.message_id,
            born_time_ms=client.now_ms(),
            system_flag=system_flag,
            max_reconsume_times=None if self._to_topic else MAX_FAILURES,
        )
        queue, answer = await client.brokers.send_to_first(
            await self._queues(letter, copy), fields, data, system_properties
        )
        if not self._to_topic:
            await self._check_stored(letter, queue, SendMessageAnswer.from_fields(answer.fields))
        return copy.topic

    def _retry_topic(self, letter: DeadLetter, origin: str) -> str:
        """Return the topic from which the group gets its failed messages again."""
        if FIRST_POP_TIME in letter.message.properties or letter.group in self._popping:
            return self._client.namespace.popped_topic(origin, letter.group)
        return retry_topic(letter.group)

    async def _queues(self, letter: DeadLetter, copy: Message) -> Sequence[MessageQueue]:
        """Return the queues to try one after the other."""
        from rocketmq_py.producer.destinations import select_by_key

        try:
            queues = list((await self._client.routes.get(copy.topic)).queues_to_write())
        except TopicNotFoundError:
            if self._to_topic:
                raise
            # A broker creates the retry topic of a group with the first message in it.
            return [MessageQueue(copy.topic, letter.message.broker_name, 0)]
        if self._to_topic and (copy.sharding_key or copy.lite_topic):
            return [select_by_key(queues, copy)]
        self._client.rng.shuffle(queues)
        return list({queue.broker_name: queue for queue in queues}.values())

    async def _check_stored(self, letter: DeadLetter, queue: MessageQueue, answer: SendMessageAnswer) -> None:
        """Raise UnsupportedByBrokerError if the broker stored the message in the dead-letter topic again."""
        client = self._client
        address = client.routes.broker_address(queue.broker_name)
        position = OffsetMessageId.parse(answer.msg_id).commit_log_offset
        header = ViewMessageRequest(offset=position, topic=queue.topic)
        for message in await client.brokers.read(
            address, header, lambda data: decode_messages(data, queue.broker_name)
        ):
            if message.topic.startswith(DEAD_LETTER_PREFIX):
                raise UnsupportedByBrokerError(
                    f"broker {queue.broker_name} moved dead letter {letter.message.message_id} of group "
                    f"{letter.group!r} back to {message.topic}, as brokers do while members consume in "
                    "order. Stop the members for a minute, or resend to the original topic"
                )


def _copy(letter: DeadLetter, topic: str) -> Message:
    """Return the message to send. It has the letter's own fields, and properties that name the letter."""
    message = letter.message
    properties = dict(message.user_properties)
    earlier = properties.get(RESENT_OFFSET_MESSAGE_ID)
    letters = [*([earlier] if earlier else []), message.offset_message_id]
    properties |= {RESENT_FROM: message.topic, RESENT_OFFSET_MESSAGE_ID: ",".join(letters)}
    properties.pop(DEAD_LETTER_REASON, None)
    sharding_key = properties.pop(SHARDING_KEY, "")
    return Message(
        topic,
        message.body,
        message.tags,
        message.keys,
        properties,
        flag=message.flag,
        sharding_key=sharding_key,
        lite_topic=message.lite_topic,
    )
