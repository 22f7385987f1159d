"""Access to a cluster: the options of every command, their environment variables, and named clusters.

The named clusters are in ``config.toml``, which ``cluster_file`` writes.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import attrs
import click
from click.core import ParameterSource

from rocketmq_py.cli.console import complain
from rocketmq_py.cli.option_values import check_addresses, checked, not_empty, read_secret

if TYPE_CHECKING:
    from rocketmq_py.client import ClientOptions

File: TypeAlias = str
"""The name of a file."""
_PLAIN_NAME = re.compile(r"[\w.-]+")
DEFAULT_ADDRESS = "127.0.0.1:9876"
"""The client's default, repeated here so that ``--help`` does not import the client."""


@attrs.frozen(kw_only=True)
class Access:
    """The address of a cluster, and the credentials and TLS settings for it.

    Attributes:
        address: name servers as ``host:port;host:port``, or a URL that returns them.
        access_key: the access key. None for clusters without access control.
        secret_key: the secret key that signs requests.
        security_token: the token of temporary credentials.
        tls: whether to use TLS.
        tls_ca_file: a PEM file of the certificate authorities to trust.
        tls_certificate_file: a PEM file of the client's certificate.
        tls_key_file: a PEM file of the certificate's private key.
        insecure: whether to use TLS without verifying the server's certificate.
        proxy: the URL of a SOCKS5 proxy. It may contain a password.
        namespace: the namespace of topics and groups. None takes it from the address, if that contains one.
        namespace_v2: the namespace as a field of every request.
        start_deliver_time: whether producers send delivery times as ``__STARTDELIVERTIME``, too. None decides
            by the address.
    """

    address: str = DEFAULT_ADDRESS
    access_key: str | None = None
    secret_key: str | None = attrs.field(default=None, repr=False)
    security_token: str | None = attrs.field(default=None, repr=False)
    tls: bool = False
    tls_ca_file: File | None = None
    tls_certificate_file: File | None = None
    tls_key_file: File | None = None
    insecure: bool = False
    proxy: str | None = attrs.field(default=None, repr=False)
    namespace: str | None = None
    namespace_v2: str | None = None
    start_deliver_time: bool | None = None

    def client_options(self) -> ClientOptions:
        """Return the options of a client. Raises ConfigurationError if they are invalid."""
        from rocketmq_py.client import ClientOptions
        from rocketmq_py.credentials import Credentials
        from rocketmq_py.remoting import TLS, SocksProxy

        options = ClientOptions()
        if self.access_key and self.secret_key:
            options["credentials"] = Credentials(self.access_key, self.secret_key, self.security_token)
        if self.tls or self.tls_ca_file or self.tls_certificate_file or self.insecure:
            options["tls"] = TLS(
                ca_file=self.tls_ca_file,
                certificate_file=self.tls_certificate_file,
                key_file=self.tls_key_file,
                verify=not self.insecure,
            )
        if self.proxy:
            options["proxy"] = SocksProxy.parse(self.proxy)
        if self.namespace is not None:
            options["namespace"] = self.namespace
        if self.namespace_v2:
            options["namespace_v2"] = self.namespace_v2
        return options


def _names_of(kind: str) -> tuple[str, ...]:
    return tuple(
        field.name for field in attrs.fields(Access) if str(field.type).removesuffix(" | None") == kind
    )


FLAG_SETTINGS = _names_of("bool")
FILE_SETTINGS = _names_of("File")
TEXT_SETTINGS = tuple(field.name for field in attrs.fields(Access) if field.name not in FLAG_SETTINGS)
SECRET_SETTINGS = tuple(field.name for field in attrs.fields(Access) if not field.repr)
"""Settings that may be ``@FILE``, the name of a file that contains the value."""


def is_secret(name: str, value: object) -> bool:
    """Return whether a setting's value is a secret. Names of files and proxies without a password are not."""
    text = str(value)
    return name in SECRET_SETTINGS and not text.startswith("@") and (name != "proxy" or "@" in text)


class ClustersError(click.ClickException):
    """The file cannot be read or written, or does not have a cluster. The text says why."""


def file_of_clusters() -> Path:
    """Return where the file is: ROCKETMQ_CONFIG, else where this system keeps settings."""
    if named := os.environ.get("ROCKETMQ_CONFIG"):
        return Path(named)
    from platformdirs import user_config_path

    return user_config_path("rocketmq-py") / "config.toml"


def read_file(path: Path) -> str:
    """Return the text of the file, empty if it does not exist. Raises ClustersError if it is unreadable."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ClustersError(f"cannot read {path}: {reason}") from None


@attrs.frozen
class Clusters:
    """The content of the file.

    Attributes:
        path: the file.
        current: the default cluster.
        by_name: the settings of each cluster.
    """

    path: Path
    current: str | None = None
    by_name: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    @classmethod
    def load(cls) -> Clusters:
        """Read the file. Without a file there are no clusters.

        Prints a warning if other users may read a file with a secret.

        Raises:
            ClustersError: the file cannot be read, or its content is invalid.
        """
        path = file_of_clusters()
        loaded = cls.parse(path, read_file(path))
        loaded._warn_of_readers()
        return loaded

    @classmethod
    def parse(cls, path: Path, text: str) -> Clusters:
        """Return the clusters in the text of a file. Raises ClustersError if the text is invalid."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ClustersError(f"{path} is not valid TOML: {error}") from None
        clusters = document.get("clusters", {})
        current = document.get("current")
        if not isinstance(clusters, dict) or not isinstance(current, str | None):
            raise ClustersError(f'{path} must contain current = "NAME" and tables [clusters.NAME]')
        for name, settings in clusters.items():
            _check(path, name, settings)
        return cls(path, current, clusters)

    def settings_of(self, name: str) -> dict[str, Any]:
        """Return the settings of a cluster. Raises ClustersError if no cluster has this name."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise ClustersError(f"{self.path} has no cluster {name!r}; it has {known}")
        return dict(self.by_name[name])

    def _warn_of_readers(self) -> None:
        holds_secret = any(
            is_secret(name, value) for settings in self.by_name.values() for name, value in settings.items()
        )
        if holds_secret and os.name == "posix" and self.path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            complain(f"{self.path} contains a secret and is readable by other users; run chmod 600 on it")


def complete_clusters(_: click.Context, __: click.Parameter, prefix: str) -> list[str]:
    """Return the named clusters that start with ``prefix``, without those that a shell could run code in."""
    path = file_of_clusters()
    try:
        names = Clusters.parse(path, read_file(path)).by_name
    except ClustersError:
        return []
    return [name for name in sorted(names) if name.startswith(prefix) and _PLAIN_NAME.fullmatch(name)]


def _check(path: Path, name: str, settings: object) -> None:
    if not isinstance(settings, dict):
        raise ClustersError(f"{path}: clusters.{name} is not a table")
    for key, value in settings.items():
        if key not in (*TEXT_SETTINGS, *FLAG_SETTINGS):
            known = ", ".join((*TEXT_SETTINGS, *FLAG_SETTINGS))
            raise ClustersError(f"{path}: cluster {name!r} has an unknown setting {key!r}; settings: {known}")
        if not isinstance(value, bool if key in FLAG_SETTINGS else str):
            kind = "true or false" if key in FLAG_SETTINGS else "a string"
            raise ClustersError(f"{path}: {key} of cluster {name!r} must be {kind}")


# Options of commands

Function = TypeVar("Function", bound=Callable[..., Any])

_PARAMETERS = tuple(field.name for field in attrs.fields(Access))
"""The parameters of a command that set the attributes of :class:`Access` with these names."""
_FILE = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    click.option(
        "-n", "address", metavar="NAMESRV", callback=checked(check_addresses),
        envvar="NAMESRV_ADDR", show_envvar=True, show_default=DEFAULT_ADDRESS,
        help="Name servers: host:port, host:port;host:port, or a URL with a path that returns them.",
    ),
    click.option(
        "-C", "cluster_name", metavar="NAME", callback=checked(not_empty), shell_complete=complete_clusters,
        envvar="ROCKETMQ_CLUSTER", show_envvar=True,
        help="A named cluster of the configuration. See rocketmq-py config --help.",
    ),
    click.option(
        "--access-key", metavar="KEY", callback=checked(not_empty), envvar="ROCKETMQ_ACCESS_KEY",
        show_envvar=True, help="Access key, for clusters with access control.",
    ),
    click.option(
        "--secret-key", metavar="SECRET", callback=checked(read_secret), envvar="ROCKETMQ_SECRET_KEY",
        show_envvar=True,
        help="Secret key that signs requests. Prefer @FILE: command lines are visible to other users.",
    ),
    click.option(
        "--security-token", metavar="TOKEN", callback=checked(read_secret),
        envvar="ROCKETMQ_SECURITY_TOKEN", show_envvar=True,
        help="Token of temporary credentials, or @FILE.",
    ),
    click.option(
        "--tls", is_flag=True, default=None, envvar="ROCKETMQ_TLS", show_envvar=True, help="Use TLS."
    ),
    click.option(
        "--tls-ca", "tls_ca_file", metavar="FILE", type=_FILE, envvar="ROCKETMQ_TLS_CA", show_envvar=True,
        help="Certificate authorities to trust instead of the system's. Implies --tls.",
    ),
    click.option(
        "--tls-cert", "tls_certificate_file", metavar="FILE", type=_FILE, envvar="ROCKETMQ_TLS_CERT",
        show_envvar=True, help="Client certificate. Implies --tls.",
    ),
    click.option(
        "--tls-key", "tls_key_file", metavar="FILE", type=_FILE, envvar="ROCKETMQ_TLS_KEY", show_envvar=True,
        help="Private key of the certificate, if it is in a separate file.",
    ),
    click.option(
        "--insecure", is_flag=True, default=None, envvar="ROCKETMQ_INSECURE", show_envvar=True,
        help="Use TLS without verifying the server's certificate.",
    ),
    click.option(
        "--proxy", metavar="URL", callback=checked(read_secret), envvar="ROCKETMQ_PROXY", show_envvar=True,
        help="SOCKS5 proxy: socks5://user:password@host:port, or @FILE. Command lines are visible to others.",
    ),
    click.option(
        "--namespace", metavar="NAME", envvar="ROCKETMQ_NAMESPACE", show_envvar=True,
        help="Namespace of topics and groups. By default that of a host MQ_INST_...; '' for none.",
    ),
    click.option(
        "--namespace-v2", metavar="NAME", callback=checked(not_empty), envvar="ROCKETMQ_NAMESPACE_V2",
        show_envvar=True, help="Namespace as a field of requests, for services that need it.",
    ),
)  # fmt: skip
"""Options that are not given are None. The named cluster then provides their values: see access_of()."""


def access_options(function: Function) -> Function:
    """Add the access options to a command. It receives them as ``access``."""

    @functools.wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        access = access_of(click.get_current_context())
        others = {
            name: value
            for name, value in options.items()
            if name != "cluster_name" and name not in _PARAMETERS
        }
        return function(*args, access=access, **others)

    wrapped: Any = command
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def access_of(context: click.Context) -> Access:
    """Return the access that the options of a command select. Its command line may be incomplete.

    An option takes precedence over the named cluster. An environment variable does so too, unless ``-C`` is
    on the command line.

    Raises click.UsageError if they are invalid, and ClustersError if the named cluster is, or does not exist.
    """
    given = {name: value for name in _PARAMETERS if (value := context.params.get(name)) is not None}
    settings = _settings_of(context.params.get("cluster_name"), or_default="address" not in given)
    if context.get_parameter_source("cluster_name") is ParameterSource.COMMANDLINE:
        for name in settings.keys() & given.keys():
            if context.get_parameter_source(name) is ParameterSource.ENVIRONMENT:
                del given[name]
    access = Access(**{**settings, **given})
    if bool(access.access_key) != bool(access.secret_key):
        missing = "--secret-key" if access.access_key else "--access-key"
        raise click.UsageError(f"{missing} is missing: access and secret key belong together")
    if access.tls_key_file and not access.tls_certificate_file:
        raise click.UsageError("--tls-cert is missing: a private key needs its certificate")
    return access


def _settings_of(cluster_name: str | None, *, or_default: bool) -> dict[str, Any]:
    """Return the settings of the named cluster, or of the default cluster if there is one."""
    clusters = Clusters.load()
    name = cluster_name or (clusters.current if or_default else None)
    settings = {} if name is None else clusters.settings_of(name)
    for secret in settings.keys() & SECRET_SETTINGS:
        try:
            settings[secret] = read_secret(str(settings[secret]))
        except ValueError as error:
            raise ClustersError(f"cluster {name}: {error}") from None
    return settings
