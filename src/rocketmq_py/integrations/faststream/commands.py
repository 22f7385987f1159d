"""Messages to publish: responses of handlers, and the commands that FastStream's middlewares see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
from faststream._internal.constants import EMPTY
from faststream.response import BatchPublishCommand, PublishCommand, PublishType, Response

from rocketmq_py.arguments import Duration, seconds, seconds_or_none
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.message.sent import to_keys

NO_MESSAGE: Any = EMPTY
"""The body of an empty batch. None is a message."""


@attrs.frozen(kw_only=True)
class SendOptions:
    """The options of a message besides its body and headers, as in ``rocketmq_py.Message``.

    Args:
        tags: the tag by which consumers filter.
        keys: business keys. A str is split at blanks.
        sharding_key: messages with the same key go to the same queue.
        delay: seconds until delivery.
        priority: the priority, for topics of type PRIORITY.
    """

    tags: str = ""
    keys: tuple[str, ...] = attrs.field(default=(), converter=to_keys)
    sharding_key: str = ""
    delay: float = attrs.field(default=0.0, converter=seconds)
    priority: int | None = None

    def or_else(self, defaults: SendOptions) -> SendOptions:
        """Return these options, with the defaults where one of these is not set."""
        return SendOptions(
            tags=self.tags or defaults.tags,
            keys=self.keys or defaults.keys,
            sharding_key=self.sharding_key or defaults.sharding_key,
            delay=self.delay or defaults.delay,
            priority=defaults.priority if self.priority is None else self.priority,
        )


class RocketMQResponse(Response):
    """A handler's result with options of the message, or a message of ``publish_batch`` with its own options.

    A reply to a request has no tags, keys, sharding key, delay or priority. Those given here are ignored.

    Args:
        body: the body.
        headers: the message's own properties. Values are converted to text.
        correlation_id: the correlation id. None keeps that of the processed message.
        tags: the tag by which consumers filter.
        keys: business keys. A str is split at blanks.
        sharding_key: messages with the same key go to the same queue.
        delay: seconds until delivery.
        priority: the priority, for topics of type PRIORITY.
    """

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        tags: str = "",
        keys: str | Iterable[str] = (),
        sharding_key: str = "",
        delay: Duration = 0.0,
        priority: int | None = None,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.options: SendOptions = SendOptions(
            tags=tags, keys=keys, sharding_key=sharding_key, delay=delay, priority=priority
        )

    def as_publish_command(self) -> RocketMQPublishCommand:
        """Return the command that publishes it."""
        return RocketMQPublishCommand(
            self.body,
            options=self.options,
            headers=self.headers,
            correlation_id=self.correlation_id,
            _publish_type=PublishType.PUBLISH,
        )


class RocketMQPublishCommand(BatchPublishCommand):
    """A message, or a batch, to publish.

    Attributes:
        options: the options of the message, or of those in the batch that have none of their own.
        timeout: seconds for the send or, of a request, for the reply too. None for the producer's setting.
        request: the received request to which this replies.
    """

    def __init__(
        self,
        *messages: Any,
        topic: str = "",
        options: SendOptions | None = None,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: Duration | None = None,
        _publish_type: PublishType,
    ) -> None:
        super().__init__(
            *(messages or (NO_MESSAGE,)),
            destination=topic,
            headers=dict(headers or {}),
            correlation_id=correlation_id,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.options: SendOptions = SendOptions() if options is None else options
        self.timeout: float | None = seconds_or_none(timeout)
        self.request: ReceivedMessage | None = None
        self.extra_bodies: tuple[Any, ...] = self.extra_bodies
        self.body: Any = self.body

    @property
    def batch_bodies(self) -> tuple[Any, ...]:
        """The messages of the batch. Unlike FastStream's own, one of them may be None."""
        return () if self.body is NO_MESSAGE else (self.body, *self.extra_bodies)

    @batch_bodies.setter
    def batch_bodies(self, value: Sequence[Any]) -> None:
        self.body, *more = value or (NO_MESSAGE,)
        self.extra_bodies = tuple(more)

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> RocketMQPublishCommand:
        """Return the command of a handler's result. With ``batch``, its items become messages."""
        messages = _items(cmd.body) if batch else (cmd.body,)
        if isinstance(cmd, cls):
            cmd.batch_bodies = messages
            return cmd
        return cls(
            *messages,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )


def _items(result: Any) -> tuple[Any, ...]:
    """Return the messages of a handler's result: the items of a list, none for None, else the result."""
    if isinstance(result, Sequence) and not isinstance(result, str | bytes | bytearray):
        return tuple(result)
    return () if result is None else (result,)
