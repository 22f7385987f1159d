"""``rocketmq-py client``: connected clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from rocketmq_py.cli.admin_runner import failure_texts, run_admin
from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.console import print_out
from rocketmq_py.cli.group_tables import SUBSCRIPTIONS
from rocketmq_py.cli.option_values import checked, not_empty
from rocketmq_py.cli.options import group_option
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
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin
    from rocketmq_py.admin.clients import ClientDescription
    from rocketmq_py.errors import RocketMQError


def _milliseconds(seconds: float) -> float:
    return seconds * 1000


CLIENTS: Final = Listing(
    Field("client_id", "CLIENT", whole=True),
    Field("address", "ADDRESS"),
    Field("language", "LANGUAGE"),
    Field("version", "VERSION"),
    Field("producer_groups", "PRODUCER GROUPS"),
    Field("consumer_groups", "CONSUMER GROUPS"),
    Field("brokers", "BROKERS", wide=True),
)
QUEUES: Final = Listing(
    Field("topic", "TOPIC", "queue.topic"),
    Field("broker_name", "BROKER", "queue.broker_name"),
    # Members may pop from all queues of a broker at once.
    Field(
        "queue_id", "QUEUE", "queue.queue_id", cell=lambda number: "all" if number < 0 else number, right=True
    ),
    Field("committed", "COMMITTED", right=True),
    Field("cached", "CACHED", right=True),
    Field("locked", "LOCKED"),
    Field("pulled_ms", "PULLED", cell=format_time),
    Field("handled_ms", "HANDLED", cell=format_time),
)
RATES: Final = Listing(
    Field("topic", "TOPIC"),
    Field("pulled_per_second", "PULLED/S", right=True),
    Field("pull_seconds", "PULL MS", cell=_milliseconds, right=True),
    Field("handled_per_second", "HANDLED/S", right=True),
    Field("handle_seconds", "HANDLE MS", cell=_milliseconds, right=True),
    Field("failed_per_second", "FAILED/S", right=True),
    Field("failed_last_hour", "FAILED LAST HOUR", right=True),
)


@click.group
def client() -> None:
    """List and describe connected clients: producers, and members of consumer groups."""


@client.command("list")
@group_option("Only clients of this producer or consumer group.")
@output_option
@watch_option
@access_options
def list_clients(access: Access, output: OutputFormat, group: str | None) -> None:
    """List connected clients."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.clients.list()
        found = [
            one
            for one in listing.clients
            if group is None or group in (*one.producer_groups, *one.consumer_groups)
        ]
        if group is not None and not found and not listing.failures:
            await _require_group(admin, group)
        print_result(output, CLIENTS.values(found), [CLIENTS.table(found)])
        return listing.failures

    run_admin(access, work)


async def _require_group(admin: Admin, group: str) -> None:
    """Raise CommandError if no group without clients has this name. Only consumer groups exist without."""
    from rocketmq_py.admin import GroupNotFoundError
    from rocketmq_py.cli.runner import CommandError

    try:
        await admin.groups.describe(group)
    except GroupNotFoundError:
        raise CommandError(
            f"no client of group {group!r} is online, and no consumer group has this name"
        ) from None


@client.command()
@click.argument("client_id", metavar="CLIENT", callback=checked(not_empty))
@click.option("--stack", is_flag=True, help="Include the stacks of its threads and tasks.")
@output_option
@watch_option
@access_options
def describe(access: Access, output: OutputFormat, client_id: str, stack: bool) -> None:
    """Show the state of a client in each of its consumer groups, as the client reports it."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        described = await admin.clients.describe(client_id, stack=stack)
        print_result(output, _described(described), _tables(described))
        if stack and output in (OutputFormat.TABLE, OutputFormat.WIDE):
            for one in described.members:
                print_out(f"\n{one.group}:\n{(one.stack or '-').rstrip()}")
        return described.failures

    run_admin(access, work)


def _described(described: ClientDescription) -> dict[str, Any]:
    return {
        **CLIENTS.value(described.client),
        "members": [
            {
                "group": one.group,
                "subscriptions": SUBSCRIPTIONS.values(one.subscriptions),
                "queues": QUEUES.values(one.queues),
                "rates": RATES.values(one.rates),
                "properties": dict(one.properties),
                "stack": one.stack,
            }
            for one in described.members
        ],
        "failures": failure_texts(described.failures),
    }


def _tables(described: ClientDescription) -> list[Table]:
    members = described.members
    queues = QUEUES.table_by("GROUP", [(one.group, one.queues) for one in members])
    rates = RATES.table_by("GROUP", [(one.group, one.rates) for one in members])
    properties = Table(
        [Column("GROUP", wide=True), Column("PROPERTY", wide=True), Column("VALUE", wide=True)],
        [(one.group, name, value) for one in members for name, value in one.properties.items()],
    )
    tables = [queues, rates, properties]
    return [CLIENTS.table([described.client]), *[table for table in tables if table.rows]]
