"""``rocketmq-py server``: the embedded broker as a program."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rocketmq_py.cli.options import checked, not_empty

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
    )  # fmt: skip

    def give(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return give


def serve(host: str, namesrv_port: int, port: int, advertise: str | None) -> None:
    """Run the embedded broker until a signal ends it."""
    if _stands_for_all(advertise or host):
        raise click.UsageError(
            f"{advertise or host} stands for all addresses of this machine: --advertise must say which one "
            "clients use"
        )

    from rocketmq_py.cli.brokering import run_broker
    from rocketmq_py.cli.running import run

    run(lambda: run_broker(host, namesrv_port, port, advertise))


@click.command
@server_options()
def server(**options: Any) -> None:
    """Run an embedded name server and broker, in memory, for tests and for trying things out.

    It prints one line with both addresses when it is ready, and ends with exit code 0 on Ctrl-C or
    SIGTERM. What it holds is gone then.
    """
    serve(**options)


def _stands_for_all(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False  # the broker says what is wrong with it
