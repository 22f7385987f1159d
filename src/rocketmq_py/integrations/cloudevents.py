"""CloudEvents as messages, in the binary and the structured content mode.

::

    message = to_binary(CloudEvent({"type": "order.placed", "source": "/shop"}, {"order": 7}), "Orders")
    event = from_message(message)

The mapping is that of the RocketMQ transport binding for CloudEvents, which the CloudEvents SDK for Java
implements: attributes are properties with the prefix ``CE_``, and ``CE_contenttype`` is the type of the body.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rocketmq_py.errors import ConfigurationError, InvalidMessageError
from rocketmq_py.message import Message, ReceivedMessage

try:
    from cloudevents.core.base import BaseCloudEvent
    from cloudevents.core.bindings.common import get_event_factory_for_version
    from cloudevents.core.formats.base import Format
    from cloudevents.core.formats.json import JSONFormat
except ImportError:
    raise ConfigurationError(
        "CloudEvents need an extra, with version 2 or newer of the package cloudevents: install "
        "rocketmq-py[cloudevents]"
    ) from None

__all__ = ["from_message", "to_binary", "to_structured"]

PREFIX = "CE_"
CONTENT_TYPE = "CE_contenttype"
STRUCTURED_MEDIA_TYPE = "application/cloudevents"
NO_DATA = b"\0"
"""The body of an event without data. RocketMQ has no empty bodies, and the SDK for Java sends this one."""

_CONTENT_TYPE_ATTRIBUTE = "datacontenttype"
_PARTITION_KEY_ATTRIBUTE = "partitionkey"
_REQUIRED_ATTRIBUTES = ("specversion", "id", "source", "type")


def to_binary(
    event: BaseCloudEvent,
    topic: str,
    event_format: Format | None = None,
    *,
    tags: str = "",
    keys: str | Iterable[str] = (),
) -> Message:
    """Return an event as a message in binary mode: attributes as properties, and the data as the body.

    Args:
        event: the event, of any version that the SDK has.
        topic: the target topic.
        event_format: encodes the data. None for JSON: a dict becomes JSON, a str UTF-8, and bytes stay.
        tags, keys: as in Message. An event with the extension ``partitionkey`` has it as its sharding key.

    Raises:
        InvalidMessageError: the message cannot be sent, for example because an attribute is empty. The text
            names the argument or property.
    """
    properties = {
        CONTENT_TYPE if name == _CONTENT_TYPE_ATTRIBUTE else f"{PREFIX}{name}": _attribute_text(value)
        for name, value in event.get_attributes().items()
        if value is not None
    }
    data = (event_format or JSONFormat()).write_data(event.get_data(), event.get_datacontenttype())
    return Message(topic, data or NO_DATA, tags, keys, properties, sharding_key=_sharding_key(event))


def to_structured(
    event: BaseCloudEvent,
    topic: str,
    event_format: Format | None = None,
    *,
    tags: str = "",
    keys: str | Iterable[str] = (),
) -> Message:
    """Return an event as a message in structured mode: attributes and data are encoded in the body.

    Args:
        event, topic, tags, keys: as in :func:`to_binary`.
        event_format: encodes the event. None for JSON.

    Raises:
        InvalidMessageError: the message cannot be sent. The text names the argument.
    """
    event_format = event_format or JSONFormat()
    properties = {CONTENT_TYPE: event_format.get_content_type()}
    body = event_format.write(event)
    return Message(topic, body, tags, keys, properties, sharding_key=_sharding_key(event))


def from_message(message: ReceivedMessage | Message, event_format: Format | None = None) -> BaseCloudEvent:
    """Return the event in a message, of either mode. ``CE_contenttype`` tells the mode.

    In binary mode, attributes other than ``time`` are texts, as the binding has no types. Properties without
    the prefix ``CE_`` are ignored.

    Args:
        message: the message.
        event_format: the format of structured events, and the decoder of data. None for JSON: data of a JSON
            content type, or without a content type, is parsed, other data is a str if it is UTF-8, else
            bytes.

    Raises:
        InvalidMessageError: the message is not a valid event, or is in another format. The text names the
            message and the mistake.
    """
    event_format = event_format or JSONFormat()
    attributes = _attributes(message.properties)
    content_type = attributes.get(_CONTENT_TYPE_ATTRIBUTE, "").lower()
    try:
        if isinstance(message, ReceivedMessage) and message.corruption is not None:
            raise InvalidMessageError(message.corruption)
        if content_type.startswith(STRUCTURED_MEDIA_TYPE):
            expected = event_format.get_content_type()
            if content_type.partition(";")[0].strip() != expected.partition(";")[0].strip().lower():
                raise InvalidMessageError(
                    f"its content type is {content_type}, and event_format decodes {expected}"
                )
            return event_format.read(None, message.body)
        return _from_binary(attributes, message.body, event_format)
    except Exception as error:  # a format may raise any error for a malformed body
        raise InvalidMessageError(f"{_describe(message)} is not a valid CloudEvent: {error}") from error


def _from_binary(attributes: dict[str, Any], body: bytes, event_format: Format) -> BaseCloudEvent:
    missing = [f"{PREFIX}{name}" for name in _REQUIRED_ATTRIBUTES if name not in attributes]
    if missing:
        raise InvalidMessageError(f"it has no property {', '.join(missing)}")
    if "time" in attributes:
        attributes["time"] = datetime.fromisoformat(attributes["time"])
    data = None
    if body != NO_DATA:
        data = event_format.read_data(body, attributes.get(_CONTENT_TYPE_ATTRIBUTE))
    return get_event_factory_for_version(attributes["specversion"])(attributes, data)


def _attributes(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes among a message's properties, by their names in lower case."""
    attributes = {
        name[len(PREFIX) :].lower(): value
        for name, value in properties.items()
        if name.upper().startswith(PREFIX)
    }
    if "contenttype" in attributes:
        attributes[_CONTENT_TYPE_ATTRIBUTE] = attributes.pop("contenttype")
    return attributes


def _attribute_text(value: object) -> str:
    """Return the canonical text of an attribute's value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _sharding_key(event: BaseCloudEvent) -> str:
    key = event.get_extension(_PARTITION_KEY_ATTRIBUTE)
    return "" if key is None else _attribute_text(key)


def _describe(message: ReceivedMessage | Message) -> str:
    if isinstance(message, ReceivedMessage):
        return f"message {message.message_id} of topic {message.topic!r}"
    return f"a message of topic {message.topic!r}"
