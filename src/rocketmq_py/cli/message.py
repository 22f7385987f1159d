"""``rocketmq-py message``: single messages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from rocketmq_py.cli.admin_runner import run_admin
from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.console import Control, write_parts
from rocketmq_py.cli.message_tables import (
    EVENTS,
    TRACKS,
    full_value,
    message_table,
    messages_table,
)
from rocketmq_py.cli.option_values import checked, not_empty
from rocketmq_py.cli.options import (
    group_argument,
    since_option,
    topic_argument,
    topic_option,
    until_option,
)
from rocketmq_py.cli.table_layout import Column
from rocketmq_py.cli.tables import OutputFormat, Table, output_option, print_result
from rocketmq_py.names import TRACE_TOPIC, check_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin
    from rocketmq_py.errors import RocketMQError
    from rocketmq_py.message import ReceivedMessage
    from rocketmq_py.position import Position

id_argument: Final = click.argument("message_id", metavar="ID", callback=checked(not_empty))
of_topic_option: Final = topic_option("The topic. Required with the id that the sender gave.")


@click.group
def message() -> None:
    """Find messages, and show their state in groups and their traces.

    A message has two ids: the message id, given by its sender, and the offset message id, given by the broker
    that stores it. Commands accept either. The message id needs a topic.
    """


async def _get(admin: Admin, message_id: str, topic: str | None) -> ReceivedMessage:
    from rocketmq_py.cli.runner import CommandError

    found = await admin.messages.get(message_id, topic=topic)
    if found is None:
        where = "on its broker" if topic is None else f"in topic {topic!r}"
        raise CommandError(f"message {message_id} does not exist {where}; it may have expired")
    return found


@message.command()
@click.argument("message_id", metavar="ID", required=False)
@of_topic_option
@click.option("--broker", metavar="NAME", help="Broker of the message, with --queue and --offset.")
@click.option("--queue", metavar="N", type=click.IntRange(min=0), help="Queue of the message.")
@click.option("--offset", metavar="N", type=click.IntRange(min=0), help="Offset in the queue.")
@click.option("--raw", is_flag=True, help="Print only the body, byte for byte.")
@output_option
@access_options
def get(
    access: Access,
    output: OutputFormat,
    message_id: str | None,
    topic: str | None,
    broker: str | None,
    queue: int | None,
    offset: int | None,
    raw: bool,
) -> None:
    """Show a message by its id, or by its offset: -t TOPIC --broker NAME --queue N --offset N."""
    position = (topic, broker, queue, offset)
    if message_id is not None and any(part is not None for part in position[1:]):
        raise click.UsageError("give an ID, or --broker, --queue and --offset")
    if message_id is None and any(part is None for part in position):
        raise click.UsageError("give an ID, or -t, --broker, --queue and --offset")

    async def work(admin: Admin) -> None:
        if message_id is not None:
            found = await _get(admin, message_id, topic)
        else:
            found = await _get_at(admin, str(topic), str(broker), int(queue or 0), int(offset or 0))
        if raw:
            write_parts(sys.stdout, [Control(found.body)])
        else:
            print_result(output, full_value(found), [message_table(found)])

    run_admin(access, work)


async def _get_at(admin: Admin, topic: str, broker: str, queue: int, offset: int) -> ReceivedMessage:
    from rocketmq_py.cli.runner import CommandError
    from rocketmq_py.message import MessageQueue

    found = await admin.messages.at(MessageQueue(topic, broker, queue), offset)
    if found is None:
        raise CommandError(
            f"queue {topic}/{broker}/{queue} has no message at offset {offset}; it may have expired"
        )
    return found


@message.command()
@topic_argument
@click.argument("key", metavar="KEY", callback=checked(not_empty))
@since_option
@until_option
@click.option(
    "-c", "count", metavar="COUNT", type=click.IntRange(1, 64), default=32, show_default=True,
    help="At most the newest COUNT messages.",
)  # fmt: skip
@output_option
@access_options
def find(
    access: Access,
    output: OutputFormat,
    topic: str,
    key: str,
    since: Position | None,
    until: Position | None,
    count: int,
) -> None:
    """List the messages of a topic that have a key, oldest first."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        found = await admin.messages.find(
            topic, key, max_messages=count, start=since or "earliest", end=until or "latest"
        )
        print_result(output, [full_value(one) for one in found.messages], [messages_table(found.messages)])
        return found.failures

    run_admin(access, work)


@message.command()
@id_argument
@of_topic_option
@output_option
@access_options
def tracks(access: Access, output: OutputFormat, message_id: str, topic: str | None) -> None:
    """Show the state of a message in each group that consumes its topic.

    \b
    CONSUMED               the group's offset is past the message
    CONSUMED_BUT_FILTERED  past the message, but the group's subscription excludes it
    NOT_CONSUME_YET        the group's offset is not past the message yet
    NOT_ONLINE             no members online; PAST shows whether the offset is past
    PULL                   the group pulls; brokers do not know what it consumed
    CONSUME_BROADCASTING   the group broadcasts; its members store their offsets
    UNKNOWN                a broker did not answer
    """

    async def work(admin: Admin) -> dict[str, RocketMQError]:
        found = await admin.messages.tracks(await _get(admin, message_id, topic))
        print_result(output, TRACKS.values(found.tracks), [TRACKS.table(found.tracks)])
        group_failures = {one.group: one.failure for one in found.tracks if one.failure is not None}
        return {**found.failures, **group_failures}

    run_admin(access, work)


@message.command()
@id_argument
@click.option(
    "--trace-topic", metavar="TOPIC", default=TRACE_TOPIC, show_default=True, callback=checked(check_topic),
    help="Topic that clients send their traces to.",
)  # fmt: skip
@output_option
@access_options
def trace(access: Access, output: OutputFormat, message_id: str, trace_topic: str) -> None:
    """Show the traced events of a message. ID is the message id that its sender gave."""

    from rocketmq_py.cli.runner import CommandError
    from rocketmq_py.errors import TopicNotFoundError

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        try:
            found = await admin.messages.trace(message_id, topic=trace_topic)
        except TopicNotFoundError as error:
            raise CommandError(
                f"tracing is off: {error}. Set traceTopicEnable=true in the settings of the brokers, or "
                "create the topic, and trace=True in the clients. Messages sent before have no trace"
            ) from None
        print_result(output, EVENTS.values(found.events), [EVENTS.table(found.events)])
        return found.failures

    run_admin(access, work)


@message.command()
@id_argument
@group_argument
@click.argument("client", metavar="CLIENT", callback=checked(not_empty))
@of_topic_option
@output_option
@access_options
def consume(
    access: Access, output: OutputFormat, message_id: str, group: str, client: str, topic: str | None
) -> None:
    """Call the handler of a group's member with a message. The group's offsets do not change.

    CLIENT is the member's client id, as `group describe` shows it. The exit code is 1 if the handler failed.
    """
    from rocketmq_py.cli.runner import CommandError

    async def work(admin: Admin) -> None:
        found = await _get(admin, message_id, topic)
        result = await admin.messages.consume_directly(found, group, client)
        value = {
            "result": result.result,
            "success": result.success,
            "cost_ms": result.cost_ms,
            "remark": result.remark,
        }
        columns = [Column("RESULT"), Column("MS", right=True), Column("REMARK")]
        print_result(output, value, [Table(columns, [(result.result, result.cost_ms, result.remark)])])
        if not result.success:
            raise CommandError(f"the handler of {client} failed: {result.remark or result.result}")

    run_admin(access, work)
