"""Looks up messages by id or key. Java: ``MQAdminImpl``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.host_lookup import addresses_of, has_host_name
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BrokerError, ConfigurationError, ProtocolError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol.headers import QueryMessageRequest, ViewMessageRequest
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.consumer")

END_OF_TIME_MS = 2**63 - 1
NO_MESSAGE_REMARK = "can not find message"
"""The start of a broker's remark if there is no message with an id. Its error code has many causes."""
INDEX_STEP_MS = 1000
"""The resolution of times in the index of a broker. Times are rounded down."""
MAX_WITH_UNIQUE_ID = 32
"""The maximum number of messages that a query for a unique id requests from each broker, as in Java."""


async def find_by_offset_id(
    client: ClientCore, offset_message_id: str, topic: str | None
) -> ReceivedMessage | None:
    """Return the message with an offset message id, or None. See ``admin.messages.get``."""
    parsed = OffsetMessageId.parse(offset_message_id)
    if topic is None and not parsed.has_port:
        raise ConfigurationError(
            f"{offset_message_id} is the message id of a client, not an offset_message_id of a broker. Pass "
            "the topic of the message, too: topic=, or -t TOPIC on the command line"
        )
    info = await client.name_servers.cluster_with_brokers()
    brokers = [
        (name, address)
        for name, broker in info.broker_addr_table.items()
        for address in broker.broker_addrs.values()
    ]
    for name, address in brokers:
        if parsed.is_of(address):
            return await _view(client, parsed, topic, name, address)
    return await _find_on_named_brokers(client, parsed, topic, brokers)


async def _find_on_named_brokers(
    client: ClientCore, message_id: OffsetMessageId, topic: str | None, brokers: Iterable[tuple[str, str]]
) -> ReceivedMessage | None:
    """Ask the brokers that are registered by host name, of which one may have issued an id.

    An id holds the IP address that the broker has resolved its name to. Java dials that address. Ids may come
    from anyone, so this client only asks brokers of the cluster: those whose name has the address, or
    otherwise those with the same port, since a name may have other addresses here, as it does behind a NAT.

    Raises ConfigurationError if no broker of the cluster can have issued it.
    """
    named = [(name, at) for name, at in brokers if message_id.has_port_of(at) and has_host_name(at)]
    if client.settings.proxy is None:  # otherwise the proxy resolves names
        timeout = client.settings.request_timeout
        for name, address in named:
            if any(map(message_id.is_of, await addresses_of(address, timeout=timeout))):
                return await _view(client, message_id, topic, name, address)
    failure: RocketMQError | None = None
    for name, address in named:
        try:
            message = await _view(client, message_id, topic, name, address)
        except ProtocolError:
            continue  # no message begins at this position
        except RocketMQError as error:
            failure = error
            continue
        if message is not None and message.offset_message_id == str(message_id):
            return message
    if failure is not None:
        raise failure
    also = f", and {', '.join([at for _, at in named])} does not have the message" if named else ""
    raise ConfigurationError(
        f"the message id contains {message_id.broker_address}, which is not a broker of this cluster{also}. "
        "Pass an offset_message_id of this cluster"
    )


async def _view(
    client: ClientCore, message_id: OffsetMessageId, topic: str | None, broker_name: str, address: str
) -> ReceivedMessage | None:
    """Return the message at the position of an id in a broker's commit log, or None."""
    header = ViewMessageRequest(offset=message_id.commit_log_offset, topic=topic)
    try:
        messages = await client.brokers.read(address, header, lambda data: decode_messages(data, broker_name))
    except BrokerError as error:
        if (error.remark or "").startswith(NO_MESSAGE_REMARK):
            return None
        raise
    for message in messages:
        if message.commit_log_offset == message_id.commit_log_offset:
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
    client: ClientCore, topic: str, key: str, *, count: int, begin_ms: int, end_ms: int
) -> Lookup:
    """Query the newest messages of a topic with a key. See ``admin.messages.find``."""
    header = QueryMessageRequest(
        topic=topic,
        key=key,
        max_num=count,
        begin_timestamp=max(begin_ms - INDEX_STEP_MS, 0),
        end_timestamp=end_ms,
    )

    def matches(message: ReceivedMessage) -> bool:
        return key in message.keys and begin_ms <= message.store_time_ms < end_ms

    found = await _query(client, header, matches)
    return attrs.evolve(found, messages=found.messages[-count:])


async def find_by_unique_id(client: ClientCore, topic: str, message_id: str) -> ReceivedMessage | None:
    """Return the first message of a topic with a unique id, or None. See ``admin.messages.get``."""
    found = await look_up_unique_id(client, topic, message_id, begin_ms=0)
    if found.failures and not found.messages:
        raise next(iter(found.failures.values()))
    for error in found.failures.values():
        logger.warning("incomplete lookup of %s: a broker failed: %s", f"{message_id} in {topic}", error)
    return found.messages[0] if found.messages else None


async def look_up_unique_id(
    client: ClientCore, topic: str, message_id: str, *, begin_ms: int, count: int = MAX_WITH_UNIQUE_ID
) -> Lookup:
    """Query the newest messages of a topic with a unique id that were stored at ``begin_ms`` or later.

    Each broker returns at most ``count``.
    """
    header = QueryMessageRequest(
        topic=topic,
        key=message_id,
        max_num=count,
        begin_timestamp=max(begin_ms - INDEX_STEP_MS, 0),
        end_timestamp=END_OF_TIME_MS,
    )
    return await _query(client, header, lambda message: message.message_id == message_id)


async def _query(
    client: ClientCore, header: QueryMessageRequest, matches: Callable[[ReceivedMessage], bool]
) -> Lookup:
    """Query all brokers of a topic concurrently. Return the messages that match.

    The request has no field for the kind of key, because 4.x brokers omit that field when they verify a
    signature. So a query finds messages by any of their keys and by their unique id.
    """
    route = await client.routes.find(header.topic)
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


async def _ask(client: ClientCore, broker_name: str, header: QueryMessageRequest) -> list[ReceivedMessage]:
    address = client.routes.broker_address(broker_name, any_id=True)
    try:
        return await client.brokers.read(address, header, lambda data: decode_messages(data, broker_name))
    except BrokerError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        raise
