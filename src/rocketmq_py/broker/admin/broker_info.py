"""The broker's runtime figures and settings, as tools read and change them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rocketmq_py.address import split_address
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import MASTER_ID, KeyValueTable, read_properties
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection

VERSION = "V5_5_0"
"""The version of Java's broker that this broker imitates."""

_MILLISECOND_FIELDS = frozenset(
    {"transaction_time_out", "transaction_check_interval", "short_polling_time", "channel_expired_timeout"}
)
"""Settings that are seconds in ``BrokerConfig``, and milliseconds in Java."""
_IRREGULAR_NAMES = {
    "broker_ip1": "brokerIP1",
    "cluster_name": "brokerClusterName",
    "short_polling_time": "shortPollingTimeMills",
}
_WITHOUT_JAVA_NAME = frozenset(
    {"access_keys", "max_store_bytes", "max_store_messages", "profile", "zone_name"}
)
"""Settings without a counterpart in Java's configuration. Tools cannot read or change them."""
_READ_ONLY = frozenset(
    {
        "brokerIP1", "brokerClusterName", "brokerId", "brokerName", "brokerRole", "defaultTopicQueueNums",
        "listenPort", "messageDelayLevel", "regionId", "traceOn",
    }
)  # fmt: skip
"""Settings that only take effect when the broker starts, so that changes of them are refused.

The remark is that of real brokers for settings in their ``configBlackList``.
"""


def _java_name(field: str) -> str:
    first, *others = field.split("_")
    return _IRREGULAR_NAMES.get(field) or first + "".join([other.capitalize() for other in others])


_FIELDS = {
    _java_name(field.name): field.name
    for field in attrs.fields(BrokerConfig)
    if field.name not in _WITHOUT_JAVA_NAME
}
"""The fields of ``BrokerConfig`` by the Java names of the settings."""


class BrokerInfoProcessor:
    """Answers requests for runtime figures, and requests to read and change settings."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._config_changes = 0

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_BROKER_CONFIG: self._get_config,
            RequestCode.UPDATE_BROKER_CONFIG: self._update_config,
        }

    # Runtime figures

    def _runtime_info(self, connection: Connection, request: Command) -> None:
        body = KeyValueTable(table={name: str(value) for name, value in self._figures().items()})
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _figures(self) -> Mapping[str, object]:
        """Return Java's figures, except those of disks, caches and thread pools."""
        store, log = self._state.store, self._state.store.log
        oldest = log[log.start] if log.start < log.end else None
        puts, gets = store.put_meter, store.get_meter
        return {
            "bootTimestamp": self._state.started_ms,
            "runtime": _format_duration(self._state.now_ms() - self._state.started_ms),
            "brokerActive": "true",
            "brokerVersionDesc": VERSION,
            "startAcceptSendRequestTimeStamp": 0,
            "putMessageTimesTotal": max(1, puts.total),
            "putMessageSizeTotal": store.end_offset,
            "putMessageAverageSize": store.end_offset / max(1, puts.total),
            "putMessageFailedTimes": 0,
            "putTps": puts.rates(),
            "getFoundTps": gets.rates(),
            "getTransferredTps": gets.rates(),
            "msgPutTotalYesterdayMorning": 0,
            "msgPutTotalTodayMorning": 0,
            "msgPutTotalTodayNow": puts.total,
            "msgGetTotalYesterdayMorning": 0,
            "msgGetTotalTodayMorning": 0,
            "msgGetTotalTodayNow": gets.total,
            "commitLogMinOffset": oldest.commit_log_offset if oldest else store.end_offset,
            "commitLogMaxOffset": store.end_offset,
            "earliestMessageTimeStamp": oldest.store_time_ms if oldest else -1,
            "dispatchBehindBytes": 0,
            "pageCacheLockTimeMills": 0,
            "sendThreadPoolQueueSize": 0,
            "pullThreadPoolQueueSize": 0,
            "ackThreadPoolQueueSize": 0,
            "sendThreadPoolQueueHeadWaitTimeMills": 0,
            "pullThreadPoolQueueHeadWaitTimeMills": 0,
            "ackThreadPoolQueueHeadWaitTimeMills": 0,
            "timerReadBehind": 0,
            "timerOffsetBehind": 0,
            "timerCongestNum": 0,
            "timerEnqueueTps": 0.0,
            "timerDequeueTps": 0.0,
        }

    # Settings

    def _get_config(self, connection: Connection, request: Command) -> None:
        properties = _to_properties(self._state)
        body = "".join([f"{name}={value}\n" for name, value in properties.items()]).encode()
        version = self._state.data_version(self._config_changes)
        fields = {"version": version.encode().decode()}
        connection.respond(request, ResponseCode.SUCCESS, fields, body)

    def _update_config(self, connection: Connection, request: Command) -> None:
        properties = read_properties(request.body)
        config, store = self._state.config, self._state.store
        _change_settings(config, properties)
        self._config_changes += 1
        store.max_message_size = config.max_message_size
        store.has_lite_queues = config.enable_lmq and config.enable_multi_dispatch
        if "brokerPermission" in properties:
            self._state.topics.register_all()
        connection.respond(request, ResponseCode.SUCCESS)


def _to_properties(state: BrokerState) -> dict[str, str]:
    """Return the settings by their Java names, as text."""
    ip, port = split_address(state.address)
    values = {name: _format_setting(field, getattr(state.config, field)) for name, field in _FIELDS.items()}
    return {
        "brokerId": str(state.broker_id),
        "brokerRole": "ASYNC_MASTER" if state.broker_id == MASTER_ID else "SLAVE",
        **values,
        "brokerIP1": ip,
        "listenPort": str(port),
    }


def _change_settings(config: BrokerConfig, properties: Mapping[str, str]) -> None:
    """Change settings at run time. Java: ``Configuration.update``.

    Like Java, ignores unknown names and values of the wrong type.

    Args:
        config: the broker's own copy of the settings, which is changed in place.
        properties: the new values by their Java names.

    Raises:
        Refusal: a setting cannot be changed at run time, or is out of its range. No setting is changed then.
    """
    if _READ_ONLY & properties.keys():
        raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    changes: dict[str, Any] = {}
    for name, text in properties.items():
        field = _FIELDS.get(name)
        if field is not None and (value := _parse_setting(field, getattr(config, field), text)) is not None:
            changes[field] = value
    try:
        attrs.evolve(config, **changes)  # validates the values
    except ConfigurationError as error:
        raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
    for field, value in changes.items():
        # In place, although the class is frozen: all parts of the broker read settings from this object.
        object.__setattr__(config, field, value)


def _format_setting(field: str, value: object) -> str:
    if field in _MILLISECOND_FIELDS:
        assert isinstance(value, float | int)
        return str(round(value * 1000))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_setting(field: str, old: object, text: str) -> object:
    """Parse a value to the type of the old one. Returns None if it is not of that type."""
    if isinstance(old, bool):
        return text.strip().lower() == "true"
    if isinstance(old, str):
        return text.strip()
    try:
        number = int(text)
    except ValueError:
        return None
    return number / 1000 if field in _MILLISECOND_FIELDS else number


def _format_duration(milliseconds: int) -> str:
    """Format a duration like Java's ``StoreStatsService.getFormatRuntime``."""
    seconds, _ = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
