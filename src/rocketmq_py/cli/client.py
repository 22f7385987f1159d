"""``rocketmq-py client``: its commands and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.console import print_out
from rocketmq_py.cli.options import checked, not_empty
from rocketmq_py.cli.sheet import Column, Form, Sheet, at, show, takes_form, takes_watch
from rocketmq_py.names import check_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin, ClientDescription, ClientSummary
    from rocketmq_py.errors import RocketMQError


@click.group
def client() -> None:
    """List and describe the clients that are online: producers, and members of consumer groups."""


@client.command("list")
@click.option(
    "-g", "--group", "group", metavar="GROUP", callback=checked(check_group),
    help="Only those of this producer or consumer group.",
)  # fmt: skip
@takes_form
@takes_watch
@takes_access
def list_clients(access: Access, form: Form, group: str | None) -> None:
    """Print all clients that are online."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.clients.list()
        found = [
            one
            for one in listing.clients
            if group is None or group in (*one.producer_groups, *one.consumer_groups)
        ]
        show(form, [_value(one) for one in found], [_sheet(found)])
        return listing.failures

    administer(access, work)


@client.command()
@click.argument("client_id", metavar="CLIENT", callback=checked(not_empty))
@click.option("--stack", is_flag=True, help="With what its threads and tasks are doing.")
@takes_form
@takes_watch
@takes_access
def describe(access: Access, form: Form, client_id: str, stack: bool) -> None:
    """Print how a client is doing in each of its consumer groups, as it says itself."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        described = await admin.clients.describe(client_id, stack=stack)
        show(form, _described(described), _sheets(described))
        if stack and form in (Form.TABLE, Form.WIDE):
            for one in described.members:
                print_out(f"\n{one.group}:\n{(one.stack or '-').rstrip()}")
        return described.failures

    administer(access, work)


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


def _sheet(clients: list[ClientSummary]) -> Sheet:
    columns = [
        Column("CLIENT"),
        Column("ADDRESS"),
        Column("LANGUAGE"),
        Column("VERSION"),
        Column("PRODUCES FOR"),
        Column("CONSUMES FOR"),
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
    return Sheet(columns, rows)


def _described(described: ClientDescription) -> dict[str, Any]:
    from rocketmq_py.cli.administering import told

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
        "failures": told(described.failures),
    }


def _sheets(described: ClientDescription) -> list[Sheet]:
    queues = Sheet(
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
                # Brokers may have a member pop from all their queues at once.
                "all" if held.queue.queue_id < 0 else held.queue.queue_id,
                held.committed,
                held.cached,
                held.locked,
                at(held.pulled_ms),
                at(held.consumed_ms),
            )
            for one in described.members
            for held in one.queues
        ],
    )
    rates = Sheet(
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
    properties = Sheet(
        [Column("GROUP", wide=True), Column("PROPERTY", wide=True), Column("VALUE", wide=True)],
        [(one.group, name, value) for one in described.members for name, value in one.properties.items()],
    )
    sheets = [queues, rates, properties]
    return [_sheet([described.client]), *[sheet for sheet in sheets if sheet.rows]]
