"""``rocketmq-py topic``: topics and their settings."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from rocketmq_py.cli.admin_runner import (
    failure_texts,
    partial_result,
    print_not_offered,
    query_admin,
    run_admin,
)
from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.options import (
    attributes_option,
    broker_option,
    cluster_option,
    if_not_exists_option,
    remove_attributes_option,
    topic_argument,
    yes_option,
)
from rocketmq_py.cli.prompts import confirm
from rocketmq_py.cli.tables import (
    MESSAGE_QUEUES,
    Field,
    Listing,
    OutputFormat,
    Table,
    attribute_cells,
    format_time,
    output_option,
    print_change,
    print_creation,
    print_result,
    warn_of_unread_queues,
    watch_option,
)
from rocketmq_py.names import MAX_QUEUES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin, TopicDescription
    from rocketmq_py.admin.topic_values import Permission, TopicSettings
    from rocketmq_py.errors import RocketMQError

    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # not generic before click 8.2


class UpperCaseChoice(_Choice):
    """A choice of words in upper case, which accepts any case. Shells complete upper case."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word in upper case. See ``click.Choice.convert``."""
        return super().convert(str(value).upper(), param, ctx)


QUEUES = click.IntRange(1, MAX_QUEUES)
PERMISSIONS = UpperCaseChoice(["RW", "R", "W", "-"])
TYPES = UpperCaseChoice(["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY"])


class _OnBroker(NamedTuple):
    """A topic on a broker.

    ``in_route`` is the permission in the route, or None if the broker has no queues there. ``is_known`` is
    False if only the numbers of queues and the permission in the route are known.
    """

    broker_name: str
    address: str | None
    settings: TopicSettings
    in_route: Permission | None
    is_known: bool


TOPICS: Final = Listing(
    Field("topic", "TOPIC"),
    Field("message_type", "TYPE"),
    Field("read_queues", "READ QUEUES", right=True),
    Field("write_queues", "WRITE QUEUES", right=True),
    Field("permissions", "PERMISSION"),
    Field("brokers", "BROKERS", lambda one: tuple(one.brokers), wide=True),
)
BROKERS: Final = Listing(
    Field("broker_name", "BROKER"),
    Field("address", "ADDRESS"),
    Field("read_queues", "READ QUEUES", "settings.read_queues", right=True),
    Field("write_queues", "WRITE QUEUES", "settings.write_queues", right=True),
    Field("permission", get="settings.permission"),
    Field("permission_in_route", get="in_route"),
    Field(None, "PERMISSION", lambda one: _permission_cell(one.settings.permission, one.in_route)),
    Field("order", "ORDER", lambda one: one.settings.order if one.is_known else None),
    Field(
        "attributes",
        "ATTRIBUTES",
        lambda one: dict(one.settings.attributes) if one.is_known else None,
        cell=attribute_cells,
    ),
)
QUEUE_OFFSETS: Final = Listing(
    Field("broker_name", "BROKER", "queue.broker_name"),
    Field("queue_id", "QUEUE", "queue.queue_id", right=True),
    Field("min_offset", "MIN OFFSET", right=True),
    Field("max_offset", "MAX OFFSET", right=True),
    Field("messages", "MESSAGES", right=True),
    Field("last_message_ms", "LAST MESSAGE", cell=format_time),
)
LOGICAL_QUEUES: Final = Listing(
    Field("queue_id", "LOGICAL QUEUE", itemgetter(0), right=True),
    Field("broker_name", "BROKER", itemgetter(1)),
)


@click.group
def topic() -> None:
    """List, describe, create, alter and delete topics."""


@topic.command("list")
@click.option("--system", is_flag=True, help="Include internal, retry and dead-letter topics.")
@output_option
@watch_option
@access_options
def list_topics(access: Access, output: OutputFormat, system: bool) -> None:
    """List topics."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.topics.list(system=system)
        print_result(output, TOPICS.values(listing.topics), [TOPICS.table(listing.topics)])
        return listing.failures

    run_admin(access, work)


@topic.command()
@topic_argument
@output_option
@watch_option
@access_options
def describe(access: Access, output: OutputFormat, topic: str) -> None:
    """Show the settings of a topic on each broker, and its queues."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        described = await admin.topics.describe(topic)
        print_result(output, _described(described), _tables(described))
        print_not_offered(described.not_offered)
        warn_of_unread_queues(described.unread_queues)
        return described.failures

    run_admin(access, work)


def _described(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "message_type": topic.message_type,
        "messages": topic.messages,
        "last_message_ms": topic.last_message_ms,
        "brokers": BROKERS.values(_brokers(topic)),
        "queues": QUEUE_OFFSETS.values(topic.queues),
        "logical_queues": LOGICAL_QUEUES.values(topic.logical_queues.items()),
        "unread_queues": MESSAGE_QUEUES.values(topic.unread_queues),
        "failures": failure_texts(topic.failures),
        "not_offered": failure_texts(topic.not_offered),
    }


def _tables(topic: TopicDescription) -> list[Table]:
    kind = topic.message_type or "unknown type"
    tables = [
        BROKERS.table(_brokers(topic), title=f"{topic.topic}: {kind}, {topic.messages:,} messages"),
        QUEUE_OFFSETS.table(topic.queues),
    ]
    if topic.logical_queues:
        tables.append(LOGICAL_QUEUES.table(topic.logical_queues.items()))
    return tables


def _brokers(topic: TopicDescription) -> list[_OnBroker]:
    return [
        _OnBroker(
            name,
            topic.addresses.get(name),
            settings,
            topic.permissions_in_route.get(name),
            topic.has_settings,
        )
        for name, settings in topic.brokers.items()
    ]


def _permission_cell(permission: Permission, in_route: Permission | None) -> str:
    return permission if in_route in (None, permission) else f"{permission} (in the route: {in_route})"


@topic.command()
@topic_argument
@click.option(
    "--queues", metavar="N", type=QUEUES, default=8, show_default=True, help="Queues on each broker."
)
@click.option(
    "--read-queues", metavar="N", type=QUEUES, help="Queues that consumers read.  [default: --queues]"
)
@click.option(
    "--write-queues", metavar="N", type=QUEUES, help="Queues that producers write.  [default: --queues]"
)
@click.option(
    "--permission", type=PERMISSIONS, default="RW", show_default=True, help="Permission of clients."
)
@click.option(
    "--type", "message_type", type=TYPES, default="NORMAL", show_default=True, help="Message type (5.x)."
)
@click.option(
    "--order", is_flag=True,
    help="Producers keep all queues while a broker is down. Name servers must have orderMessageEnable.",
)  # fmt: skip
@attributes_option
@broker_option
@cluster_option
@if_not_exists_option
@output_option
@access_options
def create(
    access: Access,
    output: OutputFormat,
    topic: str,
    permission: str,
    message_type: str,
    attributes: tuple[tuple[str, str], ...],
    brokers: tuple[str, ...],
    **options: Any,
) -> None:
    """Create a topic on all brokers, or on the selected ones."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        from rocketmq_py.message import MessageQueue

        created, failures = await partial_result(
            admin.topics.create(
                topic,
                permission=permission,
                message_type=message_type,
                attributes=dict(attributes),
                brokers=brokers or None,
                **options,
            )
        )
        print_creation(output, "topic", topic, tuple(created))
        read, write = (options[name] or options["queues"] for name in ("read_queues", "write_queues"))
        if "W" in permission:
            warn_of_unread_queues(
                MessageQueue(topic, name, number) for name in created for number in range(read, write)
            )
        return failures

    run_admin(access, work)


@topic.command()
@topic_argument
@click.option("--queues", metavar="N", type=QUEUES, help="Queues on each broker.")
@click.option("--read-queues", metavar="N", type=QUEUES, help="Queues that consumers read.")
@click.option("--write-queues", metavar="N", type=QUEUES, help="Queues that producers write.")
@click.option("--permission", type=PERMISSIONS, help="Permission of clients.")
@click.option("--type", "message_type", type=TYPES, help="Message type (5.x).")
@click.option(
    "--order/--no-order", default=None,
    help="Producers keep all queues while a broker is down. Name servers must have orderMessageEnable.",
)  # fmt: skip
@attributes_option
@remove_attributes_option
@broker_option
@yes_option
@output_option
@access_options
def alter(
    access: Access,
    output: OutputFormat,
    topic: str,
    permission: str | None,
    message_type: str | None,
    attributes: tuple[tuple[str, str], ...],
    removed: tuple[str, ...],
    brokers: tuple[str, ...],
    yes: bool,
    **options: Any,
) -> None:
    """Change the settings of a topic. Options left out keep their value.

    Consumers do not read the messages that remain in queues taken away, so fewer read queues need a
    confirmation. Lower --write-queues first, and --read-queues when the lag of these queues is 0.
    """
    changes = (permission, message_type, *attributes, *removed, *options.values())
    if all(value is None for value in changes):
        raise click.UsageError("nothing to change: give at least one option")
    read_queues = options["read_queues"] or options["queues"]
    if read_queues is not None and not yes:
        _confirm_fewer_queues(access, topic, read_queues, brokers)

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        from rocketmq_py.admin.topic_values import unread_queues_of

        altered, failures = await partial_result(
            admin.topics.alter(
                topic,
                permission=permission,
                message_type=message_type,
                attributes={**dict(attributes), **dict.fromkeys(removed)},
                brokers=brokers or None,
                **options,
            )
        )
        print_change(output, "topic", topic, "altered", tuple(altered))
        warn_of_unread_queues(unread_queues_of(topic, altered))
        return failures

    run_admin(access, work)


def _confirm_fewer_queues(access: Access, topic: str, read_queues: int, brokers: tuple[str, ...]) -> None:
    """Ask for confirmation if a topic has more read queues now, on one of ``brokers`` (empty for all)."""
    from rocketmq_py.admin.existing import queue_range
    from rocketmq_py.client import core_of

    route = query_admin(access, lambda admin: core_of(admin).name_servers.find_route(topic))
    counts = {data.broker_name: data.read_queue_nums for data in route.queue_datas}
    removed = [
        queue_range(name, read_queues, count)
        for name, count in sorted(counts.items())
        if count > read_queues and (not brokers or name in brokers)
    ]
    if removed:
        confirm(
            f"Stop consumers of topic {topic} from reading {', '.join(removed)}, and the messages in there "
            "(to lose none, lower --write-queues first, and --read-queues when the lag of these queues is 0)",
            yes=False,
        )


@topic.command()
@topic_argument
@yes_option
@output_option
@access_options
def delete(access: Access, output: OutputFormat, topic: str, yes: bool) -> None:
    """Delete a topic and its messages on all brokers and name servers."""
    confirm(f"Delete topic {topic} and all its messages", yes=yes)

    async def work(admin: Admin) -> None:
        # No partial_result: if name servers failed, the error names those and no brokers.
        print_change(output, "topic", topic, "deleted", await admin.topics.delete(topic))

    run_admin(access, work)
