"""Looks up messages by id or key. Java: ``MQAdminImpl``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from rocketmq_py.client.client import Client
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BrokerError, ConfigurationError, RocketMQError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol.headers import QueryMessageRequest, ViewMessageRequest
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = logging.getLogger("rocketmq_py.consumer")

END_OF_TIME_MS = 2**63 - 1
NO_MESSAGE_REMARK = "can not find message"
"""The start of a broker's remark if there is no message with an id. Its error code has many causes."""
INDEX_STEP_MS = 1000
"""The resolution of times in the index of a broker. Times are rounded down."""
MAX_WITH_UNIQUE_ID = 32
"""The maximum number of messages that a query for a unique id requests from each broker, as in Java."""


async def find_by_offset_id(
    client: Client, offset_message_id: str, topic: str | None
) -> ReceivedMessage | None:
    """Return the message with an offset message id, or None. See ``Reader.message``."""
    parsed = OffsetMessageId.parse(offset_message_id)
    broker_name, address = await _broker_of(client, parsed)
    header = ViewMessageRequest(offset=parsed.commit_log_offset, topic=topic)
    try:
        answer = await client.brokers.call(address, header)
    except BrokerError as error:
        if (error.remark or "").startswith(NO_MESSAGE_REMARK):
            return None
        raise
    for message in client.namespace.unwrap_messages(decode_messages(answer.body, broker_name)):
        if message.commit_log_offset == parsed.commit_log_offset:
            return message
    return None


@attrs.frozen
class Lookup:
    """The result of a query to several brokers.

    Attributes:
        messages: the messages, oldest first.
        failures: the errors of the brokers that failed, by broker name.
    """

    messages: tuple[ReceivedMessage, ...]
    failures: Mapping[str, RocketMQError]


async def look_up_key(
    client: Client, topic: str, key: str, *, count: int, begin_ms: int, end_ms: int
) -> Lookup:
    """Query the newest messages of a topic with a key. See ``Reader.find``."""
    header = QueryMessageRequest(
        topic=topic,
        key=key,
        max_num=count,
        begin_timestamp=max(begin_ms - INDEX_STEP_MS, 0),
        end_timestamp=end_ms,
    )

    def matches(message: ReceivedMessage) -> bool:
        return key in message.keys and begin_ms <= message.store_time_ms <= end_ms

    found = await _query(client, header, matches)
    return attrs.evolve(found, messages=found.messages[-count:])


async def find_by_key(
    client: Client, topic: str, key: str, *, count: int, begin_ms: int, end_ms: int
) -> list[ReceivedMessage]:
    """Return the newest messages of a topic with a key. See ``Reader.find``."""
    found = await look_up_key(client, topic, key, count=count, begin_ms=begin_ms, end_ms=end_ms)
    return list(_messages_of(found, f"{key} in {topic}"))


async def find_by_unique_id(client: Client, topic: str, message_id: str) -> ReceivedMessage | None:
    """Return the first message of a topic with a unique id, or None. See ``Reader.find_message``."""
    header = QueryMessageRequest(
        topic=topic,
        key=message_id,
        max_num=MAX_WITH_UNIQUE_ID,
        begin_timestamp=0,
        end_timestamp=END_OF_TIME_MS,
    )
    found = await _query(client, header, lambda message: message.message_id == message_id)
    messages = _messages_of(found, f"{message_id} in {topic}")
    return messages[0] if messages else None


def _messages_of(found: Lookup, query: str) -> tuple[ReceivedMessage, ...]:
    """Return the messages and log the failures. Without messages, raise the first failure.

    Args:
        found: the result.
        query: describes the query, for log lines.
    """
    if found.failures and not found.messages:
        raise next(iter(found.failures.values()))
    for error in found.failures.values():
        logger.warning("incomplete lookup of %s: a broker failed: %s", query, error)
    return found.messages


async def _broker_of(client: Client, message_id: OffsetMessageId) -> tuple[str, str]:
    """Return the name and address of the broker that issued an id.

    Raises ConfigurationError if the broker is not in this cluster.
    """
    info = await client.name_servers.cluster_info()
    for name, broker in info.broker_addr_table.items():
        for address in broker.broker_addrs.values():
            if message_id.is_of(address):
                return name, address
    raise ConfigurationError(
        f"the message id contains {message_id.broker_address}, which is not a broker of this cluster. Pass "
        "an offset_message_id of this cluster"
    )


async def _query(
    client: Client, header: QueryMessageRequest, matches: Callable[[ReceivedMessage], bool]
) -> Lookup:
    """Query all brokers of a topic concurrently. Return the messages that match.

    The request has no field for the kind of key, because 4.x brokers omit that field when they verify a
    signature. So a query finds messages by any of their keys and by their unique id.
    """
    route = await client.routes.get(header.topic)
    found: list[ReceivedMessage] = []
    failures: dict[str, RocketMQError] = {}

    async def ask(broker_name: str) -> None:
        try:
            found.extend(await _ask(client, broker_name, header))
        except RocketMQError as error:
            failures[broker_name] = error

    async with open_nursery() as nursery:
        for broker_name in route.brokers:
            nursery.start_soon(ask, broker_name)
    # Brokers compare only hashes of topic and key, so they return other messages, too.
    wanted = [message for message in found if message.topic == header.topic and matches(message)]
    wanted.sort(key=lambda message: message.store_time_ms)
    return Lookup(tuple(wanted), dict(sorted(failures.items())))


async def _ask(client: Client, broker_name: str, header: QueryMessageRequest) -> list[ReceivedMessage]:
    address = client.routes.broker_address(broker_name, any_id=True)
    try:
        answer = await client.brokers.call(address, header)
    except BrokerError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        raise
    return client.namespace.unwrap_messages(decode_messages(answer.body, broker_name))
