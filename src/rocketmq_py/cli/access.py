"""How a command reaches a cluster: its options, the environment, and the clusters that have a name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click

from rocketmq_py.cli.clusters import Clusters, ClustersError
from rocketmq_py.cli.options import DEFAULT_ADDRESS, check_addresses, checked, not_empty

if TYPE_CHECKING:
    from rocketmq_py.client import ClientOptions

Function = TypeVar("Function", bound=Callable[..., Any])


def read_secret(text: str) -> str:
    """Return a secret, or what the file that ``@FILE`` names holds. Raises ValueError if there is none."""
    if not text.startswith("@"):
        return not_empty(text)
    try:
        secret = Path(text[1:]).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"cannot read {text[1:]}: {reason}") from None
    if not secret:
        raise ValueError(f"{text[1:]} is empty")
    return secret


@attrs.frozen(kw_only=True)
class Access:
    """Where a cluster is, and how it lets one in.

    Attributes:
        name_servers: ``host:port;host:port``, or a URL.
        access_key: who asks; None where brokers do not check that.
        secret_key: what requests are signed with.
        security_token: what a service for temporary identities gave out.
        tls: whether connections are encrypted.
        ca: the authorities to trust, a PEM file.
        cert: this client's certificate, a PEM file.
        key: its private key, a PEM file.
        insecure: whether any certificate is taken.
        namespace: the tenant.
    """

    name_servers: str = DEFAULT_ADDRESS
    access_key: str | None = None
    secret_key: str | None = attrs.field(default=None, repr=False)
    security_token: str | None = attrs.field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False
    namespace: str | None = None

    def client_options(self) -> ClientOptions:
        """Return what a client is opened with. Raises ConfigurationError for what cannot be."""
        from rocketmq_py.client import ClientOptions
        from rocketmq_py.credentials import Credentials
        from rocketmq_py.remoting import TLS

        options = ClientOptions()
        if self.access_key and self.secret_key:
            options["credentials"] = Credentials(self.access_key, self.secret_key, self.security_token)
        if self.tls or self.ca or self.cert or self.insecure:
            options["tls"] = TLS(
                ca_file=self.ca,
                certificate_file=self.cert,
                key_file=self.key,
                verify=not self.insecure,
            )
        if self.namespace:
            options["namespace"] = self.namespace
        return options


_FILE = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    click.option(
        "-n", "name_servers", metavar="NAMESRV", callback=checked(check_addresses),
        envvar="NAMESRV_ADDR", show_envvar=True, show_default=DEFAULT_ADDRESS,
        help="Name servers: host:port, several as host:port;host:port, or a URL that names them.",
    ),
    click.option(
        "-C", "cluster_name", metavar="NAME", callback=checked(not_empty),
        envvar="ROCKETMQ_CLUSTER", show_envvar=True,
        help="The cluster of this name in the configuration: rocketmq-py config --help.",
    ),
    click.option(
        "--access-key", metavar="KEY", callback=checked(not_empty), envvar="ROCKETMQ_ACCESS_KEY",
        show_envvar=True, help="Who asks, for brokers that check access.",
    ),
    click.option(
        "--secret-key", metavar="SECRET", callback=checked(read_secret), envvar="ROCKETMQ_SECRET_KEY",
        show_envvar=True, help="What requests are signed with, or @FILE: others see command lines.",
    ),
    click.option(
        "--security-token", metavar="TOKEN", callback=checked(read_secret),
        envvar="ROCKETMQ_SECURITY_TOKEN", show_envvar=True,
        help="The token of a temporary identity, or @FILE.",
    ),
    click.option(
        "--tls", is_flag=True, default=None, envvar="ROCKETMQ_TLS", show_envvar=True, help="Encrypt."
    ),
    click.option(
        "--ca", metavar="FILE", type=_FILE, envvar="ROCKETMQ_CA", show_envvar=True,
        help="The authorities to trust instead of the system's; encrypts.",
    ),
    click.option(
        "--cert", metavar="FILE", type=_FILE, envvar="ROCKETMQ_CERT", show_envvar=True,
        help="The client's certificate; encrypts.",
    ),
    click.option(
        "--insecure", is_flag=True, default=None, envvar="ROCKETMQ_INSECURE", show_envvar=True,
        help="Encrypt, and take any certificate.",
    ),
    click.option(
        "--namespace", metavar="NAME", callback=checked(not_empty), envvar="ROCKETMQ_NAMESPACE",
        show_envvar=True, help="The tenant whose topics and groups are meant.",
    ),
)  # fmt: skip
"""What is not given is None: then the named cluster says it."""


def takes_access(function: Function) -> Function:
    """Give a command the options of access; it gets them as ``access``."""
    return _with_options(function, "--key", "--tls-key")


def takes_access_beside_keys(function: Function) -> Function:
    """Do the same for a command whose ``--key`` is a message's: the private key is ``--tls-key`` there."""
    return _with_options(function, "--tls-key")


def access_of(options: Mapping[str, Any]) -> Access:
    """Return the access that a command's options name, as far as they are there. Raises UsageError."""
    given = {field.name: options.get(field.name) for field in attrs.fields(Access) if field.name != "key"}
    return _resolved(options.get("cluster_name"), {**given, "key": options.get("private_key")})


def _with_options(function: Function, *names_of_key: str) -> Function:
    @functools.wraps(function)
    def command(*args: Any, private_key: str | None, cluster_name: str | None, **options: Any) -> Any:
        given = {field.name: options.pop(field.name) for field in attrs.fields(Access) if field.name != "key"}
        given["key"] = private_key
        access = _resolved(cluster_name, given)
        return function(*args, access=access, **options)

    wrapped: Any = command
    key_option = click.option(
        *names_of_key, "private_key", metavar="FILE", type=_FILE, envvar="ROCKETMQ_KEY", show_envvar=True,
        help="The certificate's private key, if that is in a file of its own.",
    )  # fmt: skip
    for option in (key_option, *reversed(_OPTIONS)):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def _resolved(cluster_name: str | None, given: dict[str, Any]) -> Access:
    """Return the access that options and the named cluster make together; options come first."""
    given = {name: value for name, value in given.items() if value is not None}
    try:
        clusters = Clusters.load()
        name = cluster_name or (None if "name_servers" in given else clusters.current)
        settings = {} if name is None else clusters.settings_of(name)
    except ClustersError as error:
        raise click.UsageError(str(error)) from None
    if "secret_key" in settings:
        try:
            settings["secret_key"] = read_secret(str(settings["secret_key"]))
        except ValueError as error:
            raise click.UsageError(f"cluster {name}: {error}") from None
    access = Access(**{**settings, **given})
    if bool(access.access_key) != bool(access.secret_key):
        lacking = "--secret-key" if access.access_key else "--access-key"
        raise click.UsageError(f"{lacking} is missing: access and secret key belong together")
    return access
