"""Attributes of topics and consumer groups (5.x): validation, and the encoding of changes.

A change maps the name of an attribute to its new value. None removes the attribute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketmq_py.admin.operations import master_address, require_version_5
from rocketmq_py.client import Client
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import BrokerData


async def require_attribute_support(
    client: Client, brokers: Mapping[str, BrokerData], attributes: Iterable[str], kind: str
) -> None:
    """Raise UnsupportedByBrokerError if there are attributes to change, and a broker is older than 5.0.

    Args:
        client: the client.
        brokers: the brokers that the change goes to.
        attributes: the names of the attributes to set or remove.
        kind: ``topic`` or ``group``, for the error.
    """
    if names := ", ".join(attributes):
        for broker in brokers.values():
            await require_version_5(client, master_address(broker), f"a {kind} with {names}")


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
