"""What users write as ``.option(name, value)``: read with types, and with all mistakes named at once."""

from __future__ import annotations

import difflib
import enum
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from rocketmq_py.address import parse_addresses
from rocketmq_py.client.config import ClientOptions
from rocketmq_py.client.discovery import Discovery, is_url
from rocketmq_py.client.namespace import check_namespace
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.remoting.tls import TLS


class Use(enum.Enum):
    """What options are given for; the value is what a user calls it."""

    READ = "batch source"
    READ_STREAM = "streaming source"
    WRITE = "batch sink"
    WRITE_STREAM = "streaming sink"


SOURCES = frozenset({Use.READ, Use.READ_STREAM})
SINKS = frozenset({Use.WRITE, Use.WRITE_STREAM})
ANY_USE = SOURCES | SINKS

SPARKS_OWN = frozenset(
    {"path", "paths", "checkpointlocation", "queryname", "outputmode", "triggerinterval", "schema"}
)
"""What Spark or its tools may put among a source's or sink's options, in lower case: let through."""

OTHER_NAMES: Mapping[str, str] = {
    "kafka.bootstrap.servers": "nameServer",
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
"""What other connectors call these options."""


@attrs.frozen
class Option:
    """One option that users may give.

    Args:
        name: as users write it; upper and lower case do not count.
        parse: makes the value of the text. Raises ValueError with what is allowed, or ConfigurationError
            with what is wrong.
        uses: what it may be given for.
        secret: its value stays out of all texts.

    Attributes:
        field: what it is called in Python: ``startingOffsets`` is ``starting_offsets``.
    """

    name: str
    parse: Callable[[str], object]
    uses: frozenset[Use] = ANY_USE
    secret: bool = False

    @property
    def field(self) -> str:
        """What the option is called in Python."""
        return re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", self.name)


def text(value: str) -> str:
    """Take any text that is not blank."""
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value.strip()


def secret_text(value: str) -> str:
    """Take a text as it is, blanks and all, if it has any character."""
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value


def boolean(value: str) -> bool:
    """Take ``true`` or ``false``, as Spark does."""
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.strip().lower() == "true"


def whole_number(lowest: int, highest: int = 2**63 - 1) -> Callable[[str], int]:
    """Return what takes the whole numbers of a range."""
    allowed = f"a whole number from {lowest}" if highest == 2**63 - 1 else f"{lowest} to {highest}"

    def parse(value: str) -> int:
        digits = value.strip()
        if not re.fullmatch("[0-9]+", digits, re.ASCII) or not lowest <= int(digits) <= highest:
            raise ValueError(f"{allowed}")
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
    """Take a duration as Spark writes them, ``15m``; a bare number is milliseconds. Return seconds."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.strip().lower(), re.ASCII)
    if match is None or match[2] not in _SECONDS or not int(match[1]):
        raise ValueError("a duration above 0 such as 500ms, 30s, 15m, 2h or 1d")
    return int(match[1]) * _SECONDS[match[2]]


def size(value: str) -> int:
    """Take a size as Spark writes them, ``32m``; a bare number is bytes. Return bytes."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.strip().lower(), re.ASCII)
    if match is None or match[2] not in {"", *_BYTES} or not int(match[1]):
        raise ValueError("a size above 0 such as 65536, 512k, 32m or 1g")
    return int(match[1]) * _BYTES.get(match[2], 1)


def address(value: str) -> str:
    """Take addresses of name servers, or a URL that names them."""
    if is_url(value):
        Discovery(value.strip())
    else:
        parse_addresses(value)
    return value.strip()


CONNECTION_OPTIONS: tuple[Option, ...] = (
    Option("nameServer", address),
    Option("namespace", check_namespace),
    Option("unitName", text),
    Option("accessKey", text),
    Option("secretKey", secret_text, secret=True),
    Option("securityToken", secret_text, secret=True),
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


@attrs.frozen(kw_only=True)
class ConnectionOptions:
    """How the processes of a Spark job reach the cluster; what their clients are kept by.

    Args:
        name_server: ``nameServer``: name servers as ``host:port;host:port``, or a URL that names them.
            Without it the driver's NAMESRV_ADDR is taken, for all processes.
        namespace: ``namespace``: the tenant whose topics and groups are known by their short names.
        unit_name: ``unitName``: goes into clients' ids, and into the URL that names name servers.
        access_key, secret_key, security_token: ``accessKey``, ``secretKey``, ``securityToken``: who signs
            the requests, where brokers check access; the first two belong together.
        use_tls: ``useTls``: encrypt. Any other option of TLS turns it on as well.
        tls_ca_file, tls_certificate_file, tls_key_file: paths on every machine of the job.
        tls_key_password, tls_server_name, tls_verify: the rest, as in :class:`rocketmq_py.TLS`.
        vip_channel: ``vipChannel``: as in ClientConfig.
        connect_timeout, request_timeout: ``connectTimeout``, ``requestTimeout``: seconds for one dial, and
            for one request; written as ``3s``, ``500ms`` or a number of milliseconds.
        route_refresh_interval: ``routeRefreshInterval``: seconds, written in the same way, between two looks
            at which queues there are.
    """

    name_server: str
    namespace: str = ""
    unit_name: str = ""
    access_key: str | None = None
    secret_key: str | None = attrs.field(default=None, repr=False)
    security_token: str | None = attrs.field(default=None, repr=False)
    use_tls: bool = False
    tls_ca_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    tls_key_password: str | None = attrs.field(default=None, repr=False)
    tls_server_name: str | None = None
    tls_verify: bool = True
    vip_channel: bool = False
    connect_timeout: float = 3.0
    request_timeout: float = 3.0
    route_refresh_interval: float = 30.0

    def client_options(self) -> ClientOptions:
        """Return the keyword arguments for a client, but for its address, ``name_server``."""
        options = ClientOptions(
            namespace=self.namespace,
            unit_name=self.unit_name,
            vip_channel=self.vip_channel,
            connect_timeout=self.connect_timeout,
            request_timeout=self.request_timeout,
            route_refresh_interval=self.route_refresh_interval,
        )
        if self.access_key is not None and self.secret_key is not None:
            options["credentials"] = Credentials(self.access_key, self.secret_key, self.security_token)
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


class Given:
    """The options of one source or sink, as far as they can be read, and what is wrong with them.

    Args:
        options: what the user gave; a value of None counts as not given.
        use: what for.
        known: what may be given.
        others: what may be given for other uses, so that a misplaced option is called that.

    Attributes:
        values: by ``Option.field``, those that were given and can be read.
        mistakes: one line each. Add to them what is found later, then call :meth:`check`.
    """

    def __init__(
        self,
        options: Mapping[str, str | None],
        use: Use,
        known: Sequence[Option],
        others: Sequence[Option] = (),
    ) -> None:
        self.use = use
        self.values: dict[str, Any] = {}
        self.mistakes: list[str] = []
        by_name = {option.name.lower(): option for option in (*others, *known, *CONNECTION_OPTIONS)}
        for name, value in options.items():
            option = by_name.get(name.lower())
            if value is None or (option is None and name.lower() in SPARKS_OWN):
                continue
            if option is None:
                self.mistakes.append(_unknown(name, by_name, use))
            elif use not in option.uses:
                self.mistakes.append(_misplaced(option, use))
            else:
                self._read(option, value)

    def _read(self, option: Option, value: str) -> None:
        try:
            self.values[option.field] = option.parse(value)
        except ConfigurationError as error:
            self.mistakes.append(f"{option.name}: {error}")
        except ValueError as error:
            said = "is not what is allowed:" if option.secret else f"is {value!r}; allowed is"
            self.mistakes.append(f"{option.name} {said} {error}")

    def connection(self) -> ConnectionOptions | None:
        """Take the connection's options out of the values; None, with mistakes named, if they are wrong."""
        fields = {option.field for option in CONNECTION_OPTIONS}
        values = {field: self.values.pop(field) for field in list(self.values) if field in fields}
        before = len(self.mistakes)
        if "name_server" not in values:
            self._take_address_of_environment(values)
        keys = values.keys() & {"access_key", "secret_key"}
        if len(keys) == 1 or ("security_token" in values and not keys):
            self.mistakes.append("accessKey and secretKey belong together, securityToken only with both")
        tls = [name for name in values if name.startswith("tls_")]
        if tls and values.get("use_tls") is False:
            self.mistakes.append("useTls is false, and other options of TLS are given; leave one out")
        if "tls_key_file" in values and "tls_certificate_file" not in values:
            self.mistakes.append("tlsKeyFile needs tlsCertificateFile")
        if len(self.mistakes) > before or "name_server" not in values:
            return None
        return ConnectionOptions(**values | {"use_tls": bool(tls) or values.get("use_tls", False)})

    def _take_address_of_environment(self, values: dict[str, Any]) -> None:
        if any(mistake.startswith("nameServer: ") for mistake in self.mistakes):
            return  # it was given, and is wrong
        given = os.environ.get("NAMESRV_ADDR", "")
        try:
            values["name_server"] = address(given)
        except ConfigurationError as error:
            reason = f"the driver's NAMESRV_ADDR is wrong: {error}" if given else "there is no NAMESRV_ADDR"
            self.mistakes.append(f"nameServer is missing, and {reason}; give it as host:port;host:port")

    def check(self) -> None:
        """Raise ConfigurationError if there is any mistake, with all of them."""
        if not self.mistakes:
            return
        number = len(self.mistakes)
        what = "an option is wrong" if number == 1 else f"{number} options are wrong"
        lines = "".join(f"\n  - {mistake}" for mistake in self.mistakes)
        raise ConfigurationError(f"rocketmq as a {self.use.value}: {what}:{lines}")


def _unknown(name: str, known: Mapping[str, Option], use: Use) -> str:
    other = OTHER_NAMES.get(name.lower(), "").lower()
    near = [other] if other in known else difflib.get_close_matches(name.lower(), known, n=3)
    options = sorted([known[each] for each in near], key=lambda option: use not in option.uses)
    if not options:
        return f"{name}: there is no such option"
    owner = "" if use in options[0].uses else f", an option of {_owners(options[0])}"
    return f"{name}: there is no such option; did you mean {options[0].name}{owner}?"


def _misplaced(option: Option, use: Use) -> str:
    return f"{option.name} is an option of {_owners(option)}; this is a {use.value}"


def _owners(option: Option) -> str:
    if option.uses == SOURCES:
        return "a source"
    if option.uses == SINKS:
        return "a sink"
    return " or ".join([f"a {each.value}" for each in Use if each in option.uses])
