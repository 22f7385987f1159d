"""The attributes of topics and groups in brokers of 5.x, and changes of them.

Java: ``TopicAttributes``, ``SubscriptionGroupAttributes``, ``AttributeUtil``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import attrs

from rocketmq_py.broker.dispatch import Refusal
from rocketmq_py.codes import ResponseCode

_match_integer = re.compile("[+-]?[0-9]+", re.ASCII).fullmatch
_MAX_LONG = 2**63 - 1


def _one_of(*values: str) -> Callable[[str], str | None]:
    def find_error(value: str) -> str | None:
        return None if value in values else f"value is not in set: [{', '.join(values)}]"

    return find_error


def _between(lowest: int, highest: int) -> Callable[[str], str | None]:
    def find_error(value: str) -> str | None:
        if not _match_integer(value) or not -_MAX_LONG - 1 <= int(value) <= _MAX_LONG:
            return f'For input string: "{value}"'
        return None if lowest <= int(value) <= highest else f"value is not in range({lowest}, {highest})"

    return find_error


@attrs.frozen
class Attribute:
    """The rules for the values of an attribute. Java: ``Attribute``.

    Attributes:
        find_error: returns why a value is invalid, in Java's words, or None if it is valid.
        changeable: whether it can be changed after the topic or group was created.
    """

    find_error: Callable[[str], str | None]
    changeable: bool


def _any(_: str) -> str | None:
    return None


def _boolean(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "boolean attribute format is wrong."


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(_one_of("BatchCQ", "SimpleCQ"), changeable=False),
    "cleanup.policy": Attribute(_one_of("DELETE", "COMPACTION"), changeable=False),
    "message.type": Attribute(
        _one_of("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "LITE", "NORMAL"),
        changeable=True,
    ),
    "reserve.time": Attribute(_between(-1, _MAX_LONG), changeable=True),
    "lite.topic.expiration": Attribute(_between(-1, 43_200), changeable=True),
}
"""The attributes of topics by name. Java: ``TopicAttributes``.

Only message.type and lite.topic.expiration have an effect here.
"""

GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    "priority.factor": Attribute(_between(0, 100), changeable=True),
    "lite.bind.topic": Attribute(_any, changeable=True),
    "lite.sub.model": Attribute(_one_of("Shared", "Exclusive"), changeable=True),
    "lite.sub.reset.offset.exclusive": Attribute(_boolean, changeable=True),
    "lite.sub.reset.offset.unsubscribe": Attribute(_boolean, changeable=True),
    "lite.sub.client.quota": Attribute(_between(-1, _MAX_LONG), changeable=True),
    "lite.sub.client.max.event.cnt": Attribute(_between(10, _MAX_LONG), changeable=True),
    "lite.sub.wildcard": Attribute(_any, changeable=True),
}
"""The attributes of consumer groups by name. Java: ``SubscriptionGroupAttributes``.

All but lite.sub.client.quota and lite.sub.client.max.event.cnt have an effect here.
"""


def change_topic_attributes(old: Mapping[str, str] | None, text: str) -> dict[str, str]:
    """Return a topic's attributes after changes such as ``+message.type=FIFO,-reserve.time``.

    Args:
        old: the present attributes; None for a new topic.
        text: the changes.

    Raises Refusal, with the remark of brokers of 5.5.0, if a change is invalid.
    """
    changes = _parse_changes(text)
    if changes.get("+message.type") == "MIXED":
        raise Refusal(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
    return change_attributes(TOPIC_ATTRIBUTES, old, changes)


def change_attributes(
    known: Mapping[str, Attribute], old: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return attributes after changes: ``+name`` sets an attribute, ``-name`` removes one.

    Args:
        known: TOPIC_ATTRIBUTES or GROUP_ATTRIBUTES.
        old: the present attributes; None for a new topic or group.
        changes: the new values by name with its sign.

    Raises Refusal, with the remark of brokers of 5.5.0, for a change that they refuse.
    """
    changed = dict(old or {})
    names: set[str] = set()
    for key, value in changes.items():
        sign, name = key[:1], key[1:]
        if not name or "+" in name or "-" in name:
            raise _refusal("kv string format wrong.")
        if name in names:
            raise _refusal(f"alter duplication key. key: {name}")
        names.add(name)
        if sign != "+" and old is None:
            raise _refusal(f"only add attribute is supported while creating topic. key: {name}")
        if sign not in ("+", "-"):
            raise _refusal(f"wrong format key: {name}")
        if sign == "-" and name not in changed:
            raise _refusal(f"attempt to delete a nonexistent key: {name}")
        attribute = known.get(name)
        if attribute is None:
            raise _refusal(f"unsupported key: {name}")
        if old is not None and not attribute.changeable:
            raise _refusal(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            changed.pop(name, None)
        elif error := attribute.find_error(value):
            raise _refusal(error)
        else:
            changed[name] = value
    return changed


def _parse_changes(text: str) -> dict[str, str]:
    """Return the values by name with its sign. Java: ``AttributeParser.parseToMap``.

    Like Java, ignores empty changes at the end, and everything from a second ``=`` on.
    """
    changes: dict[str, str] = {}
    text = text.rstrip(",")
    for change in text.split(",") if text else ():
        key, has_value, value = change.partition("=")
        value = value.partition("=")[0]
        if has_value and not value:
            raise _refusal("Index 1 out of bounds for length 1")
        if has_value and "+" not in key:
            raise _refusal(f"add/alter attribute format is wrong: {key}")
        if not has_value and "-" not in key:
            raise _refusal(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise _refusal(f"key duplication: {key}")
        changes[key] = value
    return changes


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
