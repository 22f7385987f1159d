"""Subscriptions: what of a topic a consumer wants. Java: ``FilterAPI``, ``SubscriptionData``."""

from __future__ import annotations

from functools import lru_cache

from rocketmq_py import properties as names
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import SubscriptionData

ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"
_TAGS = f"{names.TAGS}\x01".encode()


def make_subscription(
    topic: str, expression: str = ALL, *, version_ms: int, kind: str = TAG
) -> SubscriptionData:
    """Return what a heartbeat says of a subscription.

    Unlike Java, blanks around the whole expression do not count: there ``" * "`` asks for the tag ``*``.

    Args:
        topic: the topic.
        expression: tags with ``||`` between, ``*`` or an empty text for all; for SQL92 a SQL filter on
            properties, which only brokers evaluate.
        version_ms: when the subscription was made, epoch milliseconds; brokers take the newest.
        kind: TAG or SQL92. Java: ``ExpressionType``.

    Raises:
        ConfigurationError: the expression names no tag, or the SQL filter is empty.
    """
    expression = expression.strip()
    tags: list[str] = []
    if kind != TAG:
        if kind != SQL92:
            raise ConfigurationError(f"filter type {kind!r} does not exist; use {TAG} or {SQL92}")
        if not expression:
            raise ConfigurationError(f"a {SQL92} subscription to {topic!r} needs a SQL filter")
    elif expression in ("", ALL):
        expression = ALL
    else:
        tags = list(dict.fromkeys([tag.strip() for tag in expression.split("||") if tag.strip()]))
        if not tags:
            raise ConfigurationError(f"subscription {expression!r} to {topic!r} names no tag; use * for all")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tuple(tags),
        code_set=tuple(sorted({tag_code(tag) for tag in tags})),
        sub_version=version_ms,
        expression_type=kind,
    )


def matches(subscription: SubscriptionData, encoded_properties: bytes) -> bool:
    """Tell whether a message with these properties is wanted, as far as a client can tell.

    Brokers compare only ``tag_code``, so a client compares again. A SQL filter has been evaluated.
    """
    tags = subscription.tags_set
    return not tags or tag_in(encoded_properties) in _encoded(tags)


def tag_in(encoded_properties: bytes) -> bytes:
    """Return the tag that a message's encoded properties hold, without decoding all of them."""
    if encoded_properties.startswith(_TAGS):
        start = len(_TAGS)
    else:
        found = encoded_properties.find(b"\x02" + _TAGS)
        if found < 0:
            return b""
        start = found + 1 + len(_TAGS)
    end = encoded_properties.find(b"\x02", start)
    return encoded_properties[start:] if end < 0 else encoded_properties[start:end]


@lru_cache(maxsize=256)
def _encoded(tags: tuple[str, ...]) -> frozenset[bytes]:
    """Return the tags of a subscription as properties hold them."""
    return frozenset([tag.encode() for tag in tags])


def tag_code(tag: str) -> int:
    """Return Java's ``String.hashCode``: of UTF-16 units, and a signed 32-bit number."""
    code = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code - 2**32 if code >= 2**31 else code
