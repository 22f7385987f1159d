"""``rocketmq-py broker``: status and settings of brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from rocketmq_py.cli.admin_runner import partial_result, run_admin
from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.config import HIDDEN
from rocketmq_py.cli.option_values import checked, not_empty, parse_property
from rocketmq_py.cli.options import yes_option
from rocketmq_py.cli.prompts import confirm
from rocketmq_py.cli.table_layout import Column
from rocketmq_py.cli.tables import (
    Field,
    Listing,
    OutputFormat,
    Table,
    format_time,
    output_option,
    print_result,
    watch_option,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rocketmq_py.admin import Admin
    from rocketmq_py.errors import RocketMQError

SECRET_SETTINGS = ("initAuthenticationUser", "innerClientAuthenticationCredentials")
"""Settings with a password that brokers from 5.3 on return if their configuration file has them."""
broker_argument: Final = click.argument("name", metavar="BROKER", callback=checked(not_empty))

BROKERS: Final = Listing(
    Field("broker_name", "BROKER"),
    Field("is_master", "ROLE", cell=lambda is_master: "master" if is_master else "replica"),
    Field("address", "ADDRESS"),
    Field("version", "VERSION"),
    Field("put_rate", "IN/S", right=True),
    Field("get_rate", "OUT/S", right=True),
    Field("disk_ratio", "DISK", cell=lambda ratio: None if ratio is None else f"{ratio:.0%}", right=True),
    Field("started_ms", "STARTED", cell=format_time),
    Field("cluster", "CLUSTER", wide=True),
    Field("broker_id", "ID", right=True, wide=True),
    Field("put_today", "IN TODAY", right=True, wide=True),
    Field("get_today", "OUT TODAY", right=True, wide=True),
    Field("send_queue", "SENDS WAITING", right=True, wide=True),
    Field("send_wait_ms"),
    Field("pull_queue", "PULLS WAITING", right=True, wide=True),
    Field("pull_wait_ms"),
)


@click.group
def broker() -> None:
    """List and describe brokers, show and change their settings, take them out of service.

    BROKER is the name of a broker, which means its master, or an address.
    """


@broker.command("list")
@output_option
@watch_option
@access_options
def list_brokers(access: Access, output: OutputFormat) -> None:
    """List all brokers, with replicas, and their status."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.brokers.list()
        print_result(output, BROKERS.values(listing.brokers), [BROKERS.table(listing.brokers)])
        return listing.failures

    run_admin(access, work)


@broker.command()
@broker_argument
@output_option
@watch_option
@access_options
def describe(access: Access, output: OutputFormat, name: str) -> None:
    """Show the status of a broker and all figures that it reports."""

    async def work(admin: Admin) -> None:
        status = await admin.brokers.describe(name)
        figures = [(key, _figure_cell(key, figure)) for key, figure in status.details.items()]
        rows = [*BROKERS.fields(status), *figures]
        value = {**BROKERS.value(status), "details": dict(status.details)}
        print_result(output, value, [Table([Column("NAME"), Column("VALUE")], rows)])

    run_admin(access, work)


def _figure_cell(name: str, figure: str) -> str | None:
    """Return the text for a figure that a broker reports: a time for a time stamp, None without one."""
    if not name.lower().endswith("timestamp") or not figure.removeprefix("-").isdecimal():
        return figure
    return format_time(int(figure)) if int(figure) > 0 else None


@broker.command()
@broker_argument
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1, callback=checked(parse_property))
@yes_option
@output_option
@access_options
def config(
    access: Access, output: OutputFormat, name: str, settings: tuple[tuple[str, str], ...], yes: bool
) -> None:
    """Show the settings of a broker, or change the given ones.

    Some settings take effect only when the broker restarts. Passwords are not shown.
    """
    changes = dict(settings)
    if changes:
        confirm(f"Set {', '.join(changes)} of broker {name}", yes=yes)

    async def work(admin: Admin) -> None:
        if changes:
            await admin.brokers.alter(name, changes)
        current = await admin.brokers.settings(name)
        shown = {key: HIDDEN if key in SECRET_SETTINGS else current[key] for key in (changes or current)}
        print_result(output, shown, [Table([Column("NAME"), Column("VALUE")], list(shown.items()))])

    run_admin(access, work)


@broker.command("wipe-write-permission")
@broker_argument
@output_option
@access_options
def wipe_write_permission(access: Access, output: OutputFormat, name: str) -> None:
    """Stop producers from sending to a broker, before it is taken down.

    Consumers still read it. Name servers store the change, and lose it if the broker restarts, and for topics
    that are created or changed on it. Giving the permission back needs name servers 4.9.2 or newer.
    """

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        return await _change_permission(output, admin, name, "wiped", admin.brokers.wipe_write_permission)

    run_admin(access, work)


@broker.command("add-write-permission")
@broker_argument
@output_option
@access_options
def add_write_permission(access: Access, output: OutputFormat, name: str) -> None:
    """Let producers send to a broker again, after `wipe-write-permission`."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        return await _change_permission(output, admin, name, "added", admin.brokers.add_write_permission)

    run_admin(access, work)


async def _change_permission(
    output: OutputFormat,
    admin: Admin,
    broker: str,
    done: str,
    change: Callable[[str], Awaitable[Mapping[str, int]]],
) -> Mapping[str, RocketMQError]:
    """Change a permission of the broker with this name or address.

    Print the number of topics that each name server changed.
    """
    from rocketmq_py.admin.brokers import find_broker
    from rocketmq_py.client import core_of

    name = (await find_broker(core_of(admin), broker)).name
    changed, failures = await partial_result(change(broker))
    counts = [{"address": address, "topics": count} for address, count in changed.items()]
    columns = [Column("NAME SERVER"), Column("TOPICS", right=True)]
    table = Table(columns, list(changed.items()), title=f"broker {name}: write permission {done}")
    value = {"broker_name": name, "name_servers": counts}
    print_result(output, value, [table])
    return failures
