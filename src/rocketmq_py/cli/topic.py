"""``rocketmq-py topic``: its commands and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.console import print_out
from rocketmq_py.cli.options import checked, complete_topics, not_empty, parse_property
from rocketmq_py.cli.sheet import Column, Form, Sheet, at, show, takes_form, takes_watch
from rocketmq_py.names import MAX_QUEUES, check_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin, TopicDescription, TopicSummary
    from rocketmq_py.errors import RocketMQError

QUEUES = click.IntRange(1, MAX_QUEUES)
PERMISSIONS = click.Choice(["RW", "R", "W", "-"])
TYPES = click.Choice(["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY"])

topic_argument: Final = click.argument(
    "topic", metavar="TOPIC", callback=checked(check_topic), shell_complete=complete_topics
)
broker_option: Final = click.option(
    "--broker", "brokers", metavar="NAME", multiple=True, callback=checked(not_empty),
    help="Only on this broker; may be repeated. Without it: on all.",
)  # fmt: skip
yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group
def topic() -> None:
    """List, describe, create, alter and delete topics."""


@topic.command("list")
@click.option("--system", is_flag=True, help="With RocketMQ's own, and groups' own.")
@takes_form
@takes_watch
@takes_access
def list_topics(access: Access, form: Form, system: bool) -> None:
    """Print all topics."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.topics.list(system=system)
        columns = [
            Column("TOPIC"),
            Column("TYPE"),
            Column("READ QUEUES", right=True),
            Column("WRITE QUEUES", right=True),
            Column("PERMISSION"),
            Column("BROKERS", wide=True),
        ]
        rows = [
            (
                one.topic,
                one.message_type,
                one.read_queues,
                one.write_queues,
                one.permissions,
                tuple(one.brokers),
            )
            for one in listing.topics
        ]
        show(form, [_summary(one) for one in listing.topics], [Sheet(columns, rows)])
        return listing.failures

    administer(access, work)


def _summary(topic: TopicSummary) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "type": topic.message_type,
        "read_queues": topic.read_queues,
        "write_queues": topic.write_queues,
        "permissions": list(topic.permissions),
        "brokers": list(topic.brokers),
    }


@topic.command()
@topic_argument
@takes_form
@takes_watch
@takes_access
def describe(access: Access, form: Form, topic: str) -> None:
    """Print a topic's settings on each broker, and its queues."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        described = await admin.topics.describe(topic)
        show(form, _described(described), _sheets(described))
        return described.failures

    administer(access, work)


def _described(topic: TopicDescription) -> dict[str, Any]:
    from rocketmq_py.cli.administering import told

    return {
        "topic": topic.topic,
        "type": topic.message_type,
        "messages": topic.messages,
        "last_message_ms": topic.last_message_ms,
        "brokers": [
            {
                "broker": name,
                "address": topic.addresses.get(name),
                "read_queues": one.read_queues,
                "write_queues": one.write_queues,
                "permission": one.permission,
                "order": one.order,
                "attributes": dict(one.attributes),
            }
            for name, one in topic.brokers.items()
        ],
        "queues": [
            {
                "broker": one.queue.broker_name,
                "queue": one.queue.queue_id,
                "min_offset": one.min_offset,
                "max_offset": one.max_offset,
                "messages": one.messages,
                "last_message_ms": one.last_message_ms,
            }
            for one in topic.queues
        ],
        "failures": told(topic.failures),
    }


def _sheets(topic: TopicDescription) -> list[Sheet]:
    brokers = Sheet(
        [
            Column("BROKER"),
            Column("ADDRESS"),
            Column("READ QUEUES", right=True),
            Column("WRITE QUEUES", right=True),
            Column("PERMISSION"),
            Column("ORDER"),
            Column("ATTRIBUTES"),
        ],
        [
            (
                name,
                topic.addresses.get(name),
                one.read_queues,
                one.write_queues,
                one.permission,
                one.order,
                [f"{key}={value}" for key, value in one.attributes.items()],
            )
            for name, one in topic.brokers.items()
        ],
        title=f"{topic.topic}: {topic.message_type}, {topic.messages:,} messages",
    )
    queues = Sheet(
        [
            Column("BROKER"),
            Column("QUEUE", right=True),
            Column("MIN OFFSET", right=True),
            Column("MAX OFFSET", right=True),
            Column("MESSAGES", right=True),
            Column("LAST MESSAGE"),
        ],
        [
            (
                one.queue.broker_name,
                one.queue.queue_id,
                one.min_offset,
                one.max_offset,
                one.messages,
                at(one.last_message_ms),
            )
            for one in topic.queues
        ],
    )
    return [brokers, queues]


@topic.command()
@topic_argument
@click.option(
    "--queues", metavar="N", type=QUEUES, default=8, show_default=True, help="Queues on each broker."
)
@click.option("--read-queues", metavar="N", type=QUEUES, help="Queues that consumers read, if others.")
@click.option("--write-queues", metavar="N", type=QUEUES, help="Queues that producers write, if others.")
@click.option("--permission", type=PERMISSIONS, default="RW", show_default=True, help="What clients may do.")
@click.option(
    "--type", "message_type", type=TYPES, default="NORMAL", show_default=True,
    help="Which kind of messages it takes (5.x).",
)  # fmt: skip
@click.option("--order", is_flag=True, help="Its queues keep their places when a broker is lost.")
@click.option(
    "-a", "--attribute", "attributes", metavar="NAME=VALUE", callback=checked(parse_property), multiple=True,
    help="A further setting (5.x); may be repeated.",
)  # fmt: skip
@broker_option
@click.option("--cluster", metavar="NAME", help="Only on the brokers of this cluster.")
@takes_form
@takes_access
def create(
    access: Access,
    form: Form,
    topic: str,
    permission: str,
    message_type: str,
    attributes: tuple[tuple[str, str], ...],
    brokers: tuple[str, ...],
    **options: Any,
) -> None:
    """Create a topic on all brokers, or some."""
    from rocketmq_py.admin import MessageType, Permission
    from rocketmq_py.cli.administering import administer, as_far_as_done

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        done, failures = await as_far_as_done(
            admin.topics.create(
                topic,
                permission=Permission(permission),
                message_type=MessageType(message_type),
                attributes=dict(attributes),
                brokers=brokers or None,
                **options,
            )
        )
        _show_done(form, topic, "created", tuple(done))
        return failures

    administer(access, work)


@topic.command()
@topic_argument
@click.option("--queues", metavar="N", type=QUEUES, help="Queues on each broker.")
@click.option("--read-queues", metavar="N", type=QUEUES, help="Queues that consumers read.")
@click.option("--write-queues", metavar="N", type=QUEUES, help="Queues that producers write.")
@click.option("--permission", type=PERMISSIONS, help="What clients may do.")
@click.option("--type", "message_type", type=TYPES, help="Which kind of messages it takes (5.x).")
@click.option("--order/--no-order", default=None, help="Whether its queues keep their places.")
@click.option(
    "-a", "--attribute", "attributes", metavar="NAME=VALUE", callback=checked(parse_property), multiple=True,
    help="A further setting (5.x); may be repeated.",
)  # fmt: skip
@click.option(
    "--remove-attribute", "removed", metavar="NAME", multiple=True,
    help="Take a further setting away (5.x); may be repeated.",
)  # fmt: skip
@broker_option
@takes_form
@takes_access
def alter(
    access: Access,
    form: Form,
    topic: str,
    permission: str | None,
    message_type: str | None,
    attributes: tuple[tuple[str, str], ...],
    removed: tuple[str, ...],
    brokers: tuple[str, ...],
    **options: Any,
) -> None:
    """Change a topic's settings; what is not given stays as it is."""
    from rocketmq_py.admin import MessageType, Permission
    from rocketmq_py.cli.administering import administer, as_far_as_done

    given = (permission, message_type, *attributes, *removed, *options.values())
    if all(value is None for value in given):
        raise click.UsageError("nothing to change: give an option")

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        done, failures = await as_far_as_done(
            admin.topics.alter(
                topic,
                permission=Permission(permission) if permission else None,
                message_type=MessageType(message_type) if message_type else None,
                attributes={**dict(attributes), **dict.fromkeys(removed)},
                brokers=brokers or None,
                **options,
            )
        )
        _show_done(form, topic, "altered", tuple(done))
        return failures

    administer(access, work)


@topic.command()
@topic_argument
@yes_option
@takes_form
@takes_access
def delete(access: Access, form: Form, topic: str, yes: bool) -> None:
    """Delete a topic and its messages on all brokers and name servers."""
    from rocketmq_py.cli.administering import administer, ask_first

    ask_first(f"Delete topic {topic} and all its messages", yes=yes)

    async def work(admin: Admin) -> None:
        _show_done(form, topic, "deleted", await admin.topics.delete(topic))

    administer(access, work)


def _show_done(form: Form, topic: str, what: str, brokers: tuple[str, ...]) -> None:
    if form in (Form.JSON, Form.JSONL):
        show(form, {"topic": topic, "brokers": list(brokers)}, [])
    else:
        print_out(f"topic {topic}: {what} on {', '.join(brokers)}")
