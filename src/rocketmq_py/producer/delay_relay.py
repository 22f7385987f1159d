"""Redirects timed messages to a relay if the brokers cannot delay them; see :mod:`rocketmq_py.relay`."""

from __future__ import annotations

from rocketmq_py.client.core import ClientCore
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message
from rocketmq_py.producer.final_message import check_message
from rocketmq_py.producer.request_builder import sends_start_deliver_time
from rocketmq_py.producer.request_router import RequestRouter
from rocketmq_py.producer.settings import ProducerSettings

MAX_DELAY_SECONDS = 366 * 24 * 3600
"""The longest delay: a leap year."""

TARGET = "RELAY_TOPIC"
"""On messages in the buffer topic: the topic to deliver to."""
DUE = "RELAY_DUE_MS"
"""On messages in the buffer topic: the delivery time, epoch milliseconds."""
MESSAGE_ID = "RELAY_MESSAGE_ID"
"""On messages that a relay delivers: their id in the buffer topic, the same on each redelivery."""
CANCEL = "RELAY_CANCEL"
"""On messages in the buffer topic that cancel a delivery: the id of the message to cancel."""
PROGRESS = "RELAY_PROGRESS"
"""On messages in which a relay records its progress: an offset and a delivery time."""
RELAY_PROPERTIES = frozenset({TARGET, DUE, MESSAGE_ID, CANCEL, PROGRESS})
"""The properties that only relays and producers may set."""


def wait_in(buffer_topic: str, message: Message, due_ms: int) -> Message:
    """Return the message for the buffer topic that makes a relay deliver ``message`` at ``due_ms``.

    Raises:
        InvalidMessageError: it is for the buffer topic itself, has a delay level, or has a property of the
            relay.
    """
    if message.topic == buffer_topic:
        raise InvalidMessageError(
            f"topic {buffer_topic!r} is the buffer topic of the relay; use the topic to deliver to"
        )
    if message.delay_level:
        raise InvalidMessageError("a relay does not support delay_level; use delay or deliver_at_ms")
    if reserved := RELAY_PROPERTIES.intersection(message.properties):
        raise InvalidMessageError(f"property {min(reserved)!r} is reserved for relays; use another name")
    return Message(
        buffer_topic,
        message.body,
        message.tags,
        message.keys,
        {**message.properties, TARGET: message.topic, DUE: str(due_ms)},
        flag=message.flag,
        wait_store_ok=message.wait_store_ok,
        sharding_key=message.sharding_key,
    )


class DelayRelay:
    """Redirects timed messages to the buffer topic of a relay, unless the brokers support them.

    Args:
        buffer_topic: the buffer topic.
        client: provides the time.
        router: asks whether all brokers of a topic support timed messages.
        timeout: seconds until they must have answered.
    """

    def __init__(self, buffer_topic: str, client: ClientCore, router: RequestRouter, timeout: float) -> None:
        self._buffer_topic = buffer_topic
        self._client = client
        self._router = router
        self._timeout = timeout

    def concerns(self, message: Message) -> bool:
        """Whether :meth:`redirect` may return another message than this."""
        return isinstance(message, Message) and message.is_timed

    async def redirect(self, message: Message, queue: object) -> Message:
        """Return the message to send: ``message`` itself, or one for the buffer topic.

        Args:
            message: the message.
            queue: the queue or selector that the caller passed. A redirected message cannot have one.

        Raises:
            InvalidMessageError: a relay cannot deliver the message.
            RocketMQError: as a send, if the brokers could not be asked for their versions.
        """
        check_message(message)
        if not message.is_timed or await self._router.supports_timed(message.topic, self._timeout):
            return message
        if queue is not None:
            raise InvalidMessageError("a message that a relay delivers cannot have a queue; leave out queue")
        now_ms = self._client.now_ms()
        due_ms = message.deliver_at_ms or now_ms + round(message.delay * 1000)
        if due_ms - now_ms > MAX_DELAY_SECONDS * 1000:
            raise InvalidMessageError(
                f"a relay delays messages by at most {MAX_DELAY_SECONDS // 86400} days; "
                f"this one is due in {(due_ms - now_ms) // 86_400_000} days"
            )
        return wait_in(self._buffer_topic, message, due_ms)


def delay_relay(config: ProducerSettings, client: ClientCore, router: RequestRouter) -> DelayRelay | None:
    """Return the relay of the setting ``delay_relay``, or None if it is not set, or not needed."""
    if config.delay_relay is None or sends_start_deliver_time(config, client):
        return None
    return DelayRelay(config.delay_relay, client, router, config.send_timeout)
