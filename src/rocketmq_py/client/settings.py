"""Settings of a client, and the options that constructors accept."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypedDict

import attrs

from rocketmq_py.address import https_addresses, parse_addresses
from rocketmq_py.arguments import (
    Duration,
    check_text,
    flag,
    instance_of,
    optional,
    positive,
    seconds,
)
from rocketmq_py.client.discovery import Discovery, is_url
from rocketmq_py.client.namespace import check_namespace, instance_namespace
from rocketmq_py.credentials import Credentials, CredentialsProvider
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import NOT_SENDABLE_TOPICS, check_topic
from rocketmq_py.remoting.socks_proxy import SocksProxy
from rocketmq_py.remoting.tls import TLS
from rocketmq_py.shown_settings import advice_for

DEFAULT_ADDRESS = "127.0.0.1:9876"
_OTHER_NAMES = {
    "retries": "max_reconsume_times",
    "timeout": "send_timeout",
    "auto_offset_reset": "consume_from",
    "max_workers": "concurrency",
}
"""Settings by names that programs expect, from another class of this package or from another library."""
_START_DELIVER_TIME_HOST = re.compile(r"\.(aliyun|aliyuncs|tencenttdmq)\.com\b", re.IGNORECASE)


def trace_topic(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Accept True, False, "cloud" and the name of a topic for traces (an attrs validator)."""
    if isinstance(value, bool):
        return
    if not isinstance(value, str):
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be True, False, 'cloud' or a topic")
    check_topic(value, attribute.name)
    if value in NOT_SENDABLE_TOPICS:
        raise ConfigurationError(f"{attribute.name} is {value!r}, a topic that clients cannot send to")


def _namespace(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    name = optional(check_text, value, attribute.name)
    if name is not None:
        check_namespace(name)


def _namespace_v2(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    name = check_text(value, attribute.name)
    if not name.isprintable() or " " in name:
        raise ConfigurationError(
            f"namespace_v2 is {value!r}; it must not contain spaces or control characters"
        )


def _instance_name(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    name = optional(check_text, value, attribute.name)
    if name is not None and not name.isprintable():
        raise ConfigurationError(f"instance_name is {value!r}; it must not contain control characters")


def _unit_name(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    value = check_text(value, attribute.name)
    if not value.isprintable() or " " in value:
        raise ConfigurationError(f"unit_name is {value!r}; it must not contain spaces or control characters")


def _zone(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    zone = optional(check_text, value, attribute.name)
    if zone is not None and not zone.isprintable():
        raise ConfigurationError(f"zone is {value!r}; it must not contain control characters")


def _credentials(_: object, __: attrs.Attribute[Any], value: object) -> None:
    # The error does not contain the value, which may be a secret.
    if inspect.iscoroutinefunction(value):
        raise ConfigurationError(
            "credentials is an async function; it must be a plain one, which runs in a thread and may block"
        )
    if value is not None and not isinstance(value, Credentials) and not callable(value):
        raise ConfigurationError(
            "credentials must be Credentials(...) or a function that returns them, not "
            f"{type(value).__name__}"
        )


def _shown_credentials(value: Credentials | CredentialsProvider | None) -> str:
    """Return the repr of credentials. That of a function is left out: ``partial`` shows its arguments."""
    return repr(value) if value is None or isinstance(value, Credentials) else "<function>"


def _tls(value: TLS | bool | None) -> TLS | None:
    if isinstance(value, bool):
        return TLS() if value else None
    return value


def _proxy(value: SocksProxy | str | None) -> SocksProxy | None:
    if value is None or isinstance(value, SocksProxy):
        return value
    return SocksProxy.parse(check_text(value, "proxy"))


@attrs.frozen(kw_only=True)
class ClientSettings:
    """The settings of a client. Java: ``ClientConfig``, ``NettyClientConfig``, whose names are in brackets.

    All durations are numbers of seconds or timedeltas. ``math.inf`` seconds means no limit.

    Args:
        instance_name: replaces the process id in the client's id (instanceName).
        unit_name: a part of the client's id, and of the URL for name servers (unitName).
        unit_mode: whether topics and groups that brokers create for this client belong to a unit, for
            clusters that are divided into units (unitMode).
        namespace: the namespace of this client's topics and groups. None takes it from an address whose host
            begins with ``MQ_INST_``, as those of some managed services do. An empty text uses none
            (namespace).
        namespace_v2: the namespace as a field of every request, instead of in the names of topics and groups.
            Brokers, proxies and name servers of Apache RocketMQ ignore it (namespaceV2).
        credentials: sign the requests: Credentials, or a CredentialsProvider that returns them. None if
            brokers do not check access (AclClientRPCHook).
        tls: the encryption settings. True for the default ones, None or False for plain text.
        proxy: the SOCKS5 proxy that connects to name servers and brokers, as a URL
            ``socks5://user:password@host:port``. It resolves their host names. Needs the extra ``socks``
            (socksProxyConfig).
        zone: use only the brokers of this availability zone, and those without a master. Name servers of 5.x
            select them. None uses the environment variable ROCKETMQ_ZONE if ROCKETMQ_ZONE_MODE is ``true``.
            An empty text uses all brokers (rocketmq.zone, rocketmq.zone.mode).
        vip_channel: send requests other than pulls to a second port of the broker, two below its own. Pulls
            cannot delay them there (vipChannelEnabled).
        connect_timeout: seconds for one dial (connectTimeoutMillis).
        request_timeout: seconds for a request other than a send or a pull (mqClientApiTimeout).
        route_refresh_interval: seconds between two refreshes of all routes (pollNameServerInterval). Lower it
            if queues that are added must be used sooner.
        heartbeat_interval: seconds between two heartbeats to every broker (heartbeatBrokerInterval). Lower it
            if a firewall or load balancer closes connections that are silent for less.
    """

    instance_name: str | None = attrs.field(default=None, validator=_instance_name)
    unit_name: str = attrs.field(default="", validator=_unit_name)
    unit_mode: bool = attrs.field(default=False, validator=flag)
    namespace: str | None = attrs.field(default=None, validator=_namespace)
    namespace_v2: str = attrs.field(default="", validator=_namespace_v2)
    credentials: Credentials | CredentialsProvider | None = attrs.field(
        default=None, validator=_credentials, repr=_shown_credentials
    )
    tls: TLS | None = attrs.field(
        default=None, converter=_tls, validator=attrs.validators.optional(instance_of(TLS))
    )
    proxy: SocksProxy | None = attrs.field(default=None, converter=_proxy)
    zone: str | None = attrs.field(default=None, validator=_zone)
    vip_channel: bool = attrs.field(default=False, validator=flag)
    connect_timeout: float = attrs.field(default=3.0, converter=seconds, validator=positive)
    request_timeout: float = attrs.field(default=3.0, converter=seconds, validator=positive)
    route_refresh_interval: float = attrs.field(default=30.0, converter=seconds, validator=positive)
    heartbeat_interval: float = attrs.field(default=30.0, converter=seconds, validator=positive)


def name_servers(address: str | None, config: ClientSettings) -> tuple[str, ...] | Discovery:
    """Return the addresses of the name servers, or the Discovery for a URL.

    Args:
        address: ``host:port;host:port``, or a URL with a path. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
            ``http://`` or ``https://`` before ``host:port`` has no effect.
        config: the client's settings.

    Raises:
        ConfigurationError: ``address`` is neither. An empty text is not allowed: it usually comes from an
            unset variable.
    """
    text = _address_text(address)
    if not is_url(text):
        return parse_addresses(text)
    return Discovery(
        text, unit_name=config.unit_name, tls=config.tls, proxy=config.proxy, timeout=config.request_timeout
    )


def namespace_of(address: str | None, config: ClientSettings) -> str:
    """Return the namespace of a client's topics and groups: the setting, else that in the address.

    Empty for no namespace. Raises ConfigurationError if the addresses name different namespaces.
    """
    if config.namespace is not None:
        return config.namespace
    text = _address_text(address)
    return "" if is_url(text) else instance_namespace(parse_addresses(text))


def uses_start_deliver_time(address: str | None) -> bool:
    """Return whether an address is of a managed service that delivers by the property __STARTDELIVERTIME."""
    return _START_DELIVER_TIME_HOST.search(_address_text(address)) is not None


def unencrypted_https(address: str | None, config: ClientSettings) -> frozenset[str]:
    """Return the addresses that begin with ``https://`` although TLS is off."""
    text = _address_text(address)
    return frozenset() if config.tls is not None or is_url(text) else https_addresses(text)


def _address_text(address: str | None) -> str:
    return address if address is not None else os.environ.get("NAMESRV_ADDR") or DEFAULT_ADDRESS


def zone_of(config: ClientSettings) -> str:
    """Return the zone to whose brokers a client is restricted. Empty for no restriction."""
    if config.zone is not None:
        return config.zone.strip()
    if os.environ.get("ROCKETMQ_ZONE_MODE", "").lower() != "true":
        return ""
    return os.environ.get("ROCKETMQ_ZONE", "").strip()


class ClientOptions(TypedDict, total=False):
    """Settings of a Client. Made by ``make apis``.

    Defaults: instance_name=None, unit_name='', unit_mode=False, namespace=None, namespace_v2='',
    credentials=None, tls=None, proxy=None, zone=None, vip_channel=False, connect_timeout=3.0,
    request_timeout=3.0, route_refresh_interval=30.0, heartbeat_interval=30.0.
    """

    instance_name: str | None
    unit_name: str
    unit_mode: bool
    namespace: str | None
    namespace_v2: str
    credentials: Credentials | CredentialsProvider | None
    tls: TLS | bool | None
    proxy: SocksProxy | str | None
    zone: str | None
    vip_channel: bool
    connect_timeout: Duration
    request_timeout: Duration
    route_refresh_interval: Duration
    heartbeat_interval: Duration


def field_names(config: type[attrs.AttrsInstance]) -> tuple[str, ...]:
    """Return the names of the fields of a class of settings."""
    return tuple(field.name for field in attrs.fields(config))


def split_options(
    options: Mapping[str, Any], *kinds: type[attrs.AttrsInstance], group: str | None = None
) -> list[dict[str, Any]]:
    """Return the keyword arguments of each class of settings, from the options of a constructor.

    Args:
        options: the options.
        kinds: the classes of settings. Their fields have different names.
        group: the option ``group``, if it was given.

    Raises:
        ConfigurationError: an option is unknown (the error suggests the nearest name), or missing.
    """
    known = {name: index for index, kind in enumerate(kinds) for name in field_names(kind)}
    arguments: list[dict[str, Any]] = [{} for _ in kinds]
    for name, value in (options if group is None else {**options, "group": group}).items():
        if name not in known:
            raise ConfigurationError(f"there is no setting {name!r}; {_hint(name, known, kinds)}")
        arguments[known[name]][name] = value
    for kind, named in zip(kinds, arguments, strict=True):
        for field in attrs.fields(kind):
            if field.default is attrs.NOTHING and field.name not in named:
                raise ConfigurationError(f"{field.name} is missing; pass it as a keyword")
    return arguments


def _hint(name: str, known: Collection[str], kinds: Iterable[type[attrs.AttrsInstance]]) -> str:
    """Return the advice of the error for an unknown setting."""
    for kind in kinds:
        call: str | None = getattr(kind, "ARGUMENTS_OF_CALLS", {}).get(name)
        if call is not None:
            return f"it is an argument of a call: {call}"
    other = _OTHER_NAMES.get(name)
    return f"did you mean {other!r}?" if other is not None and other in known else advice_for(name, known)
