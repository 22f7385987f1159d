"""Parsing the options that users set with ``.option(name, value)``, and the options of the connection.

:class:`Option` declares one option. :class:`ParsedOptions` parses all options of a source or sink and
collects their mistakes, so that one ConfigurationError lists them all.
"""

from __future__ import annotations

import difflib
import enum
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from rocketmq_py.address import parse_addresses
from rocketmq_py.client.discovery import Discovery, is_url
from rocketmq_py.client.namespace import check_namespace
from rocketmq_py.client.settings import ClientOptions, ClientSettings
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.remoting.tls import TLS


class Role(enum.Enum):
    """The part of the format that a user's options configure. The value is its name in messages."""

    BATCH_SOURCE = "batch source"
    STREAM_SOURCE = "streaming source"
    BATCH_SINK = "batch sink"
    STREAM_SINK = "streaming sink"


SOURCES = frozenset({Role.BATCH_SOURCE, Role.STREAM_SOURCE})
SINKS = frozenset({Role.BATCH_SINK, Role.STREAM_SINK})
ALL_ROLES = SOURCES | SINKS

SPARK_OPTIONS = frozenset(
    {"path", "paths", "checkpointlocation", "queryname", "outputmode", "triggerinterval", "schema"}
)
"""Options in lower case that Spark and its tools pass along with a user's. They are ignored."""

OTHER_NAMES: Mapping[str, str] = {
    "kafka.bootstrap.servers": "nameServer",
    "address": "nameServer",
    "namesrvaddr": "nameServer",
    "namesrv_addr": "nameServer",
    "subscribe": "topic",
    "topics": "topic",
    "subscribepattern": "topicPattern",
    "subexpression": "tags",
    "group": "consumerGroup",
    "groupidprefix": "consumerGroup",
    "kafka.group.id": "consumerGroup",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
}
"""Names of other connectors' options, in lower case, and the option to suggest instead."""


@attrs.frozen
class Option:
    """The declaration of one option.

    Args:
        name: the name in a user's program, compared without case.
        parse: converts the text to a value. Raises ValueError with the allowed values, or
            ConfigurationError with the mistake.
        roles: the roles that accept the option.
        secret: keep the value out of all messages.

    Attributes:
        field: the Python name: ``startingOffsets`` becomes ``starting_offsets``.
    """

    name: str
    parse: Callable[[str], object]
    roles: frozenset[Role] = ALL_ROLES
    secret: bool = False

    @property
    def field(self) -> str:
        """The name of the attribute that holds the value."""
        return re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", self.name)


# Parsers: each takes an option's text and returns its value, or raises ValueError with the allowed values.


def text(value: str) -> str:
    """Parse a text that is not blank. Surrounding blanks are stripped."""
    return secret_text(value).strip()


def secret_text(value: str) -> str:
    """Parse a text that is not blank. Surrounding blanks are kept: they may be part of a password."""
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value


def boolean(value: str) -> bool:
    """Parse ``true`` or ``false`` in any case, as Spark does."""
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.strip().lower() == "true"


def whole_number(lowest: int, highest: int = 2**63 - 1) -> Callable[[str], int]:
    """Return a parser for the whole numbers of a range, both bounds included."""
    allowed = f"a whole number from {lowest}" if highest == 2**63 - 1 else f"{lowest} to {highest}"

    def parse(value: str) -> int:
        digits = value.strip()
        if not re.fullmatch("[0-9]+", digits, re.ASCII) or not lowest <= int(digits) <= highest:
            raise ValueError(allowed)
        return int(digits)

    return parse


_SECONDS: Mapping[str, float] = {
    "us": 1e-6,
    "ms": 1e-3,
    "": 1e-3,
    "s": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "d": 86400,
}
_BYTES: Mapping[str, int] = {
    suffix: int(1024**power) for power, letter in enumerate("bkmgt") for suffix in {letter, letter + "b"}
}


def duration(value: str) -> float:
    """Parse a duration in Spark's notation, such as ``15m``, into seconds. A bare number is milliseconds."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.strip().lower(), re.ASCII)
    if match is None or match[2] not in _SECONDS or not int(match[1]):
        raise ValueError("a duration above 0 such as 500ms, 30s, 15m, 2h or 1d")
    return int(match[1]) * _SECONDS[match[2]]


def size(value: str) -> int:
    """Parse a size in Spark's notation, such as ``32m``, into bytes. A bare number is bytes."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.strip().lower(), re.ASCII)
    if match is None or match[2] not in {"", *_BYTES} or not int(match[1]):
        raise ValueError("a size above 0 such as 65536, 512k, 32m or 1g")
    return int(match[1]) * _BYTES.get(match[2], 1)


def address(value: str) -> str:
    """Parse the addresses of name servers, or a URL that serves them."""
    if is_url(value):
        Discovery(value.strip())
    else:
        parse_addresses(value)
    return value.strip()


def function_name(value: str) -> str:
    """Parse the name of a function, ``module:function``."""
    module, _, function = value.strip().partition(":")
    if not (function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError("module:function, such as company.tokens:rocketmq_credentials")
    return value.strip()


CONNECTION_OPTIONS: tuple[Option, ...] = (
    Option("nameServer", address),
    Option("namespace", check_namespace),
    Option("namespaceV2", text),
    Option("unitName", text),
    Option("accessKey", text),
    Option("secretKey", secret_text, secret=True),
    Option("securityToken", secret_text, secret=True),
    Option("credentialsProvider", function_name),
    Option("useTls", boolean),
    Option("tlsCaFile", text),
    Option("tlsCertificateFile", text),
    Option("tlsKeyFile", text),
    Option("tlsKeyPassword", secret_text, secret=True),
    Option("tlsServerName", text),
    Option("tlsVerify", boolean),
    Option("vipChannel", boolean),
    Option("connectTimeout", duration),
    Option("requestTimeout", duration),
    Option("routeRefreshInterval", duration),
)


_CLIENT = ClientSettings()
"""The defaults of a Client."""


@attrs.frozen(kw_only=True)
class ConnectionOptions:
    """The options that describe how to reach the cluster. Each process caches its client by them.

    Durations are written as ``3s``, ``500ms`` or a number of milliseconds.

    Args:
        name_server: ``nameServer``: name servers as ``host:port;host:port``, or a URL that serves them.
            Default: the driver's NAMESRV_ADDR, for all processes.
        namespace: ``namespace``: the namespace of all topics and groups. Default: that in the address, if it
            contains one.
        access_key, secret_key, security_token: ``accessKey``, ``secretKey``, ``securityToken``: the
            credentials that sign requests. The access key and the secret key belong together.
        credentials_provider: ``credentialsProvider``: ``module:function``, instead of the keys: a function
            without arguments that returns Credentials. Every Python process of the job imports and calls it,
            as :data:`rocketmq_py.credentials.CredentialsProvider` describes.
        use_tls: ``useTls``: encrypt connections. Any other TLS option turns it on as well.
        tls_ca_file, tls_certificate_file, tls_key_file: paths, which must exist on every machine of the job.
        tls_key_password, tls_server_name, tls_verify: as in :class:`rocketmq_py.TLS`.
        namespace_v2, unit_name, vip_channel, connect_timeout, request_timeout, route_refresh_interval:
            ``namespaceV2``, ``unitName``, ``vipChannel``, ``connectTimeout``, ``requestTimeout``,
            ``routeRefreshInterval``: the settings of a Client with these names, and their defaults.
    """

    name_server: str
    namespace: str | None = None
    namespace_v2: str = _CLIENT.namespace_v2
    unit_name: str = _CLIENT.unit_name
    access_key: str | None = None
    secret_key: str | None = attrs.field(default=None, repr=False)
    security_token: str | None = attrs.field(default=None, repr=False)
    credentials_provider: str | None = None
    use_tls: bool = False
    tls_ca_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    tls_key_password: str | None = attrs.field(default=None, repr=False)
    tls_server_name: str | None = None
    tls_verify: bool = True
    vip_channel: bool = _CLIENT.vip_channel
    connect_timeout: float = _CLIENT.connect_timeout
    request_timeout: float = _CLIENT.request_timeout
    route_refresh_interval: float = _CLIENT.route_refresh_interval

    def client_options(self) -> ClientOptions:
        """Return the keyword arguments of a client. Its address is ``name_server``.

        Raises ConfigurationError if the credentials provider cannot be imported.
        """
        options = ClientOptions(
            namespace=self.namespace,
            namespace_v2=self.namespace_v2,
            unit_name=self.unit_name,
            vip_channel=self.vip_channel,
            connect_timeout=self.connect_timeout,
            request_timeout=self.request_timeout,
            route_refresh_interval=self.route_refresh_interval,
        )
        if self.access_key is not None and self.secret_key is not None:
            options["credentials"] = Credentials(self.access_key, self.secret_key, self.security_token)
        if self.credentials_provider is not None:
            options["credentials"] = _import_function("credentialsProvider", self.credentials_provider)
        if self.use_tls:
            options["tls"] = TLS(
                ca_file=self.tls_ca_file,
                certificate_file=self.tls_certificate_file,
                key_file=self.tls_key_file,
                key_password=self.tls_key_password,
                server_name=self.tls_server_name,
                verify=self.tls_verify,
            )
        return options


def _import_function(option: str, name: str) -> Callable[[], Any]:
    """Import a function, ``module:function``. Raises ConfigurationError if that fails."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ConfigurationError(
            f"{option}: cannot import {name} with {sys.executable}: {type(error).__name__}: {error}; every "
            "Python process of the job needs its module"
        ) from error
    if not callable(function):
        raise ConfigurationError(f"{option}: {name} is not a function but {type(function).__name__}")
    return function  # type: ignore[no-any-return]


class ParsedOptions:
    """The parsed options of one source or sink, and the mistakes in them.

    Args:
        options: option texts by name. A value of None counts as absent.
        role: the role that the options configure.
        known: the options of that source or sink.
        others: the options of the opposite end, so that a misplaced option is reported as such.

    Attributes:
        values: the values of all valid options, by ``Option.field``.
        mistakes: one line per mistake. Callers append their own before they call :meth:`check`.
    """

    def __init__(
        self,
        options: Mapping[str, str | None],
        role: Role,
        known: Sequence[Option],
        others: Sequence[Option] = (),
    ) -> None:
        self.role = role
        self.values: dict[str, Any] = {}
        self.mistakes: list[str] = []
        by_name = {option.name.lower(): option for option in (*others, *known, *CONNECTION_OPTIONS)}
        for name, value in options.items():
            option = by_name.get(name.lower())
            if value is None or (option is None and name.lower() in SPARK_OPTIONS):
                continue
            if option is None:
                self.mistakes.append(_unknown(name, by_name, role))
            elif role not in option.roles:
                self.mistakes.append(_misplaced(option, role))
            else:
                self._parse(option, value)

    def _parse(self, option: Option, value: str) -> None:
        try:
            self.values[option.field] = option.parse(value)
        except ConfigurationError as error:
            self.mistakes.append(f"{option.name}: {error}")
        except ValueError as error:
            shown = "" if option.secret else f" {value!r}"
            self.mistakes.append(f"{option.name}: invalid value{shown}; allowed: {error}")

    def pop_connection(self) -> ConnectionOptions | None:
        """Remove the connection's options from the values and return them. None if they are invalid."""
        fields = {option.field for option in CONNECTION_OPTIONS}
        values = {field: self.values.pop(field) for field in list(self.values) if field in fields}
        mistakes_before = len(self.mistakes)
        if "name_server" not in values:
            self._add_address_from_environment(values)
        keys = values.keys() & {"access_key", "secret_key"}
        if len(keys) == 1 or ("security_token" in values and not keys):
            self.mistakes.append(
                "accessKey and secretKey must be set together, and securityToken only with both of them"
            )
        if "credentials_provider" in values and (keys or "security_token" in values):
            self.mistakes.append("credentialsProvider excludes accessKey, secretKey and securityToken")
        tls_options = [name for name in values if name.startswith("tls_")]
        if tls_options and values.get("use_tls") is False:
            self.mistakes.append("useTls is false, but other TLS options are set; remove one or the other")
        if "tls_key_file" in values and "tls_certificate_file" not in values:
            self.mistakes.append("tlsKeyFile needs tlsCertificateFile")
        if len(self.mistakes) > mistakes_before or "name_server" not in values:
            return None
        return ConnectionOptions(**values | {"use_tls": bool(tls_options) or values.get("use_tls", False)})

    def _add_address_from_environment(self, values: dict[str, Any]) -> None:
        if any(mistake.startswith("nameServer: ") for mistake in self.mistakes):
            return  # the option is set but invalid, which has been reported
        variable = os.environ.get("NAMESRV_ADDR", "")
        try:
            values["name_server"] = address(variable)
        except ConfigurationError as error:
            reason = f"the driver's NAMESRV_ADDR is invalid: {error}" if variable else "NAMESRV_ADDR is unset"
            self.mistakes.append(f"nameServer is missing, and {reason}; set it to host:port;host:port")

    def check(self) -> None:
        """Raise ConfigurationError with all mistakes, if there are any."""
        if not self.mistakes:
            return
        number = len(self.mistakes)
        summary = "1 invalid option" if number == 1 else f"{number} invalid options"
        lines = "".join(f"\n  - {mistake}" for mistake in self.mistakes)
        raise ConfigurationError(f"rocketmq {self.role.value}: {summary}:{lines}")


def _unknown(name: str, known: Mapping[str, Option], role: Role) -> str:
    """Describe an unknown option, and suggest the option that the user probably meant."""
    other = OTHER_NAMES.get(name.lower(), "").lower()
    near = [other] if other in known else difflib.get_close_matches(name.lower(), known, n=3)
    options = sorted([known[each] for each in near], key=lambda option: role not in option.roles)
    if not options:
        return f"{name}: unknown option"
    owner = "" if role in options[0].roles else f", an option of {_owners(options[0])}"
    return f"{name}: unknown option; did you mean {options[0].name}{owner}?"


def _misplaced(option: Option, role: Role) -> str:
    return f"{option.name} is an option of {_owners(option)}; this is a {role.value}"


def _owners(option: Option) -> str:
    if option.roles == SOURCES:
        return "a source"
    if option.roles == SINKS:
        return "a sink"
    return " or ".join([f"a {each.value}" for each in Role if each in option.roles])
