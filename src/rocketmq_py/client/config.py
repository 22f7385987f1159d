"""Settings that all producers and consumers of one client share."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any, TypedDict

import attrs

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.command import Serialization
from rocketmq_py.remoting.address import parse_addresses
from rocketmq_py.remoting.tls import TLS

DEFAULT_ADDRESS = "127.0.0.1:9876"


def positive(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    """Refuse a number that is not above zero (an attrs validator)."""
    if not value > 0:
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be above 0")


def not_negative(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    """Refuse a number below zero (an attrs validator)."""
    if not value >= 0:
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be 0 or more")


def name_server_addresses(address: str | None) -> tuple[str, ...]:
    """Return the addresses in ``address``, else those in NAMESRV_ADDR, else 127.0.0.1:9876."""
    return parse_addresses(address or os.environ.get("NAMESRV_ADDR") or DEFAULT_ADDRESS)


@attrs.frozen(kw_only=True)
class ClientConfig:
    """How a client talks to name servers and brokers. Java: ``ClientConfig``, ``NettyClientConfig``.

    Args:
        instance_name: takes the place of the process id in the client's id (Java: instanceName).
        tls: encryption, or None for plain text.
        serialization: how the headers of requests are written.
        connect_timeout: seconds for one dial (connectTimeoutMillis).
        request_timeout: seconds for a request other than a send or a pull (mqClientApiTimeout).
        route_refresh_interval: seconds between two looks at all routes in use (pollNameServerInterval).
        heartbeat_interval: seconds between two heartbeats to every broker (heartbeatBrokerInterval).
        default_topic_queues: queues of a topic that a broker has yet to create (defaultTopicQueueNums).
        max_buffered: bytes that may pile up for one connection before senders wait.
    """

    instance_name: str | None = None
    tls: TLS | None = None
    serialization: Serialization = Serialization.JSON
    connect_timeout: float = attrs.field(default=3.0, validator=positive)
    request_timeout: float = attrs.field(default=3.0, validator=positive)
    route_refresh_interval: float = attrs.field(default=30.0, validator=positive)
    heartbeat_interval: float = attrs.field(default=30.0, validator=positive)
    default_topic_queues: int = attrs.field(default=4, validator=positive)
    max_buffered: int = attrs.field(default=4 * 1024 * 1024, validator=positive)


class ClientOptions(TypedDict, total=False):
    """The fields of ClientConfig, as keyword arguments."""

    instance_name: str | None
    tls: TLS | None
    serialization: Serialization
    connect_timeout: float
    request_timeout: float
    route_refresh_interval: float
    heartbeat_interval: float
    default_topic_queues: int
    max_buffered: int


def field_names(config: type[attrs.AttrsInstance]) -> tuple[str, ...]:
    """Return the names of a configuration class's fields."""
    return tuple(field.name for field in attrs.fields(config))


def split_options(options: Mapping[str, Any], *configs: type[attrs.AttrsInstance]) -> list[dict[str, Any]]:
    """Sort keyword arguments by the configuration class that has a field of that name.

    Raises ConfigurationError for one that none has, naming the nearest that exists.
    """
    known = {name: index for index, config in enumerate(configs) for name in field_names(config)}
    sorted_options: list[dict[str, Any]] = [{} for _ in configs]
    for name, value in options.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigurationError(f"there is no option {name!r}{hint}")
        sorted_options[known[name]][name] = value
    return sorted_options
