"""The broker's settings under Java's names: what tools read of them, and change while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rocketmq_py.address import split_address
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Refusal
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import MASTER_ID

_MILLISECONDS = frozenset(
    {"transaction_time_out", "transaction_check_interval", "short_polling_time", "channel_expired_timeout"}
)
"""Settings that are seconds here, and milliseconds in Java."""
_OWN_NAMES = {
    "broker_ip1": "brokerIP1",
    "cluster_name": "brokerClusterName",
    "short_polling_time": "shortPollingTimeMills",
}
_NOT_JAVAS = frozenset({"access_keys", "max_store_bytes", "max_store_messages"})
_OF_A_START = frozenset(
    {
        "brokerIP1", "brokerClusterName", "brokerId", "brokerName", "brokerRole", "defaultTopicQueueNums",
        "listenPort", "messageDelayLevel", "regionId", "traceOn",
    }
)  # fmt: skip
"""What a start needs to take effect; this broker has one start. Java refuses what is in its black list."""


def _name(field: str) -> str:
    first, *others = field.split("_")
    return _OWN_NAMES.get(field) or first + "".join([other.capitalize() for other in others])


_FIELDS = {
    _name(field.name): field.name for field in attrs.fields(BrokerConfig) if field.name not in _NOT_JAVAS
}


def shown(config: BrokerConfig, address: str, broker_id: int) -> dict[str, str]:
    """Return the settings as the answer to GET_BROKER_CONFIG has them.

    Args:
        config: the settings.
        address: the broker's ``host:port``.
        broker_id: 0 for a master.
    """
    ip, port = split_address(address)
    values = {name: _text(field, getattr(config, field)) for name, field in _FIELDS.items()}
    return {
        "brokerId": str(broker_id),
        "brokerRole": "ASYNC_MASTER" if broker_id == MASTER_ID else "SLAVE",
        **values,
        "brokerIP1": ip,
        "listenPort": str(port),
    }


def alter(config: BrokerConfig, wanted: Mapping[str, str]) -> None:
    """Change settings of a broker that runs, in its own copy of them. Java: ``Configuration.update``.

    As in Java, names that are not known and values of the wrong kind are left alone.

    Args:
        config: the broker's own copy, which nobody else has: it is changed in place.
        wanted: the new values, under Java's names.

    Raises:
        Refusal: one takes effect at a start only, or is out of its range. Nothing is changed then.
    """
    if _OF_A_START & wanted.keys():
        raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    changes: dict[str, Any] = {}
    for name, text in wanted.items():
        field = _FIELDS.get(name)
        if field is not None and (value := _value(field, getattr(config, field), text)) is not None:
            changes[field] = value
    try:
        attrs.evolve(config, **changes)  # checks them
    except ConfigurationError as error:
        raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
    for field, value in changes.items():
        # The parts of the broker share this copy, and look at it whenever they need it.
        object.__setattr__(config, field, value)


def _text(field: str, value: object) -> str:
    if field in _MILLISECONDS:
        assert isinstance(value, float | int)
        return str(round(value * 1000))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(field: str, old: object, text: str) -> object:
    """Return what a text stands for; None if it is of the wrong kind."""
    if isinstance(old, bool):
        return text.strip().lower() == "true"
    if isinstance(old, str):
        return text.strip()
    try:
        number = int(text)
    except ValueError:
        return None
    return number / 1000 if field in _MILLISECONDS else number
