"""``rocketmq-py broker``: its commands and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.console import complain
from rocketmq_py.cli.options import checked, not_empty, parse_property
from rocketmq_py.cli.server import serve, server, server_options
from rocketmq_py.cli.sheet import Column, Form, Sheet, at, show, takes_form, takes_watch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin, BrokerStatus
    from rocketmq_py.errors import RocketMQError

broker_argument: Final = click.argument("name", metavar="BROKER", callback=checked(not_empty))


@click.group(invoke_without_command=True)
@server_options(hidden=True)
def broker(**options: Any) -> None:
    """List and describe brokers, read and change their settings.

    A broker is named by its name, which means its master, or by its address.
    """
    if click.get_current_context().invoked_subcommand is None:
        complain(
            "`rocketmq-py broker` alone is deprecated and will be removed; start the embedded broker with "
            "`rocketmq-py server`"
        )
        serve(**options)


@broker.command("list")
@takes_form
@takes_watch
@takes_access
def list_brokers(access: Access, form: Form) -> None:
    """Print how all brokers are doing, replicas too."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.brokers.list()
        columns = [
            Column("BROKER"),
            Column("ROLE"),
            Column("ADDRESS"),
            Column("VERSION"),
            Column("IN/S", right=True),
            Column("OUT/S", right=True),
            Column("DISK", right=True),
            Column("STARTED"),
            Column("CLUSTER", wide=True),
            Column("ID", right=True, wide=True),
            Column("IN TODAY", right=True, wide=True),
            Column("OUT TODAY", right=True, wide=True),
            Column("SENDS WAITING", right=True, wide=True),
            Column("PULLS WAITING", right=True, wide=True),
        ]
        rows = [
            (
                one.name,
                _role(one),
                one.address,
                one.version,
                one.put_rate,
                one.get_rate,
                None if one.disk_ratio is None else f"{one.disk_ratio:.0%}",
                at(one.started_ms),
                one.cluster,
                one.broker_id,
                one.put_today,
                one.get_today,
                one.send_queue,
                one.pull_queue,
            )
            for one in listing.brokers
        ]
        show(form, [_status(one) for one in listing.brokers], [Sheet(columns, rows)])
        return listing.failures

    administer(access, work)


def _role(broker: BrokerStatus) -> str:
    return "master" if broker.is_master else "replica"


def _status(broker: BrokerStatus) -> dict[str, Any]:
    return {
        "broker": broker.name,
        "cluster": broker.cluster,
        "id": broker.broker_id,
        "role": _role(broker),
        "address": broker.address,
        "version": broker.version,
        "started_ms": broker.started_ms,
        "put_rate": broker.put_rate,
        "get_rate": broker.get_rate,
        "put_today": broker.put_today,
        "get_today": broker.get_today,
        "disk_ratio": broker.disk_ratio,
        "send_queue": broker.send_queue,
        "send_wait_ms": broker.send_wait_ms,
        "pull_queue": broker.pull_queue,
        "pull_wait_ms": broker.pull_wait_ms,
    }


@broker.command()
@broker_argument
@takes_form
@takes_watch
@takes_access
def describe(access: Access, form: Form, name: str) -> None:
    """Print all that a broker tells of itself."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> None:
        one = await admin.brokers.describe(name)
        rows = [*_status(one).items(), *one.details.items()]
        value = {**_status(one), "details": dict(one.details)}
        show(form, value, [Sheet([Column("NAME"), Column("VALUE")], [(key, _plain(v)) for key, v in rows])])

    administer(access, work)


def _plain(value: object) -> object:
    return None if value is None else str(value)


@broker.command()
@broker_argument
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1, callback=checked(parse_property))
@click.option("--yes", is_flag=True, help="Do not ask.")
@takes_form
@takes_access
def config(access: Access, form: Form, name: str, settings: tuple[tuple[str, str], ...], yes: bool) -> None:
    """Print a broker's settings, or change those that are given.

    Some take effect when it starts the next time.
    """
    from rocketmq_py.cli.administering import administer, ask_first

    changed = dict(settings)
    if changed:
        ask_first(f"Set {', '.join(changed)} of broker {name}", yes=yes)

    async def work(admin: Admin) -> None:
        if changed:
            await admin.brokers.alter(name, changed)
        found = await admin.brokers.settings(name)
        shown = {key: found[key] for key in changed} if changed else dict(found)
        show(form, shown, [Sheet([Column("NAME"), Column("VALUE")], list(shown.items()))])

    administer(access, work)


__all__ = ["broker", "server"]
