"""Attributes of topics and consumer groups (5.x): validation, and the encoding of changes.

A change maps the name of an attribute to its new value. None removes the attribute.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.admin.operations import master_address, require_feature
from rocketmq_py.admin.topic_values import MessageType
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.features import GROUP_ATTRIBUTES, LITE_TOPICS, PRIORITIES, TOPIC_ATTRIBUTES, Feature
from rocketmq_py.codes import version_ordinal
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import BrokerData


async def require_attribute_support(
    client: ClientCore, brokers: Mapping[str, BrokerData], changes: Mapping[str, str | None], kind: str
) -> None:
    """Raise UnsupportedByBrokerError if there are attributes to change, and a broker is too old for them.

    Args:
        client: the client.
        brokers: the brokers that the change goes to.
        changes: the attributes to set or remove.
        kind: ``topic`` or ``group``, for the error.
    """
    if changes:
        basic = TOPIC_ATTRIBUTES if kind == "topic" else GROUP_ATTRIBUTES
        feature = max(
            (_feature_of(name, value, basic) for name, value in changes.items()),
            key=lambda needed: version_ordinal(needed.since),
        )
        shown = [
            name if value is None or feature is basic else f"{name}={value}"
            for name, value in changes.items()
        ]
        for broker in brokers.values():
            await require_feature(
                client, master_address(broker), feature, f"a {kind} with {', '.join(shown)}"
            )


def _feature_of(name: str, value: str | None, basic: Feature) -> Feature:
    """Return the feature that an attribute belongs to, ``basic`` unless it is a newer one."""
    if name.startswith("lite.") or value == MessageType.LITE:
        return LITE_TOPICS
    return PRIORITIES if value == MessageType.PRIORITY else basic


def without_needless_removals(
    changes: Mapping[str, str | None], current: Mapping[str, str]
) -> dict[str, str | None]:
    """Return ``changes`` without the removals of attributes that are not set. Brokers refuse these."""
    return {name: value for name, value in changes.items() if value is not None or name in current}


def apply_changes(changes: Mapping[str, str | None], current: Mapping[str, str]) -> dict[str, str]:
    """Return the ``current`` attributes with ``changes`` applied."""
    return {name: value for name, value in {**current, **changes}.items() if value is not None}


def check_topic_changes(changes: Mapping[str, str | None]) -> None:
    """Raise ConfigurationError if :func:`encode_topic_changes` cannot encode a name or value.

    Changes of groups need no check. They are JSON and may contain any text.
    """
    for name, value in changes.items():
        if (
            not name
            or value == ""
            or any(letter.isspace() or letter in "+,=" for letter in name + (value or ""))
        ):
            change = repr(name) if value is None else f"{name!r}={value!r}"
            raise ConfigurationError(
                f"attribute {change} is not possible: "
                "names and values must not be empty or contain +, commas, = or whitespace"
            )


def encode_topic_changes(changes: Mapping[str, str | None]) -> str | None:
    """Encode changes of a topic, such as ``+message.type=FIFO,-cleanup.policy``. None without changes."""
    parts = [f"-{name}" if value is None else f"+{name}={value}" for name, value in changes.items()]
    return ",".join(parts) or None


def encode_group_changes(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Encode changes of a group. The key ``+name`` sets an attribute, and ``-name`` removes one."""
    return {
        f"-{name}" if value is None else f"+{name}": "" if value is None else value
        for name, value in changes.items()
    }
