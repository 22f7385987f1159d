"""Messages to send. Their arguments are checked on creation."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, ClassVar, Self, TypedDict, Unpack

import attrs

from rocketmq_py.arguments import Duration, epoch_mistake, seconds
from rocketmq_py.errors import ConfigurationError, InvalidMessageError
from rocketmq_py.names import NOT_SENDABLE_TOPICS, check_lite_topic, check_topic
from rocketmq_py.properties import NO_PROPERTIES, FrozenProperties
from rocketmq_py.property_names import (
    CONTENT_TYPE,
    KEY_SEPARATOR,
    SHARDING_KEY,
    SYSTEM_PROPERTIES,
    split_keys,
)

if TYPE_CHECKING:
    from rocketmq_py.codecs import Codec

DELAY_LEVEL_NAMES = (
    "1s", "5s", "10s", "30s", "1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m", "10m", "20m", "30m",
    "1h", "2h",
)  # fmt: skip
"""The names of delay levels 1 to 18. Java: ``messageDelayLevel``, which brokers may configure differently."""
MAX_DELAY_LEVEL = len(DELAY_LEVEL_NAMES)
_EMPTY, _ZERO, _NO_DELAY = "", 0, 0.0
_NO_KEYS: tuple[str, ...] = ()
"""The default arguments of :class:`Message`, which are compared by identity."""
_MAX_TIME_MS = 2**63 - 1
"""Brokers read times and delays as signed 64-bit numbers of milliseconds."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _to_bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidMessageError(f"body must be bytes, not {type(value).__name__}; encode it, or use Message.of")


def to_keys(value: object) -> tuple[str, ...]:
    """Return the keys in the argument ``keys`` of a message.

    Raises:
        InvalidMessageError: ``value`` is neither a str nor an iterable of str, or a key cannot be sent.
    """
    if isinstance(value, str):
        _check_text("keys", value)
        if KEY_SEPARATOR in value:
            return split_keys(value)
        return (value,) if value else _NO_KEYS
    if not isinstance(value, Iterable):
        raise InvalidMessageError(f"keys must be a str or several str, not {type(value).__name__}")
    keys = tuple(value)
    for key in keys:
        if not isinstance(key, str) or not key or KEY_SEPARATOR in key:
            raise InvalidMessageError(f"key {key!r} must be a str that is not empty and has no blank")
    _check_text("keys", KEY_SEPARATOR.join(keys))
    return keys


def _to_delay_level(value: int | str) -> int:
    if not isinstance(value, str):
        return _to_int("delay_level", value)
    if value not in DELAY_LEVEL_NAMES:
        raise InvalidMessageError(
            f"delay_level {value!r} is not one of {' '.join(DELAY_LEVEL_NAMES)}; brokers 5.x support "
            "any other delay: use delay"
        )
    return DELAY_LEVEL_NAMES.index(value) + 1


def _to_int(name: str, value: object) -> int:
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]  # raises TypeError for anything else
        except TypeError:
            pass
    raise InvalidMessageError(f"{name} must be an int, not {type(value).__name__}")


# Fast path: avoids checking a topic's name for each message, saves 14 % of batches
# (timeit of Message with and without).
_valid_topics: set[object] = set()
_MAX_VALID_TOPICS = 4096


def _check_topic(topic: object) -> None:
    if not isinstance(topic, str):
        raise InvalidMessageError(f"topic must be a str, not {type(topic).__name__}")
    try:
        check_topic(topic)
    except ConfigurationError as error:
        raise InvalidMessageError(str(error)) from None
    if topic in NOT_SENDABLE_TOPICS:
        raise InvalidMessageError(f"topic {topic!r} is RocketMQ's own; choose another topic")
    if len(_valid_topics) >= _MAX_VALID_TOPICS:
        _valid_topics.clear()
    _valid_topics.add(topic)


class MessageOptions(TypedDict, total=False):
    """The keyword arguments of :class:`Message`."""

    flag: int
    delay_level: int | str
    delay: Duration
    deliver_at_ms: int
    wait_store_ok: bool
    sharding_key: str
    priority: int | None
    lite_topic: str


@attrs.frozen(slots=False, init=False)
class Message:
    r"""A message to be sent. Java: ``org.apache.rocketmq.common.message.Message``.

    Args:
        topic: the target topic: letters, digits and ``% | _ -``, at most 127 characters.
        body: the payload, bytes-like and not empty. The producer's configuration limits its size.
        tags: the tag by which consumers filter. Filters expect one tag per message.
        keys: business keys for later lookups: ``["order-7", "customer-3"]``. A str is split at blanks, as
            brokers do, so ``"order-7"`` is one key and ``"order-7 customer-3"`` are two. The attribute is
            always a tuple.
        properties: the user's own properties, which are copied. Their names must not be RocketMQ's own. Names
            and values must not contain ``\x01`` or ``\x02``, and must not be empty, because brokers drop a
            property without a value.
        flag: a number for the application's own use. Brokers ignore it.
        delay_level: 0 for no delay, or a level from 1 to 18, or the level's name in the default configuration
            of brokers: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h.
        delay: seconds until delivery, exact to the millisecond. Only brokers 5.x.
        deliver_at_ms: the delivery time, epoch milliseconds. A time in the past means immediately. Only
            brokers 5.x.
        wait_store_ok: whether the broker answers only after the flush and replication that it is configured
            for. Java: WAIT.
        sharding_key: messages with the same key go to the same queue, while the topic's queues do not change.
            It is the queue that RocketMQ's proxy chooses (there: the message group). The key is sent as the
            property ``__SHARDINGKEY``. A send with a ``queue`` ignores the key. ``SelectByHash("order-7")``
            chooses like Java's ``SelectMessageQueueByHash``.
        priority: the priority, or None. Brokers from 5.4.0 on store the message in the queue of this number,
            or in the last one. Pop consumers of a topic of type PRIORITY receive the highest priority first.
            Older brokers ignore it. A message with a priority has no sharding key and no delay, and cannot be
            in a batch. Java: ``Message.setPriority``.
        lite_topic: the lite topic below ``topic``, a topic of type LITE: 1 to 64 letters, digits, ``_`` and
            ``-``. It needs no creation. Only brokers from 5.5.0 on. A message with a lite topic has no
            priority, no sharding key and no delay, and is not sent in a batch, in a transaction, or to a
            chosen queue. See LiteTopicPushConsumer. Java: ``__LITE_TOPIC``.

    Raises:
        InvalidMessageError: an argument, a property, the tags or the keys are not allowed. The text names it.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = attrs.field(default=NO_PROPERTIES, hash=False)  # a dict has no hash
    flag: int = attrs.field(default=0, kw_only=True)
    delay_level: int = attrs.field(default=0, kw_only=True)
    delay: float = attrs.field(default=0.0, kw_only=True)
    deliver_at_ms: int = attrs.field(default=0, kw_only=True)
    wait_store_ok: bool = attrs.field(default=True, kw_only=True)
    sharding_key: str = attrs.field(default="", kw_only=True)
    priority: int | None = attrs.field(default=None, kw_only=True)
    lite_topic: str = attrs.field(default="", kw_only=True)

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        tags: str = "",
        keys: str | Iterable[str] = _NO_KEYS,
        properties: Mapping[str, str] = NO_PROPERTIES,
        *,
        flag: int = 0,
        delay_level: int | str = 0,
        delay: Duration = _NO_DELAY,
        deliver_at_ms: int = 0,
        wait_store_ok: bool = True,
        sharding_key: str = "",
        priority: int | None = None,
        lite_topic: str = "",
    ) -> None:
        try:
            is_valid = topic in _valid_topics
        except TypeError:  # not hashable
            is_valid = False
        if not is_valid:
            _check_topic(topic)
        if type(body) is not bytes:
            body = _to_bytes(body)
        if not body:
            raise InvalidMessageError("the body is empty; brokers refuse such a message")
        fields = self.__dict__
        fields["topic"] = topic
        fields["body"] = body
        # Fast path: avoids checking and storing eleven arguments that have their default, saves 10 % of
        # batches (timeit of Message with and without). The class has the defaults as attributes.
        if (
            tags is _EMPTY
            and keys is _NO_KEYS
            and properties is NO_PROPERTIES
            and flag is _ZERO
            and delay_level is _ZERO
            and delay is _NO_DELAY
            and deliver_at_ms is _ZERO
            and wait_store_ok is True
            and sharding_key is _EMPTY
            and priority is None
            and lite_topic is _EMPTY
        ):
            return
        if keys is not _NO_KEYS:
            keys = to_keys(keys)
        if type(delay_level) is not int or delay_level:
            delay_level = _to_delay_level(delay_level)
        fields["_is_bare"] = False
        fields["tags"] = tags
        fields["keys"] = keys
        fields["properties"] = properties
        fields["flag"] = flag
        fields["delay_level"] = delay_level
        fields["delay"] = delay
        fields["deliver_at_ms"] = deliver_at_ms
        fields["wait_store_ok"] = wait_store_ok
        fields["sharding_key"] = sharding_key
        fields["priority"] = priority
        fields["lite_topic"] = lite_topic
        if delay_level or delay is not _NO_DELAY or deliver_at_ms is not _ZERO:
            self._check_delay()
        if type(flag) is not int or flag:
            self._check_flag()
        if wait_store_ok is not True and wait_store_ok is not False:
            raise InvalidMessageError(f"wait_store_ok must be a bool, not {type(wait_store_ok).__name__}")
        if tags != "":
            _check_text("tags", tags)
        if properties is not NO_PROPERTIES:
            fields["properties"] = properties = _checked_properties(properties)
        if sharding_key != "":
            _check_text("sharding_key", sharding_key)
            if SHARDING_KEY in properties:
                raise InvalidMessageError(
                    f"sharding_key and the property {SHARDING_KEY!r} exclude each other: give one"
                )
        if priority is not None:
            self._check_priority()
        if lite_topic != "":
            self._check_lite_topic()

    @classmethod
    def of(
        cls,
        topic: str,
        value: object,
        tags: str = "",
        keys: str | Iterable[str] = _NO_KEYS,
        properties: Mapping[str, str] = NO_PROPERTIES,
        *,
        codec: Codec | None = None,
        **options: Unpack[MessageOptions],
    ) -> Self:
        """Return a message whose body is a value, encoded by a codec: ``Message.of("Orders", order)``.

        The property ``contentType`` names the format, as in rocketmq-spring. Consumers decode the body with
        an annotated handler (``def handle(order: Order)``), or with ``ReceivedMessage.decode``.

        Args:
            topic: the target topic.
            value: a dataclass, attrs, msgspec.Struct or pydantic object, a container of these, or a plain
                value such as a dict.
            tags: as in Message.
            keys: as in Message.
            properties: as in Message, without ``contentType``.
            codec: ``rocketmq_py.codecs.MESSAGEPACK``, or an object with the methods of
                ``rocketmq_py.codecs.Codec``. None for JSON.
            **options: the keyword arguments of Message.

        Raises:
            InvalidMessageError: the codec cannot encode the value, or another argument is not allowed.
            ConfigurationError: ``codec`` is not a codec.
        """
        from rocketmq_py.codecs import JSON, encode_body  # msgspec and codecs are loaded on first use

        codec = JSON if codec is None else codec
        try:
            body = encode_body(value, codec)
        except ConfigurationError:
            raise
        except ValueError as error:
            raise InvalidMessageError(str(error)) from error.__cause__
        _check_mapping(properties)
        if CONTENT_TYPE in properties:
            raise InvalidMessageError(
                f"the codec sets the property {CONTENT_TYPE!r}; remove it from properties"
            )
        return cls(
            topic,
            body,
            tags,
            keys,
            {**properties, CONTENT_TYPE: codec.content_type},
            **options,
        )

    _is_bare: ClassVar[bool] = True  # False on messages that store more
    """Whether the message has only a topic and a body."""

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def is_timed(self) -> bool:
        """Whether it has an exact delivery time, which only brokers 5.x support."""
        return bool(self.delay or self.deliver_at_ms)

    def _check_flag(self) -> None:
        flag = _to_int("flag", self.flag)
        if not -(2**31) <= flag < 2**31:
            raise InvalidMessageError(f"flag {flag} does not fit 32 bits")
        self._set("flag", flag)

    def _check_priority(self) -> None:
        priority = _to_int("priority", self.priority)
        if not 0 <= priority < 2**31:
            raise InvalidMessageError(f"priority is {priority}; it must be 0 or more, and fit 32 bits")
        if self.sharding_key or self.delay_level or self.is_timed:
            raise InvalidMessageError("a message with a priority can have neither a sharding key nor a delay")
        self._set("priority", priority)

    def _check_lite_topic(self) -> None:
        try:
            check_lite_topic(self.lite_topic)
        except ConfigurationError as error:
            raise InvalidMessageError(str(error)) from None
        has_key = self.sharding_key or SHARDING_KEY in self.properties
        if has_key or self.priority is not None or self.delay_level or self.is_timed:
            raise InvalidMessageError(
                "a message with a lite topic can have neither a sharding key nor a priority nor a delay"
            )

    def _check_delay(self) -> None:
        self._set("delay", seconds(self.delay))
        if bool(self.delay_level) + bool(self.delay) + bool(self.deliver_at_ms) > 1:
            raise InvalidMessageError("delay_level, delay and deliver_at_ms exclude each other: give one")
        if not 0 <= self.delay_level <= MAX_DELAY_LEVEL:
            raise InvalidMessageError(
                f"delay_level is {self.delay_level}; 0 to {MAX_DELAY_LEVEL} are allowed"
            )
        delay: object = self.delay
        if isinstance(delay, bool) or not isinstance(delay, Real):
            raise InvalidMessageError(
                f"delay is {delay!r}; it must be a number of seconds (delay_level accepts a level's name)"
            )
        if not 0 <= self.delay * 1000 <= _MAX_TIME_MS:
            raise InvalidMessageError(
                f"delay is {self.delay} seconds; it must be 0 or more, and its milliseconds must fit 64 bits"
            )
        self._set("deliver_at_ms", _to_int("deliver_at_ms", self.deliver_at_ms))
        if not 0 <= self.deliver_at_ms <= _MAX_TIME_MS:
            raise InvalidMessageError(
                f"deliver_at_ms is {self.deliver_at_ms}; it must be epoch milliseconds, 0 or more, that fit "
                "64 bits"
            )
        if mistake := epoch_mistake(self.deliver_at_ms):
            raise InvalidMessageError(f"deliver_at_ms is {mistake}")


# For messages with only a topic and a body, which do not store the other attributes.
for _field in attrs.fields(Message):
    if _field.default is not attrs.NOTHING:
        setattr(Message, _field.name, _field.default)


def _check_mapping(properties: object) -> None:
    if not isinstance(properties, Mapping):
        raise InvalidMessageError(f"properties must be a mapping of str, not {type(properties).__name__}")


def _checked_properties(properties: Mapping[str, str]) -> Mapping[str, str]:
    _check_mapping(properties)
    copied = FrozenProperties(properties)
    for name, value in copied.items():
        _check_property(name, value)
    return copied


def _check_property(name: str, value: str) -> None:
    _check_text("name in properties", name)
    _check_text(f"property {name!r}", value)
    if not name or not value:
        raise InvalidMessageError(f"property {name!r}: neither name nor value may be empty; brokers drop it")
    if name in SYSTEM_PROPERTIES:
        raise InvalidMessageError(f"property {name!r} is set by RocketMQ itself; choose another name")


def _check_text(what: str, value: str) -> None:
    if not isinstance(value, str):
        raise InvalidMessageError(f"{what} must be a str, not {type(value).__name__}")
    if "\x01" in value or "\x02" in value:
        raise InvalidMessageError(rf"{what} {value!r} contains \x01 or \x02, which separate properties")
    if not value.isascii() and _LONE_SURROGATE.search(value):
        raise InvalidMessageError(f"{what} {value!r} contains a lone surrogate, which UTF-8 cannot encode")
