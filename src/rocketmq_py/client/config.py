"""Settings that all producers and consumers of one client share."""

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
        raise ConfigurationError(f"{attribute.name} is {value!r}, a topic that clients may not send to")


def _serialization(value: Serialization | str) -> Serialization:
    return check_choice(value, "serialization", Serialization)


def _namespace(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_namespace(check_text(value, attribute.name))


def _instance_name(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    name = optional(check_text, value, attribute.name)
    if name is not None and not name.isprintable():
        raise ConfigurationError(f"instance_name {value!r} may hold no control characters")


def _unit_name(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    value = check_text(value, attribute.name)
    if not value.isprintable() or " " in value:
        raise ConfigurationError(f"unit_name {value!r} may hold neither blanks nor control characters")


def _credentials(_: object, __: attrs.Attribute[Any], value: object) -> None:
    # The error does not quote the value: it may be a secret.
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


@attrs.frozen(kw_only=True)
class ClientConfig:
    """How a client talks to name servers and brokers. Java: ``ClientConfig``, ``NettyClientConfig``.

    Where seconds are wanted, ``math.inf`` means without end.

    Args:
        instance_name: takes the place of the process id in the client's id (Java: instanceName).
        unit_name: goes into the client's id, and into the URL that names name servers (unitName).
        unit_mode: marks the topics and groups that brokers create for this client as unit ones (unitMode).
        namespace: the tenant whose topics and groups this client knows by their short names (namespace).
        credentials: the identity that signs requests, or a CredentialsProvider that returns it. None signs
            nothing, for brokers that do not check access (AclClientRPCHook).
        tls: encryption, or None for plain text.
        vip_channel: send, and ask brokers for all but messages, over the port two below a broker's own,
            which pulls cannot keep busy (vipChannelEnabled).
        serialization: how the headers of requests are written: a Serialization or its name, such as "JSON".
        connect_timeout: seconds for one dial (connectTimeoutMillis).
        request_timeout: seconds for a request other than a send or a pull (mqClientApiTimeout).
        name_server_refresh_interval: seconds between two looks at the URL that names the name servers.
        route_refresh_interval: seconds between two looks at all routes in use (pollNameServerInterval).
        heartbeat_interval: seconds between two heartbeats to every broker (heartbeatBrokerInterval).
        default_topic_queues: queues of a topic that a broker has yet to create (defaultTopicQueueNums).
        max_buffered: bytes that may pile up for one connection before senders wait.
    """

    instance_name: str | None = attrs.field(default=None, validator=_instance_name)
    unit_name: str = attrs.field(default="", validator=_unit_name)
    unit_mode: bool = attrs.field(default=False, validator=flag)
    namespace: str = attrs.field(default="", validator=_namespace)
    credentials: Credentials | CredentialsProvider | None = attrs.field(
        default=None, validator=_credentials, repr=_shown_credentials
    )
    tls: TLS | None = attrs.field(default=None, validator=attrs.validators.optional(instance_of(TLS)))
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
    """Return the addresses that are named, or what the URL that is named will say.

    Args:
        address: ``host:port;host:port`` or a URL; None reads NAMESRV_ADDR, else takes 127.0.0.1:9876.
        config: the client's settings.

    Raises ConfigurationError if it is neither, an empty text too: mostly that is a variable that is not set.
    """
    text = address if address is not None else os.environ.get("NAMESRV_ADDR") or DEFAULT_ADDRESS
    if not is_url(text):
        return parse_addresses(text)
    return Discovery(text, unit_name=config.unit_name, tls=config.tls, timeout=config.request_timeout)


class ClientOptions(TypedDict, total=False):
    """The fields of ClientConfig, as keyword arguments."""

    instance_name: str | None
    unit_name: str
    unit_mode: bool
    namespace: str
    credentials: Credentials | CredentialsProvider | None
    tls: TLS | None
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
    """Return the names of a configuration class's fields."""
    return tuple(field.name for field in attrs.fields(config))


def split_options(
    options: Mapping[str, Any],
    *kinds: type[attrs.AttrsInstance],
    configs: Sequence[attrs.AttrsInstance] = (),
    group: str | None = None,
) -> list[dict[str, Any]]:
    """Return the arguments of each configuration class, from what a constructor was given.

    All constructors are called alike: ``Producer(address, ProducerConfig(retries=5), group="orders",
    request_timeout=1.0)``. After the address come configuration objects, in any order and at most one of a
    class, and then the fields of these classes as keywords. A keyword adds to what an object says: one that
    names a field which the object sets to something else than its default is an option given twice.

    Args:
        options: the keyword arguments.
        kinds: the configuration classes. No two may have a field of the same name.
        configs: the configuration objects.
        group: the option ``group``, if it was given.

    Raises:
        ConfigurationError: no class has an option of that name (the text names the nearest that one has), an
            option or a class is given twice, an object is of another class, or a field without a default
            has no value.
    """
    arguments: list[dict[str, Any]] = [{} for _ in kinds]
    seen: set[type] = set()
    for config in configs:
        kind = type(config)
        if kind not in kinds:
            names = ", ".join([one.__name__ for one in kinds])
            raise ConfigurationError(
                f"a {kind.__name__} is no configuration that this takes; it takes {names}"
            )
        if kind in seen:
            raise ConfigurationError(f"two {kind.__name__} are given; one is enough")
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
            raise ConfigurationError(f"{name} is given twice: by itself, and in the {kinds[index].__name__}")
        arguments[index][name] = value
    for kind, named in zip(kinds, arguments, strict=True):
        for name in _required(kind) - named.keys():
            raise ConfigurationError(f"{name} is missing: give it as a keyword or in a {kind.__name__}")
    return arguments


def _required(kind: type[attrs.AttrsInstance]) -> set[str]:
    return {field.name for field in attrs.fields(kind) if field.default is attrs.NOTHING}


def _changed_fields(config: attrs.AttrsInstance) -> dict[str, Any]:
    """Return the fields of an object that are not as they are by default."""
    values = {name: getattr(config, name) for name in field_names(type(config))}
    required = _required(type(config))
    plain = type(config)(**{name: values[name] for name in required})
    return {
        name: value for name, value in values.items() if name in required or value != getattr(plain, name)
    }
