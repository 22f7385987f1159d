"""``rocketmq-py lite``: lite topics, their subscribers and their lag."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from rocketmq_py.cli.admin_runner import failure_texts, run_admin
from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.option_values import checked, not_empty
from rocketmq_py.cli.table_layout import Column
from rocketmq_py.cli.tables import (
    Field,
    Listing,
    OutputFormat,
    Table,
    format_time,
    output_option,
    print_change,
    print_result,
    watch_option,
)
from rocketmq_py.names import check_group, check_lite_topic, check_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin
    from rocketmq_py.admin.lite_values import (
        LiteLagReport,
        LiteSubscriptionDescription,
        LiteTopic,
        ParentTopic,
    )
    from rocketmq_py.errors import RocketMQError

_parent = click.argument("parent", metavar="PARENT", callback=checked(check_topic))
_group = click.argument("group", metavar="GROUP", callback=checked(check_group))


BROKERS: Final = Listing(
    Field("broker_name", "BROKER"),
    Field("lite_queues", "LITE QUEUES", right=True),
    Field("subscriptions", "SUBSCRIPTIONS", right=True),
    Field("popped", "POPPED", right=True),
    Field("clients", "CLIENTS", right=True),
    Field("expirations", "PARENTS", lambda one: dict(one.expirations), cell=list),
    Field("groups", get=lambda one: dict(one.groups)),
)
HOMES: Final = Listing(
    Field("broker_name", "BROKER", itemgetter(0)),
    Field("is_home", "HOME", lambda item: item[1].is_home),
    Field("min_offset", "MIN", lambda item: item[1].min_offset, right=True),
    Field("max_offset", "MAX", lambda item: item[1].max_offset, right=True),
    Field("last_message_ms", "LAST MESSAGE", lambda item: item[1].last_message_ms, cell=format_time),
    Field("subscribers", get=lambda item: {name: list(ids) for name, ids in item[1].subscribers.items()}),
)
SUBSCRIBED: Final = Listing(
    Field("broker_name", "BROKER", itemgetter(0)),
    Field("count", "COUNT", lambda item: item[1].count, right=True),
    Field("last_pop_ms", "LAST POP", lambda item: item[1].last_pop_ms, cell=format_time),
    Field("lite_topics", "LITE TOPICS", lambda item: item[1].lite_topics),
)
LAGS: Final = Listing(
    Field("lite_topic", "LITE TOPIC"),
    Field("broker_name", "BROKER"),
    Field("lag", "LAG", right=True),
    Field("waiting_since_ms", "WAITING SINCE", cell=format_time),
)


@click.group
def lite() -> None:
    """Describe lite topics (5.5): short-lived topics below a parent topic of type LITE."""


@lite.command()
@output_option
@watch_option
@access_options
def brokers(access: Access, output: OutputFormat) -> None:
    """Show the numbers of lite topics of each broker."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        found = await admin.lite_topics.brokers()
        brokers = found.brokers.values()
        print_result(output, BROKERS.values(brokers), [BROKERS.table(brokers)])
        return found.failures

    run_admin(access, work)


@lite.command()
@_parent
@click.argument("lite_topic", metavar="[LITE_TOPIC]", required=False, callback=checked(check_lite_topic))
@output_option
@watch_option
@access_options
def describe(access: Access, output: OutputFormat, parent: str, lite_topic: str | None) -> None:
    """Show a parent topic, or the offsets and subscribers of one of its lite topics."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        if lite_topic is None:
            topic = await admin.lite_topics.describe_parent(parent)
            print_result(output, _parent_value(topic), [_parent_table(topic)])
            return topic.failures
        described = await admin.lite_topics.describe(parent, lite_topic)
        print_result(output, _topic_value(described), _topic_tables(described))
        return described.failures

    run_admin(access, work)


@lite.command()
@_parent
@_group
@click.argument("client_id", metavar="CLIENT", callback=checked(not_empty))
@click.option(
    "-c", "max_lite_topics", metavar="COUNT", type=click.IntRange(0, 10_000), default=1000, show_default=True,
    help="Largest number of lite topics to list for each broker.",
)  # fmt: skip
@output_option
@watch_option
@access_options
def client(
    access: Access, output: OutputFormat, parent: str, group: str, client_id: str, max_lite_topics: int
) -> None:
    """Show the lite topics that a client subscribes to on each broker."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        described = await admin.lite_topics.describe_client(
            parent, group, client_id, max_lite_topics=max_lite_topics
        )
        print_result(output, _client_value(described), [_client_table(described)])
        return described.failures

    run_admin(access, work)


@lite.command()
@_group
@click.argument("lite_topic", metavar="[LITE_TOPIC]", required=False, callback=checked(check_lite_topic))
@click.option(
    "-c", "largest", metavar="COUNT", type=click.IntRange(0, 1000), default=10, show_default=True,
    help="Number of lite topics to list, those with the largest lag.",
)  # fmt: skip
@output_option
@watch_option
@access_options
def lag(access: Access, output: OutputFormat, group: str, lite_topic: str | None, largest: int) -> None:
    """Show the lag of a group in its lite topics, or in one of them."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        report = await admin.lite_topics.lag(group, lite_topic, largest=largest)
        print_result(output, _lag_value(report), [_lag_table(report)])
        return report.failures

    run_admin(access, work)


@lite.command()
@_group
@click.option("--client", "client_id", metavar="CLIENT", help="Only to this client of the group.")
@output_option
@access_options
def offer(access: Access, output: OutputFormat, group: str, client_id: str | None) -> None:
    """Offer all waiting messages of a group to its clients again."""

    async def work(admin: Admin) -> None:
        brokers = await admin.lite_topics.offer_again(group, client_id)
        print_change(output, "group", group, "offered", brokers)

    run_admin(access, work)


def _parent_value(topic: ParentTopic) -> dict[str, Any]:
    return {
        "parent": topic.parent,
        "expiration": topic.expiration,
        "groups": list(topic.groups),
        "lite_topics": dict(topic.lite_topics),
        "failures": failure_texts(topic.failures),
    }


def _parent_table(topic: ParentTopic) -> Table:
    columns = [
        Column("PARENT"),
        Column("EXPIRATION", right=True),
        Column("GROUPS"),
        Column("BROKER"),
        Column("LITE TOPICS", right=True),
    ]
    expiration = "never" if topic.expiration is None else f"{topic.expiration} min"
    rows = [(topic.parent, expiration, topic.groups, *item) for item in topic.lite_topics.items()]
    return Table(columns, rows)


def _topic_value(topic: LiteTopic) -> dict[str, Any]:
    return {
        "parent": topic.parent,
        "lite_topic": topic.lite_topic,
        "messages": topic.messages,
        "brokers": HOMES.values(topic.brokers.items()),
        "failures": failure_texts(topic.failures),
    }


def _topic_tables(topic: LiteTopic) -> list[Table]:
    subscribers = [
        (group, client_id, name)
        for name, one in topic.brokers.items()
        for group, clients in one.subscribers.items()
        for client_id in clients
    ]
    tables = [HOMES.table_by("LITE TOPIC", [(topic.lite_topic, topic.brokers.items())])]
    if subscribers:
        tables.append(Table([Column("GROUP"), Column("CLIENT", whole=True), Column("BROKER")], subscribers))
    return tables


def _client_value(described: LiteSubscriptionDescription) -> dict[str, Any]:
    return {
        "client_id": described.client_id,
        "brokers": SUBSCRIBED.values(described.brokers.items()),
        "failures": failure_texts(described.failures),
    }


def _client_table(described: LiteSubscriptionDescription) -> Table:
    items = [(described.client_id, described.brokers.items())]
    return SUBSCRIBED.table_by("CLIENT", items, whole=True)


def _lag_value(report: LiteLagReport) -> dict[str, Any]:
    return {
        "group": report.group,
        "parent": report.parent,
        "lag": report.lag,
        "largest": LAGS.values(report.largest),
        "failures": failure_texts(report.failures),
    }


def _lag_table(report: LiteLagReport) -> Table:
    table = LAGS.table(report.largest)
    return attrs.evolve(table, rows=[*table.rows, ("total", "", report.lag, None)])
