"""``rocketmq-py client``: connected clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rocketmq_py.cli.admin_runner import failure_texts, run_admin
from rocketmq_py.cli.cluster_access import access_options
from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.console import print_out
from rocketmq_py.cli.option_values import checked, not_empty
from rocketmq_py.cli.tables import (
    Column,
    OutputFormat,
    Table,
    format_time,
    output_option,
    print_result,
    watch_option,
)
from rocketmq_py.names import check_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin
    from rocketmq_py.admin.clients import ClientDescription, ClientSummary
    from rocketmq_py.errors import RocketMQError


@click.group
def client() -> None:
    """List and describe connected clients: producers, and members of consumer groups."""


@client.command("list")
@click.option(
    "-g", "--group", "group", metavar="GROUP", callback=checked(check_group),
    help="Only clients of this producer or consumer group.",
)  # fmt: skip
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
        print_result(output, [_value(one) for one in found], [_table(found)])
        return listing.failures

    run_admin(access, work)


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


def _value(client: ClientSummary) -> dict[str, Any]:
    return {
        "client_id": client.client_id,
        "address": client.address,
        "language": client.language,
        "version": client.version,
        "producer_groups": list(client.producer_groups),
        "consumer_groups": list(client.consumer_groups),
        "brokers": list(client.brokers),
    }


def _table(clients: list[ClientSummary]) -> Table:
    columns = [
        Column("CLIENT"),
        Column("ADDRESS"),
        Column("LANGUAGE"),
        Column("VERSION"),
        Column("PRODUCER GROUPS"),
        Column("CONSUMER GROUPS"),
        Column("BROKERS", wide=True),
    ]
    rows = [
        (
            one.client_id,
            one.address,
            one.language,
            one.version,
            one.producer_groups,
            one.consumer_groups,
            one.brokers,
        )
        for one in clients
    ]
    return Table(columns, rows)


def _described(described: ClientDescription) -> dict[str, Any]:
    return {
        **_value(described.client),
        "members": [
            {
                "group": one.group,
                "subscriptions": [
                    {"topic": own.topic, "expression": own.expression, "kind": own.kind}
                    for own in one.subscriptions
                ],
                "queues": [
                    {
                        "topic": held.queue.topic,
                        "broker": held.queue.broker_name,
                        "queue": held.queue.queue_id,
                        "committed": held.committed,
                        "cached": held.cached,
                        "locked": held.locked,
                        "pulled_ms": held.pulled_ms,
                        "consumed_ms": held.consumed_ms,
                    }
                    for held in one.queues
                ],
                "rates": [
                    {
                        "topic": rates.topic,
                        "pulled_per_second": rates.pulled_per_second,
                        "pull_ms": rates.pull_ms,
                        "consumed_per_second": rates.consumed_per_second,
                        "failed_per_second": rates.failed_per_second,
                        "consume_ms": rates.consume_ms,
                        "failed_last_hour": rates.failed_last_hour,
                    }
                    for rates in one.rates
                ],
                "properties": dict(one.properties),
                "stack": one.stack,
            }
            for one in described.members
        ],
        "failures": failure_texts(described.failures),
    }


def _tables(described: ClientDescription) -> list[Table]:
    queues = Table(
        [
            Column("GROUP"),
            Column("TOPIC"),
            Column("BROKER"),
            Column("QUEUE", right=True),
            Column("COMMITTED", right=True),
            Column("CACHED", right=True),
            Column("LOCKED"),
            Column("PULLED"),
            Column("CONSUMED"),
        ],
        [
            (
                one.group,
                held.queue.topic,
                held.queue.broker_name,
                # Members may pop from all queues of a broker at once.
                "all" if held.queue.queue_id < 0 else held.queue.queue_id,
                held.committed,
                held.cached,
                held.locked,
                format_time(held.pulled_ms),
                format_time(held.consumed_ms),
            )
            for one in described.members
            for held in one.queues
        ],
    )
    rates = Table(
        [
            Column("GROUP"),
            Column("TOPIC"),
            Column("PULLED/S", right=True),
            Column("PULL MS", right=True),
            Column("CONSUMED/S", right=True),
            Column("CONSUME MS", right=True),
            Column("FAILED/S", right=True),
            Column("FAILED LAST HOUR", right=True),
        ],
        [
            (
                one.group,
                each.topic,
                each.pulled_per_second,
                each.pull_ms,
                each.consumed_per_second,
                each.consume_ms,
                each.failed_per_second,
                each.failed_last_hour,
            )
            for one in described.members
            for each in one.rates
        ],
    )
    properties = Table(
        [Column("GROUP", wide=True), Column("PROPERTY", wide=True), Column("VALUE", wide=True)],
        [(one.group, name, value) for one in described.members for name, value in one.properties.items()],
    )
    tables = [queues, rates, properties]
    return [_table([described.client]), *[table for table in tables if table.rows]]
