"""``rocketmq-py lite``: lite topics, their subscribers and their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rocketmq_py.cli.admin_runner import failure_texts, run_admin
from rocketmq_py.cli.cluster_access import access_options
from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.option_values import checked, not_empty
from rocketmq_py.cli.tables import (
    Column,
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
        titles = ("LITE QUEUES", "SUBSCRIPTIONS", "POPPED", "CLIENTS")
        columns = [Column("BROKER"), *[Column(title, right=True) for title in titles], Column("PARENTS")]
        rows = [
            (one.broker, one.lite_queues, one.subscriptions, one.popped, one.clients, tuple(one.expirations))
            for one in found.brokers.values()
        ]
        values = [
            {
                "broker": one.broker,
                "lite_queues": one.lite_queues,
                "subscriptions": one.subscriptions,
                "popped": one.popped,
                "clients": one.clients,
                "parents": [
                    {"topic": topic, "expiration": minutes, "groups": list(one.groups.get(topic, ()))}
                    for topic, minutes in one.expirations.items()
                ],
            }
            for one in found.brokers.values()
        ]
        print_result(output, values, [Table(columns, rows)])
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
        "topic": topic.topic,
        "expiration": topic.expiration,
        "groups": list(topic.groups),
        "lite_topics": dict(topic.lite_topics),
        "failures": failure_texts(topic.failures),
    }


def _parent_table(topic: ParentTopic) -> Table:
    columns = [
        Column("TOPIC"),
        Column("EXPIRATION", right=True),
        Column("GROUPS"),
        Column("BROKER"),
        Column("LITE TOPICS", right=True),
    ]
    expiration = "never" if topic.expiration is None else f"{topic.expiration} min"
    rows = [(topic.topic, expiration, topic.groups, *item) for item in topic.lite_topics.items()]
    return Table(columns, rows)


def _topic_value(topic: LiteTopic) -> dict[str, Any]:
    return {
        "parent": topic.parent,
        "lite_topic": topic.lite_topic,
        "messages": topic.messages,
        "brokers": [
            {
                "broker": name,
                "min_offset": one.min_offset,
                "max_offset": one.max_offset,
                "last_message_ms": one.last_message_ms,
                "is_home": one.is_home,
                "subscribers": {group: list(clients) for group, clients in one.subscribers.items()},
            }
            for name, one in topic.brokers.items()
        ],
        "failures": failure_texts(topic.failures),
    }


def _topic_tables(topic: LiteTopic) -> list[Table]:
    columns = [
        Column("LITE TOPIC"),
        Column("BROKER"),
        Column("HOME"),
        Column("MIN", right=True),
        Column("MAX", right=True),
        Column("LAST MESSAGE"),
    ]
    rows = [
        (
            topic.lite_topic,
            name,
            one.is_home,
            one.min_offset,
            one.max_offset,
            format_time(one.last_message_ms),
        )
        for name, one in topic.brokers.items()
    ]
    subscribers = [
        (group, client_id, name)
        for name, one in topic.brokers.items()
        for group, clients in one.subscribers.items()
        for client_id in clients
    ]
    tables = [Table(columns, rows)]
    if subscribers:
        tables.append(Table([Column("GROUP"), Column("CLIENT"), Column("BROKER")], subscribers))
    return tables


def _client_value(described: LiteSubscriptionDescription) -> dict[str, Any]:
    return {
        "client_id": described.client_id,
        "brokers": [
            {
                "broker": name,
                "count": one.count,
                "lite_topics": list(one.lite_topics),
                "last_pop_ms": one.last_pop_ms,
            }
            for name, one in described.brokers.items()
        ],
        "failures": failure_texts(described.failures),
    }


def _client_table(described: LiteSubscriptionDescription) -> Table:
    columns = [
        Column("CLIENT"),
        Column("BROKER"),
        Column("COUNT", right=True),
        Column("LAST POP"),
        Column("LITE TOPICS"),
    ]
    rows = [
        (described.client_id, name, one.count, format_time(one.last_pop_ms), one.lite_topics)
        for name, one in described.brokers.items()
    ]
    return Table(columns, rows)


def _lag_value(report: LiteLagReport) -> dict[str, Any]:
    return {
        "group": report.group,
        "parent": report.parent,
        "lag": report.lag,
        "largest": [
            {
                "lite_topic": one.lite_topic,
                "broker": one.broker,
                "lag": one.lag,
                "waiting_since_ms": one.waiting_since_ms,
            }
            for one in report.largest
        ],
        "failures": failure_texts(report.failures),
    }


def _lag_table(report: LiteLagReport) -> Table:
    columns = [
        Column("LITE TOPIC"),
        Column("BROKER"),
        Column("LAG", right=True),
        Column("WAITING SINCE"),
    ]
    rows: list[tuple[object, ...]] = [
        (one.lite_topic, one.broker, one.lag, format_time(one.waiting_since_ms)) for one in report.largest
    ]
    return Table(columns, [*rows, ("total", "", report.lag, None)])
