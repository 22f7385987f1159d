"""Settings of a client, and the options that constructors accept."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import attrs

from rocketmq_py.address import parse_addresses
from rocketmq_py.arguments import check_choice, check_text, flag, instance_of, optional, positive
from rocketmq_py.client.discovery import Discovery, is_url
from rocketmq_py.client.namespace import check_namespace
from rocketmq_py.credentials import Credentials, CredentialsProvider
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import NOT_SENDABLE_TOPICS, check_topic
from rocketmq_py.protocol.command import Serialization
from rocketmq_py.remoting.socks_proxy import SocksProxy
from rocketmq_py.remoting.tls import TLS

DEFAULT_ADDRESS = "127.0.0.1:9876"


def trace_topic(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Accept True, False and the name of a topic for traces (an attrs validator)."""
    if isinstance(value, bool):
        return
    if not isinstance(value, str):
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be True, False or a topic")
    check_topic(value, attribute.name)
    if value in NOT_SENDABLE_TOPICS:
        raise ConfigurationError(f"{attribute.name} is {value!r}, a topic that clients cannot send to")


def _serialization(value: Serialization | str) -> Serialization:
    return check_choice(value, "serialization", Serialization)


def _namespace(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_namespace(check_text(value, attribute.name))


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


def _proxy(value: SocksProxy | str | None) -> SocksProxy | None:
    if value is None or isinstance(value, SocksProxy):
        return value
    return SocksProxy.parse(check_text(value, "proxy"))


@attrs.frozen(kw_only=True)
class ClientConfig:
    """The settings of a client. Java: ``ClientConfig``, ``NettyClientConfig``, whose names are in brackets.

    ``math.inf`` seconds means no limit.

    Args:
        instance_name: replaces the process id in the client's id (instanceName).
        unit_name: a part of the client's id, and of the URL for name servers (unitName).
        unit_mode: whether topics and groups that brokers create for this client belong to a unit (unitMode).
        namespace: the namespace of this client's topics and groups (namespace).
        credentials: sign the requests: Credentials, or a CredentialsProvider that returns them. None if
            brokers do not check access (AclClientRPCHook).
        tls: the encryption settings. None for plain text.
        proxy: the SOCKS5 proxy that connects to name servers and brokers, as a URL
            ``socks5://user:password@host:port``. It resolves their host names. Needs the extra ``socks``
            (socksProxyConfig).
        zone: use only the brokers of this availability zone, and those without a master. Name servers of 5.x
            select them. None uses the environment variable ROCKETMQ_ZONE if ROCKETMQ_ZONE_MODE is ``true``.
            An empty text uses all brokers (rocketmq.zone, rocketmq.zone.mode).
        vip_channel: send requests other than pulls to a second port of the broker, two below its own. Pulls
            cannot delay them there (vipChannelEnabled).
        serialization: the format of request headers: a Serialization or its name, such as "JSON".
        connect_timeout: seconds for one dial (connectTimeoutMillis).
        request_timeout: seconds for a request other than a send or a pull (mqClientApiTimeout).
        name_server_refresh_interval: seconds between two requests to the URL for name servers, and between
            two lookups of their host names.
        route_refresh_interval: seconds between two refreshes of all routes (pollNameServerInterval).
        heartbeat_interval: seconds between two heartbeats to every broker (heartbeatBrokerInterval).
        default_topic_queues: queues of a topic that a broker creates automatically (defaultTopicQueueNums).
        max_buffered: bytes in the buffer of a connection above which senders wait.
    """

    instance_name: str | None = attrs.field(default=None, validator=_instance_name)
    unit_name: str = attrs.field(default="", validator=_unit_name)
    unit_mode: bool = attrs.field(default=False, validator=flag)
    namespace: str = attrs.field(default="", validator=_namespace)
    credentials: Credentials | CredentialsProvider | None = attrs.field(
        default=None, validator=_credentials, repr=_shown_credentials
    )
    tls: TLS | None = attrs.field(default=None, validator=attrs.validators.optional(instance_of(TLS)))
    proxy: SocksProxy | None = attrs.field(default=None, converter=_proxy)
    zone: str | None = attrs.field(default=None, validator=_zone)
    vip_channel: bool = attrs.field(default=False, validator=flag)
    serialization: Serialization = attrs.field(default=Serialization.JSON, converter=_serialization)
    connect_timeout: float = attrs.field(default=3.0, validator=positive)
    request_timeout: float = attrs.field(default=3.0, validator=positive)
    name_server_refresh_interval: float = attrs.field(default=120.0, validator=positive)
    route_refresh_interval: float = attrs.field(default=30.0, validator=positive)
    heartbeat_interval: float = attrs.field(default=30.0, validator=positive)
    default_topic_queues: int = attrs.field(default=4, validator=positive)
    max_buffered: int = attrs.field(default=4 * 1024 * 1024, validator=positive)


def name_servers(address: str | None, config: ClientConfig) -> tuple[str, ...] | Discovery:
    """Return the addresses of the name servers, or the Discovery for a URL.

    Args:
        address: ``host:port;host:port`` or a URL. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        config: the client's settings.

    Raises:
        ConfigurationError: ``address`` is neither. An empty text is not allowed: it usually comes from an
            unset variable.
    """
    text = address if address is not None else os.environ.get("NAMESRV_ADDR") or DEFAULT_ADDRESS
    if not is_url(text):
        return parse_addresses(text)
    return Discovery(
        text, unit_name=config.unit_name, tls=config.tls, proxy=config.proxy, timeout=config.request_timeout
    )


def zone_of(config: ClientConfig) -> str:
    """Return the zone to whose brokers a client is restricted. Empty for no restriction."""
    if config.zone is not None:
        return config.zone.strip()
    if os.environ.get("ROCKETMQ_ZONE_MODE", "").lower() != "true":
        return ""
    return os.environ.get("ROCKETMQ_ZONE", "").strip()


class ClientOptions(TypedDict, total=False):
    """The fields of ClientConfig, as keyword arguments."""

    instance_name: str | None
    unit_name: str
    unit_mode: bool
    namespace: str
    credentials: Credentials | CredentialsProvider | None
    tls: TLS | None
    proxy: SocksProxy | str | None
    zone: str | None
    vip_channel: bool
    serialization: Serialization | str
    connect_timeout: float
    request_timeout: float
    name_server_refresh_interval: float
    route_refresh_interval: float
    heartbeat_interval: float
    default_topic_queues: int
    max_buffered: int


def field_names(config: type[attrs.AttrsInstance]) -> tuple[str, ...]:
    """Return the names of the fields of a configuration class."""
    return tuple(field.name for field in attrs.fields(config))


def split_options(
    options: Mapping[str, Any],
    *kinds: type[attrs.AttrsInstance],
    configs: Sequence[attrs.AttrsInstance] = (),
    group: str | None = None,
) -> list[dict[str, Any]]:
    """Return the keyword arguments of each configuration class, from the arguments of a constructor.

    All constructors accept the same form: ``Producer(address, ProducerConfig(retries=5), group="orders",
    request_timeout=1.0)``. After the address come configuration objects, in any order and at most one of each
    class, then fields of these classes as keywords. A keyword may set a field that the object leaves at its
    default.

    Args:
        options: the keyword arguments.
        kinds: the configuration classes. Their fields must have different names.
        configs: the configuration objects.
        group: the option ``group``, if it was given.

    Raises:
        ConfigurationError: an option is unknown (the error suggests the nearest name), an option or a class
            is given twice, an object has another class, or a required field has no value.
    """
    arguments: list[dict[str, Any]] = [{} for _ in kinds]
    seen: set[type] = set()
    for config in configs:
        kind = type(config)
        if kind not in kinds:
            names = ", ".join([one.__name__ for one in kinds])
            raise ConfigurationError(f"a configuration object must be one of {names}, not a {kind.__name__}")
        if kind in seen:
            raise ConfigurationError(f"{kind.__name__} is given twice; pass one")
        seen.add(kind)
        arguments[kinds.index(kind)] = _changed_fields(config)
    known = {name: index for index, kind in enumerate(kinds) for name in field_names(kind)}
    for name, value in (options if group is None else {**options, "group": group}).items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigurationError(f"there is no option {name!r}{hint}")
        index = known[name]
        if name in arguments[index]:
            raise ConfigurationError(
                f"{name} is given twice: as a keyword and in the {kinds[index].__name__}"
            )
        arguments[index][name] = value
    for kind, named in zip(kinds, arguments, strict=True):
        for name in _required(kind) - named.keys():
            raise ConfigurationError(f"{name} is missing; pass it as a keyword or in a {kind.__name__}")
    return arguments


def _required(kind: type[attrs.AttrsInstance]) -> set[str]:
    return {field.name for field in attrs.fields(kind) if field.default is attrs.NOTHING}


def _changed_fields(config: attrs.AttrsInstance) -> dict[str, Any]:
    """Return the fields of an object that differ from their defaults, and the required ones."""
    values = {name: getattr(config, name) for name in field_names(type(config))}
    required = _required(type(config))
    default = type(config)(**{name: values[name] for name in required})
    return {
        name: value for name, value in values.items() if name in required or value != getattr(default, name)
    }
