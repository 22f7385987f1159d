"""Sending to a relay what brokers cannot delay: see :mod:`rocketmq_py.relay`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from rocketmq_py.client.client import Client
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message
from rocketmq_py.producer.config import ProducerConfig
from rocketmq_py.producer.request_builder import check_message

MAX_DELAY_SECONDS = 366 * 24 * 3600
"""A year, which may be a leap year: no message waits longer."""

TARGET = "RELAY_TOPIC"
DUE = "RELAY_DUE_MS"
MESSAGE_ID = "RELAY_MESSAGE_ID"
"""On what a relay delivers: the id that the message had in the buffer topic, the same on every repeat."""
CANCEL = "RELAY_CANCEL"
PROGRESS = "RELAY_PROGRESS"
RELAY_PROPERTIES = frozenset({TARGET, DUE, MESSAGE_ID, CANCEL, PROGRESS})
"""The properties that relays and producers set by themselves."""


def wait_in(buffer_topic: str, message: Message, due_ms: int) -> Message:
    """Return the message for the buffer topic that has a relay deliver ``message`` at ``due_ms``.

    Raises:
        InvalidMessageError: it is for the buffer topic itself, or has a delay level.
    """
    if message.topic == buffer_topic:
        raise InvalidMessageError(f"topic {buffer_topic!r} is the relay's own: name the topic to deliver to")
    if message.delay_level:
        raise InvalidMessageError("a relay knows no delay levels: give delay or deliver_at_ms")
    if reserved := RELAY_PROPERTIES.intersection(message.properties):
        raise InvalidMessageError(f"property {min(reserved)!r} is the relay's own; choose another name")
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
    """Has messages with an exact time wait in a buffer topic, where brokers cannot keep it themselves.

    Args:
        buffer_topic: where they wait.
        client: tells the time.
        keeps_times: asks whether all brokers of a topic keep exact times.
    """

    def __init__(
        self, buffer_topic: str, client: Client, keeps_times: Callable[[str], Awaitable[bool]]
    ) -> None:
        self._buffer_topic = buffer_topic
        self._client = client
        self._keeps_times = keeps_times

    async def take(self, message: Message, queue: object) -> Message:
        """Return what to send for a message: itself, or, if it has an exact time, one for the buffer topic.

        Raises:
            InvalidMessageError: a relay cannot do what is wanted.
            others: as a send, where brokers could not be asked for their versions.
        """
        check_message(message)
        if not message.is_timed or await self._keeps_times(message.topic):
            return message
        if queue is not None:
            raise InvalidMessageError("a message that waits at a relay goes to a queue of the relay's choice")
        now_ms = self._client.now_ms()
        due_ms = message.deliver_at_ms or now_ms + round(message.delay * 1000)
        if due_ms - now_ms > MAX_DELAY_SECONDS * 1000:
            raise InvalidMessageError(
                f"a relay keeps messages for {MAX_DELAY_SECONDS // 86400} days at the most"
            )
        return wait_in(self._buffer_topic, message, due_ms)


def delay_relay(
    config: ProducerConfig, client: Client, keeps_times: Callable[..., Awaitable[bool]]
) -> DelayRelay | None:
    """Return the relay that a producer is told of, if it is told of one."""
    if config.delay_relay is None:
        return None
    return DelayRelay(config.delay_relay, client, partial(keeps_times, timeout=config.send_timeout))
