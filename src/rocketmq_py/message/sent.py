"""Messages that are sent, and what brokers answer to them."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import ClassVar

import attrs

from rocketmq_py import properties as names
from rocketmq_py.errors import ConfigurationError, InvalidMessageError, InvalidPropertyError
from rocketmq_py.names import NOT_SENDABLE_TOPICS, check_topic
from rocketmq_py.properties import NO_PROPERTIES, FrozenProperties

DELAY_LEVEL_NAMES = (
    "1s", "5s", "10s", "30s", "1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m", "10m", "20m", "30m",
    "1h", "2h",
)  # fmt: skip
"""The delay levels, the first is 1 (Java: ``messageDelayLevel``, which a broker may have set otherwise)."""
MAX_DELAY_LEVEL = len(DELAY_LEVEL_NAMES)
_NO_TEXT, _ZERO, _NO_DELAY = "", 0, 0.0
"""What arguments are compared with that nobody gave: to find the same object is quickest."""
_HALF_OF_A_CHARACTER = re.compile("[\ud800-\udfff]")


def _body(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidMessageError(f"a message's body is bytes, not {type(value).__name__}; encode text first")


def _keys(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        keys = list(value)
        for key in keys:
            if not isinstance(key, str) or not key or names.KEY_SEPARATOR in key:
                raise InvalidMessageError(f"key {key!r} must be a text that is not empty and has no blank")
        return names.KEY_SEPARATOR.join(keys)
    raise InvalidMessageError(f"keys are a text or several texts, not {type(value).__name__}")


def _delay_level(value: int | str) -> int:
    if value == 0:
        return 0  # nearly always: there is one of these calls for every message
    if isinstance(value, str):
        if value not in DELAY_LEVEL_NAMES:
            raise InvalidMessageError(
                f"delay_level {value!r} is none of {' '.join(DELAY_LEVEL_NAMES)}; brokers of 5.x keep any "
                "other time exactly: use delay"
            )
        return DELAY_LEVEL_NAMES.index(value) + 1
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidMessageError(f"delay_level is a number or a name, not {type(value).__name__}") from None


def _whole(what: str, value: object) -> int:
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]  # what is none raises
        except TypeError:
            pass
    raise InvalidMessageError(f"{what} is a whole number, not {type(value).__name__}")


_checked_topics: set[object] = set()
"""Topics that messages may have: a sender asks for every message. Texts that are equal are one here."""
_MOST_CHECKED = 4096


def _check_topic(topic: object) -> None:
    if not isinstance(topic, str):
        raise InvalidMessageError(f"topic is a text, not {type(topic).__name__}")
    try:
        check_topic(topic)
    except ConfigurationError as error:
        raise InvalidMessageError(str(error)) from None
    if topic in NOT_SENDABLE_TOPICS:
        raise InvalidMessageError(f"topic {topic!r} is RocketMQ's own; nobody may send to it")
    if len(_checked_topics) >= _MOST_CHECKED:
        _checked_topics.clear()
    _checked_topics.add(topic)


@attrs.frozen(slots=False, init=False)
class Message:
    r"""A message to be sent. Java: ``org.apache.rocketmq.common.message.Message``.

    Args:
        topic: where it goes; letters, digits and ``% | _ -``, at most 127 characters.
        body: the payload, bytes-like and not empty. How large it may be is the producer's setting.
        tags: what consumers filter on; one tag a message is what filters expect.
        keys: business keys to find it by later: one text (blanks separate several keys), or several texts.
        properties: the user's own; no name that RocketMQ uses itself, no ``\x01`` or ``\x02``,
            and nothing empty: brokers drop a property without a value. They are copied, and do not change.
        flag: a number for the application's own use; brokers carry it and do not look at it.
        delay_level: 0 for at once, else 1 to 18, or the level's name in a broker's default settings:
            1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h.
        delay: seconds after which it is delivered, to the millisecond; brokers 5.x only.
        deliver_at_ms: when it is delivered, epoch milliseconds; brokers 5.x only. A time that has passed
            means at once.
        wait_store_ok: wait for the flush and the slaves that the broker is configured for (Java: WAIT).
        sharding_key: messages of one key go to one queue, as long as the topic's queues stay the same: the
            queue that RocketMQ's proxy chooses for it (there: the message group). It goes along as the
            property ``__SHARDINGKEY``. A send that names a ``queue``, such as ``SelectByHash("order-7")``,
            which chooses as Java's ``SelectMessageQueueByHash`` does, goes there instead.
        priority: brokers from 5.5 on store it in the queue of this number, or in the last one, and pop
            consumers of a topic of type PRIORITY get the highest first; other brokers do not look at it. None
            for no priority. With one it has no sharding key and no delay, and goes in no batch. Java:
            ``Message.setPriority``.

    Raises:
        InvalidMessageError: a field is not what is allowed; the text names it.
        InvalidPropertyError: that is so of a property, the tags or the keys.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: str = ""
    properties: Mapping[str, str] = NO_PROPERTIES
    flag: int = attrs.field(default=0, kw_only=True)
    delay_level: int = attrs.field(default=0, kw_only=True)
    delay: float = attrs.field(default=0.0, kw_only=True)
    deliver_at_ms: int = attrs.field(default=0, kw_only=True)
    wait_store_ok: bool = attrs.field(default=True, kw_only=True)
    sharding_key: str = attrs.field(default="", kw_only=True)
    priority: int | None = attrs.field(default=None, kw_only=True)

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        tags: str = "",
        keys: str | Iterable[str] = "",
        properties: Mapping[str, str] = NO_PROPERTIES,
        *,
        flag: int = 0,
        delay_level: int | str = 0,
        delay: float = _NO_DELAY,
        deliver_at_ms: int = 0,
        wait_store_ok: bool = True,
        sharding_key: str = "",
        priority: int | None = None,
    ) -> None:
        # This runs for every message, and of most nothing but topic and body is given: for the others there
        # are the class's own attributes.
        try:
            is_checked = topic in _checked_topics
        except TypeError:  # it cannot be hashed
            is_checked = False
        if not is_checked:
            _check_topic(topic)
        if type(body) is not bytes:
            body = _body(body)
        if not body:
            raise InvalidMessageError("the body is empty; brokers refuse such a message")
        fields = self.__dict__
        fields["topic"] = topic
        fields["body"] = body
        if (
            tags is _NO_TEXT
            and keys is _NO_TEXT
            and properties is NO_PROPERTIES
            and flag is _ZERO
            and delay_level is _ZERO
            and delay is _NO_DELAY
            and deliver_at_ms is _ZERO
            and wait_store_ok is True
            and sharding_key is _NO_TEXT
            and priority is None
        ):
            return
        if type(keys) is not str:
            keys = _keys(keys)
        if type(delay_level) is not int or delay_level:
            delay_level = _delay_level(delay_level)
        fields["is_bare"] = False
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
        if delay_level or delay or deliver_at_ms:
            self._check_delay()
        if type(flag) is not int or flag:
            self._check_flag()
        if wait_store_ok is not True and wait_store_ok is not False:
            raise InvalidMessageError(f"wait_store_ok is True or False, not {type(wait_store_ok).__name__}")
        if tags != "":
            _check_text("tags", tags)
        if keys:
            _check_text("keys", keys)
        if sharding_key != "":
            _check_text("sharding_key", sharding_key)
            if names.SHARDING_KEY in properties:
                raise InvalidPropertyError(f"sharding_key and the property {names.SHARDING_KEY!r}: give one")
        if priority is not None:
            self._check_priority()
        if properties is not NO_PROPERTIES:
            fields["properties"] = _checked_properties(properties)

    is_bare: ClassVar[bool] = True  # of each message that has more it is set: attrs need not know of it
    """Whether it has a topic and a body, and nothing else (the producer's affair)."""

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def is_timed(self) -> bool:
        """Whether it has an exact time, which only brokers of 5.x keep."""
        return bool(self.delay or self.deliver_at_ms)

    def _check_flag(self) -> None:
        flag = _whole("flag", self.flag)
        if not -(2**31) <= flag < 2**31:
            raise InvalidMessageError(f"flag {flag} does not fit 32 bits")
        self._set("flag", flag)

    def _check_priority(self) -> None:
        priority = _whole("priority", self.priority)
        if not 0 <= priority < 2**31:
            raise InvalidMessageError(f"priority is {priority}; it must be 0 or more, and fit 32 bits")
        if self.sharding_key or self.delay_level or self.is_timed:
            raise InvalidMessageError("a message with a priority has neither a sharding key nor a delay")
        self._set("priority", priority)

    def _check_delay(self) -> None:
        if bool(self.delay_level) + bool(self.delay) + bool(self.deliver_at_ms) > 1:
            raise InvalidMessageError("delay_level, delay and deliver_at_ms exclude each other: give one")
        if not 0 <= self.delay_level <= MAX_DELAY_LEVEL:
            raise InvalidMessageError(
                f"delay_level is {self.delay_level}; 0 to {MAX_DELAY_LEVEL} are allowed"
            )
        delay: object = self.delay
        if isinstance(delay, bool) or not isinstance(delay, Real):
            raise InvalidMessageError(
                f"delay is {delay!r}; it is a number of seconds (delay_level takes a level's name)"
            )
        if not 0 <= self.delay < math.inf:
            raise InvalidMessageError(f"delay is {self.delay} seconds; it must be 0 or more")
        if self.deliver_at_ms:
            self._set("deliver_at_ms", _whole("deliver_at_ms", self.deliver_at_ms))
        if self.deliver_at_ms < 0:
            raise InvalidMessageError(
                f"deliver_at_ms is {self.deliver_at_ms}; it must be epoch milliseconds, 0 or more"
            )


for _field in attrs.fields(Message):
    if _field.default is not attrs.NOTHING:
        setattr(Message, _field.name, _field.default)


def _checked_properties(properties: object) -> Mapping[str, str]:
    if not isinstance(properties, Mapping):
        raise InvalidPropertyError(f"properties are a mapping of texts, not {type(properties).__name__}")
    copied = FrozenProperties(properties)
    for name, value in copied.items():
        _check_property(name, value)
    return copied


def _check_property(name: str, value: str) -> None:
    _check_text("property name", name)
    _check_text(f"property {name!r}", value)
    if not name or not value:
        raise InvalidPropertyError(f"property {name!r}: neither name nor value may be empty; brokers drop it")
    if name in names.SYSTEM_PROPERTIES:
        raise InvalidPropertyError(f"property {name!r} is set by RocketMQ itself; choose another name")


def _check_text(what: str, value: str) -> None:
    if not isinstance(value, str):
        raise InvalidPropertyError(f"{what} must be text, not {type(value).__name__}")
    if "\x01" in value or "\x02" in value:
        raise InvalidPropertyError(rf"{what} {value!r} holds \x01 or \x02, which separate properties")
    if not value.isascii() and _HALF_OF_A_CHARACTER.search(value):
        raise InvalidPropertyError(f"{what} {value!r} is no text: it holds half of a character")
