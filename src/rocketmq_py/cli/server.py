"""``rocketmq-py server``: the embedded broker as a program."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rocketmq_py.cli.access import read_secret
from rocketmq_py.cli.options import checked, not_empty
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import MAX_QUEUES, check_topic

_FILE = click.Path(exists=True, dir_okay=False)
_PORT = click.IntRange(0, 65535)
Function = TypeVar("Function", bound=Callable[..., Any])


def server_options(*, hidden: bool = False) -> Callable[[Function], Function]:
    """Give a command the options of the embedded broker."""
    options = (
        click.option(
            "--host", metavar="H", callback=checked(not_empty), default="127.0.0.1", show_default=True,
            hidden=hidden, help="The address to bind.",
        ),
        click.option(
            "--namesrv-port", metavar="PORT", type=_PORT, default=9876, show_default=True,
            hidden=hidden, help="The name server's port; 0 takes a free one.",
        ),
        click.option(
            "--port", metavar="PORT", type=_PORT, default=10911, show_default=True,
            hidden=hidden, help="The broker's port; 0 takes a free one.",
        ),
        click.option(
            "--advertise", metavar="IP", callback=checked(not_empty), hidden=hidden,
            help="The address that clients are told, where that is not H: --host 0.0.0.0 needs it.",
        ),
        click.option(
            "-t", "--topic", "topics", metavar="TOPIC[:QUEUES]", multiple=True, callback=_topics,
            hidden=hidden, help="A topic that is there at once, with 4 queues or so many; repeatable.",
        ),
        click.option(
            "--access-key", metavar="KEY", callback=checked(not_empty), envvar="ROCKETMQ_ACCESS_KEY",
            show_envvar=True, hidden=hidden, help="Answer requests only that are signed by this one.",
        ),
        click.option(
            "--secret-key", metavar="SECRET", callback=checked(read_secret), envvar="ROCKETMQ_SECRET_KEY",
            show_envvar=True, hidden=hidden, help="Its secret, or @FILE: others see command lines.",
        ),
        click.option(
            "--cert", metavar="FILE", type=_FILE, hidden=hidden,
            help="Talk TLS, with this certificate (PEM).",
        ),
        click.option(
            "--key", "private_key", metavar="FILE", type=_FILE, hidden=hidden,
            help="The certificate's private key, if that is in a file of its own.",
        ),
        click.option(
            "--log-requests", is_flag=True, hidden=hidden, help="Write a line a request to stderr.",
        ),
    )  # fmt: skip

    def give(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return give


def serve(
    *, host: str, advertise: str | None, access_key: str | None, secret_key: str | None, **options: Any
) -> None:
    """Run the embedded broker until a signal ends it."""
    if _stands_for_all(advertise or host):
        raise click.UsageError(
            f"{advertise or host} stands for all addresses of this machine: --advertise must say which one "
            "clients use"
        )
    access_keys = {access_key: secret_key} if access_key is not None and secret_key is not None else {}
    if not access_keys and (access_key or secret_key):
        raise click.UsageError("--access-key and --secret-key go together")
    if options["private_key"] is not None and options["cert"] is None:
        raise click.UsageError("--key needs --cert")

    from rocketmq_py.cli.brokering import run_broker
    from rocketmq_py.cli.running import run

    run(lambda: run_broker(host=host, advertise=advertise, access_keys=access_keys, **options))


def _topics(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    topics = {}
    for value in values:
        name, colon, queues = value.partition(":")
        if colon and not (queues.isascii() and queues.isdigit() and 1 <= int(queues) <= MAX_QUEUES):
            raise click.BadParameter(f"{value!r}: after the colon is a number of queues, 1 to {MAX_QUEUES}")
        try:
            check_topic(name)
        except ConfigurationError as error:
            raise click.BadParameter(str(error)) from None
        topics[name] = int(queues) if colon else 4
    return topics


@click.command
@server_options()
def server(**options: Any) -> None:
    """Run an embedded name server and broker, in memory, for tests and for trying things out.

    With --access-key brokers answer those who sign their requests with it; with --cert name server and
    broker talk TLS; with --log-requests each request is a line on stderr.

    It prints one line with both addresses when it is ready, and ends with exit code 0 on Ctrl-C or
    SIGTERM. What it holds is gone then.
    """
    serve(**options)


def _stands_for_all(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False  # the broker says what is wrong with it
