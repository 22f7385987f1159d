"""Access to a cluster: the options of every command, their environment variables, and named clusters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import click
from click.core import ParameterSource

from rocketmq_py.cli.clusters import DEFAULT_ADDRESS, SECRET_SETTINGS, Access, Clusters, ClustersError
from rocketmq_py.cli.option_values import check_addresses, checked, not_empty, read_secret

Function = TypeVar("Function", bound=Callable[..., Any])

_PARAMETERS = {field.name: field.name for field in attrs.fields(Access)} | {"key": "private_key"}
"""The parameters of a command by the attributes of :class:`Access` that they set."""
_FILE = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    click.option(
        "-n", "name_servers", metavar="NAMESRV", callback=checked(check_addresses),
        envvar="NAMESRV_ADDR", show_envvar=True, show_default=DEFAULT_ADDRESS,
        help="Name servers: host:port, host:port;host:port, or a URL with a path that returns them.",
    ),
    click.option(
        "-C", "cluster_name", metavar="NAME", callback=checked(not_empty),
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
        "--ca", metavar="FILE", type=_FILE, envvar="ROCKETMQ_CA", show_envvar=True,
        help="Certificate authorities to trust instead of the system's. Implies --tls.",
    ),
    click.option(
        "--cert", metavar="FILE", type=_FILE, envvar="ROCKETMQ_CERT", show_envvar=True,
        help="Client certificate. Implies --tls.",
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
    return _with_options(function, "--key", "--tls-key")


def access_options_without_key(function: Function) -> Function:
    """Add the access options to a command whose ``--key`` is a message's key.

    The option for the private key is ``--tls-key`` only.
    """
    return _with_options(function, "--tls-key")


def access_of(context: click.Context) -> Access:
    """Return the access that the options of a command select. Its command line may be incomplete.

    An option takes precedence over the named cluster. An environment variable does so too, unless ``-C`` is
    on the command line.

    Raises click.UsageError if they are invalid.
    """
    given = {
        name: context.params[param]
        for name, param in _PARAMETERS.items()
        if context.params.get(param) is not None
    }
    settings = _settings_of(context.params.get("cluster_name"), or_default="name_servers" not in given)
    if context.get_parameter_source("cluster_name") is ParameterSource.COMMANDLINE:
        for name in settings.keys() & given.keys():
            if context.get_parameter_source(_PARAMETERS[name]) is ParameterSource.ENVIRONMENT:
                del given[name]
    access = Access(**{**settings, **given})
    if bool(access.access_key) != bool(access.secret_key):
        missing = "--secret-key" if access.access_key else "--access-key"
        raise click.UsageError(f"{missing} is missing: access and secret key belong together")
    if access.key and not access.cert:
        raise click.UsageError("--cert is missing: a private key needs its certificate")
    return access


def _settings_of(cluster_name: str | None, *, or_default: bool) -> dict[str, Any]:
    """Return the settings of the named cluster, or of the default cluster if there is one."""
    try:
        clusters = Clusters.load()
        name = cluster_name or (clusters.current if or_default else None)
        settings = {} if name is None else clusters.settings_of(name)
    except ClustersError as error:
        raise click.UsageError(str(error)) from None
    for secret in settings.keys() & SECRET_SETTINGS:
        try:
            settings[secret] = read_secret(str(settings[secret]))
        except ValueError as error:
            raise click.UsageError(f"cluster {name}: {error}") from None
    return settings


def _with_options(function: Function, *key_names: str) -> Function:
    @functools.wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        access = access_of(click.get_current_context())
        others = {
            name: value
            for name, value in options.items()
            if name != "cluster_name" and name not in _PARAMETERS.values()
        }
        return function(*args, access=access, **others)

    wrapped: Any = command
    key_option = click.option(
        *key_names, "private_key", metavar="FILE", type=_FILE, envvar="ROCKETMQ_KEY", show_envvar=True,
        help="Private key of the certificate, if it is in a separate file.",
    )  # fmt: skip
    for option in (key_option, *reversed(_OPTIONS)):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]
