"""``rocketmq-py server``: the embedded broker as a program."""

from __future__ import annotations

import ipaddress
import shlex
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rocketmq_py.cli.console import print_line, print_out
from rocketmq_py.cli.option_values import checked, not_empty, read_secret
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import ConfigurationError

if TYPE_CHECKING:
    import ssl

    from rocketmq_py.broker import EmbeddedBroker
    from rocketmq_py.broker.config import BrokerConfig

_FILE = click.Path(exists=True, dir_okay=False)
_PORT = click.IntRange(0, 65535)
PROFILE_NAMES = (
    "alibaba-4", "alibaba-5", "alibaba-5-serverless", "tencent-4", "huawei", "volcengine",
)  # fmt: skip
"""The names of the profiles, repeated here so that ``--help`` does not import the broker."""


def _parse_topics(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        return ()

    from rocketmq_py.broker.topics import check_topics

    try:
        check_topics(values)
    except ConfigurationError as error:
        raise click.BadParameter(str(error)) from None
    return values


@click.command
@click.option(
    "--host", metavar="H", callback=checked(not_empty), default="127.0.0.1", show_default=True,
    help="Address to listen on.",
)  # fmt: skip
@click.option(
    "--namesrv-port", metavar="PORT", type=_PORT, default=9876, show_default=True,
    help="Port of the name server. 0 for any free port.",
)  # fmt: skip
@click.option(
    "--port", metavar="PORT", type=_PORT, default=10911, show_default=True,
    help="Port of the broker. 0 for any free port.",
)  # fmt: skip
@click.option(
    "--advertise", metavar="IP", callback=checked(not_empty),
    help="Broker address for clients, if it is not H. Required with --host 0.0.0.0.",
)  # fmt: skip
@click.option(
    "-t", "--topic", "topics", metavar="TOPIC[:QUEUES][:TYPE]", multiple=True, callback=_parse_topics,
    help="Create a topic with 4 queues, or QUEUES, for messages of a type such as FIFO. Repeatable.",
)  # fmt: skip
@click.option(
    "--profile", metavar="NAME", type=click.Choice(PROFILE_NAMES),
    help="Imitate a managed service: " + ", ".join(PROFILE_NAMES) + ".",
)  # fmt: skip
@click.option(
    "--no-auto-create", is_flag=True,
    help="Refuse messages to topics that do not exist, instead of creating them.",
)  # fmt: skip
@click.option(
    "--access-key", metavar="KEY", callback=checked(not_empty), envvar="ROCKETMQ_ACCESS_KEY",
    show_envvar=True, help="Accept only requests signed with this access key.",
)  # fmt: skip
@click.option(
    "--secret-key", metavar="SECRET", callback=checked(read_secret), envvar="ROCKETMQ_SECRET_KEY",
    show_envvar=True,
    help="Its secret key. Prefer @FILE: command lines are visible to other users.",
)  # fmt: skip
@click.option(
    "--tls-cert", "tls_certificate_file", metavar="FILE", type=_FILE,
    help="Use TLS with this certificate (PEM).",
)  # fmt: skip
@click.option(
    "--tls-key", "tls_key_file", metavar="FILE", type=_FILE,
    help="Private key of the certificate, if it is in a separate file.",
)  # fmt: skip
@click.option(
    "--log-requests", is_flag=True, help="Print a line per request to stderr.",
)  # fmt: skip
def server(
    *, host: str, advertise: str | None, access_key: str | None, secret_key: str | None, **options: Any
) -> None:
    """Run an embedded name server and broker in memory, for tests and experiments.

    When ready it prints one line with both addresses. Ctrl-C or SIGTERM ends it with exit code 0. All
    messages are lost then.
    """
    if _is_unspecified(advertise or host):
        raise click.UsageError(
            f"{advertise or host} means all addresses of this machine; --advertise must name the one that "
            "clients use"
        )
    access_keys = {access_key: secret_key} if access_key is not None and secret_key is not None else {}
    if not access_keys and (access_key or secret_key):
        raise click.UsageError("--access-key and --secret-key belong together")
    certificate_file, key_file = options["tls_certificate_file"], options["tls_key_file"]
    if key_file is not None and certificate_file is None:
        raise click.UsageError("--tls-key needs --tls-cert")

    from rocketmq_py.broker import EmbeddedBroker
    from rocketmq_py.cli.runner import run

    def make_broker() -> EmbeddedBroker:
        return EmbeddedBroker(
            host,
            options["namesrv_port"],
            options["port"],
            broker_ip1=advertise or "",
            topics=options["topics"],
            auto_create_topic_enable=not options["no_auto_create"],
            access_keys=access_keys,
            profile=options["profile"],
            tls=None if certificate_file is None else _tls_context(certificate_file, key_file),
            on_request=_print_request if options["log_requests"] else None,
        )

    run(lambda: _run_broker(make_broker))


def _is_unspecified(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False  # the broker reports an invalid address


async def _run_broker(make_broker: Callable[[], EmbeddedBroker]) -> None:
    """Serve until cancelled.

    Raises:
        ConfigurationError: it cannot listen on an address or port, or the certificate is invalid.
        CommandError: the line with its addresses cannot be written.
    """
    import trio

    from rocketmq_py.cli.runner import CommandError, log_warnings

    async with make_broker() as broker:
        try:
            print_out(f"ready: name server {broker.name_server_address}, broker {broker.broker_address}")
            if broker.settings.profile is not None:
                print_out(_needed_options(broker.settings))
        except OSError as error:
            reason = error.strerror or error
            raise CommandError(f"cannot write the addresses of the broker: {reason}") from error
        log_warnings()
        await trio.sleep_forever()


def _needed_options(config: BrokerConfig) -> str:
    """Return the options with which commands connect to a broker with a profile."""
    from rocketmq_py.broker.profile_rules import access_keys_of

    profile = config.profile
    assert profile is not None
    options = []
    if not config.access_keys:
        for access_key, secret_key in access_keys_of(config).items():
            options += ["--access-key", access_key, "--secret-key", secret_key]
    if profile.namespace is not None:
        options += ["--namespace", profile.namespace.value]
    if profile.namespace_v2 is not None:
        options += ["--namespace-v2", profile.namespace_v2.value]
    if profile.untrusted_tls is not None:
        options.append("--insecure")
    return f"{profile.service}; options of clients: {shlex.join(options)}"


def _tls_context(certificate_file: str, key_file: str | None) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate_file, key_file)
    except OSError as error:  # SSLError is a subclass
        files = certificate_file if key_file is None else f"{certificate_file} with {key_file}"
        raise ConfigurationError(f"{files} is not a certificate with its private key: {error}") from error
    return context


def _print_request(code: int, topic: str | None, client: str) -> None:
    """Print a request: time, code, topic and the client's address."""
    try:
        name = RequestCode(code).name
    except ValueError:
        name = str(code)
    now_ms = time.time_ns() // 1_000_000
    clock = f"{time.strftime('%H:%M:%S', time.localtime(now_ms / 1000))}.{now_ms % 1000:03}"
    print_line(sys.stderr, f"{clock} {name}{f' {topic}' if topic else ''} from {client}")
