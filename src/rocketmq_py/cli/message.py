"""``rocketmq-py message``: its commands and their options."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.console import Control, write_parts
from rocketmq_py.cli.consumer_group import group_argument
from rocketmq_py.cli.message_sheets import (
    event_value,
    full_value,
    message_sheet,
    messages_sheet,
    trace_sheet,
    track_value,
    tracks_sheet,
)
from rocketmq_py.cli.options import checked, complete_topics, not_empty, since_option, until_option
from rocketmq_py.cli.sheet import Column, Form, Sheet, show, takes_form
from rocketmq_py.cli.topic import topic_argument
from rocketmq_py.names import TRACE_TOPIC, check_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin
    from rocketmq_py.errors import RocketMQError
    from rocketmq_py.message import ReceivedMessage

id_argument: Final = click.argument("message_id", metavar="ID", callback=checked(not_empty))
topic_option: Final = click.option(
    "-t", "--topic", "topic", metavar="TOPIC", callback=checked(check_topic), shell_complete=complete_topics,
    help="The topic; needed for the id that the sender gave.",
)  # fmt: skip


@click.group
def message() -> None:
    """Find messages, and what became of them.

    A message has two ids: the one that its sender gave, by which brokers find it within a topic, and the one
    that the broker gave, which says where it is. Commands take either.
    """


async def _found(admin: Admin, message_id: str, topic: str | None) -> ReceivedMessage:
    from rocketmq_py.cli.running import CommandError

    found = await admin.messages.get(message_id, topic=topic)
    if found is None:
        where = "on its broker" if topic is None else f"in topic {topic!r}"
        raise CommandError(f"there is no message {message_id} {where}, or no more")
    return found


@message.command()
@click.argument("message_id", metavar="ID", required=False)
@topic_option
@click.option("--broker", metavar="NAME", help="With --queue and --offset: the broker that has it.")
@click.option("--queue", metavar="N", type=click.IntRange(min=0), help="The queue that it is in.")
@click.option("--offset", metavar="N", type=click.IntRange(min=0), help="Its offset there.")
@click.option("--raw", is_flag=True, help="Print its body only, byte for byte.")
@takes_form
@takes_access
def get(
    access: Access,
    form: Form,
    message_id: str | None,
    topic: str | None,
    broker: str | None,
    queue: int | None,
    offset: int | None,
    raw: bool,
) -> None:
    """Print a message, by its id, or by its place: -t TOPIC --broker NAME --queue N --offset N."""
    place = (topic, broker, queue, offset)
    if message_id is not None and any(part is not None for part in place[1:]):
        raise click.UsageError("give an ID, or --broker, --queue and --offset")
    if message_id is None and any(part is None for part in place):
        raise click.UsageError("give an ID, or -t, --broker, --queue and --offset")

    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> None:
        if message_id is not None:
            found = await _found(admin, message_id, topic)
        else:
            found = await _found_at(admin, str(topic), str(broker), int(queue or 0), int(offset or 0))
        if raw:
            write_parts(sys.stdout, [Control(found.body)])
        else:
            show(form, full_value(found), [message_sheet(found)])

    administer(access, work)


async def _found_at(admin: Admin, topic: str, broker: str, queue: int, offset: int) -> ReceivedMessage:
    from rocketmq_py.cli.running import CommandError
    from rocketmq_py.message import MessageQueue

    found = await admin.messages.at(MessageQueue(topic, broker, queue), offset)
    if found is None:
        raise CommandError(f"there is no message at offset {offset} of {topic}/{broker}/{queue}, or no more")
    return found


@message.command()
@topic_argument
@click.argument("key", metavar="KEY", callback=checked(not_empty))
@since_option
@until_option
@click.option(
    "-c", "count", metavar="COUNT", type=click.IntRange(1, 64), default=32, show_default=True,
    help="The newest COUNT at the most.",
)  # fmt: skip
@takes_form
@takes_access
def find(
    access: Access, form: Form, topic: str, key: str, begin_ms: int | None, end_ms: int | None, count: int
) -> None:
    """Print the messages of a topic that have a key, oldest first."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        bounds = {"begin_ms": begin_ms, "end_ms": end_ms}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        found = await admin.messages.find(topic, key, max=count, **given)
        show(form, [full_value(one) for one in found.messages], [messages_sheet(found.messages)])
        return found.failures

    administer(access, work)


@message.command()
@id_argument
@topic_option
@takes_form
@takes_access
def tracks(access: Access, form: Form, message_id: str, topic: str | None) -> None:
    """Print what each group did with a message.

    \b
    CONSUMED               it is past the message
    CONSUMED_BUT_FILTERED  it is past the message, whose tag it does not subscribe
    NOT_CONSUME_YET        it has not come so far
    NOT_ONLINE             nobody of it is there; the table says whether it is past the message
    PULL                   its members pull by themselves: only they know
    CONSUME_BROADCASTING   each member keeps by itself how far it is
    UNKNOWN                a broker did not say
    """
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> dict[str, RocketMQError]:
        found = await admin.messages.tracks(await _found(admin, message_id, topic))
        show(form, [track_value(one) for one in found.tracks], [tracks_sheet(found.tracks)])
        of_groups = {one.group: one.failure for one in found.tracks if one.failure is not None}
        return {**found.failures, **of_groups}

    administer(access, work)


@message.command()
@id_argument
@click.option(
    "--trace-topic", metavar="TOPIC", default=TRACE_TOPIC, show_default=True, callback=checked(check_topic),
    help="Where clients send what they trace.",
)  # fmt: skip
@takes_form
@takes_access
def trace(access: Access, form: Form, message_id: str, trace_topic: str) -> None:
    """Print what clients that trace did with a message; ID is the one that its sender gave."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        found = await admin.messages.trace(message_id, topic=trace_topic)
        show(form, [event_value(one) for one in found.events], [trace_sheet(found.events)])
        return found.failures

    administer(access, work)


@message.command()
@id_argument
@group_argument
@click.argument("client", metavar="CLIENT", callback=checked(not_empty))
@topic_option
@takes_form
@takes_access
def consume(access: Access, form: Form, message_id: str, group: str, client: str, topic: str | None) -> None:
    """Have a member of a group consume a message now; where the group is does not change.

    CLIENT is the member's id, as `group describe` shows it. The exit code is 1 if it failed on the message.
    """
    from rocketmq_py.cli.administering import administer
    from rocketmq_py.cli.running import CommandError

    async def work(admin: Admin) -> None:
        found = await _found(admin, message_id, topic)
        result = await admin.messages.consume_directly(found, group, client)
        value = {
            "result": result.result,
            "success": result.success,
            "spent_ms": result.spent_ms,
            "remark": result.remark,
        }
        columns = [Column("RESULT"), Column("MS", right=True), Column("REMARK")]
        show(form, value, [Sheet(columns, [(result.result, result.spent_ms, result.remark)])])
        if not result.success:
            raise CommandError(f"{client} failed on the message: {result.remark or result.result}")

    administer(access, work)
