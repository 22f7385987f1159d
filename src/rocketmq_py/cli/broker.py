"""``rocketmq-py broker``: the embedded broker as a program."""

from __future__ import annotations

import ipaddress

import click

from rocketmq_py.cli.options import checked, not_empty

_PORT = click.IntRange(0, 65535)


@click.command(short_help="Run an embedded name server and broker.")
@click.option(
    "--host", metavar="H", callback=checked(not_empty), default="127.0.0.1", show_default=True,
    help="The address to bind.",
)  # fmt: skip
@click.option(
    "--namesrv-port", metavar="PORT", type=_PORT, default=9876, show_default=True,
    help="The name server's port; 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--port", metavar="PORT", type=_PORT, default=10911, show_default=True,
    help="The broker's port; 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--advertise", metavar="IP", callback=checked(not_empty),
    help="The address that clients are told, where that is not H: --host 0.0.0.0 needs it.",
)  # fmt: skip
def broker(host: str, namesrv_port: int, port: int, advertise: str | None) -> None:
    """Run an embedded name server and broker, in memory, for tests and for trying things out.

    It prints one line with both addresses when it is ready, and ends with exit code 0 on Ctrl-C or
    SIGTERM. What it holds is gone then.
    """
    if _stands_for_all(advertise or host):
        raise click.UsageError(
            f"{advertise or host} stands for all addresses of this machine: --advertise must say which one "
            "clients use"
        )

    from rocketmq_py.cli.brokering import run_broker
    from rocketmq_py.cli.running import run

    run(lambda: run_broker(host, namesrv_port, port, advertise))


def _stands_for_all(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False  # the broker says what is wrong with it
