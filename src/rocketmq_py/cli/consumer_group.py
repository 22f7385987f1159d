"""``rocketmq-py group``: consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from rocketmq_py.cli.admin_runner import partial_result, print_not_offered, query_admin, run_admin
from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.completion import complete_groups
from rocketmq_py.cli.console import complain
from rocketmq_py.cli.group_tables import group_tables, group_value
from rocketmq_py.cli.option_values import POSITION_HELP, InputFile, checked, parse_position, read_offsets
from rocketmq_py.cli.options import (
    attributes_option,
    broker_option,
    cluster_option,
    dry_run_option,
    group_argument,
    if_not_exists_option,
    remove_attributes_option,
    topic_option,
    yes_option,
)
from rocketmq_py.cli.prompts import confirm
from rocketmq_py.cli.tables import (
    Field,
    Listing,
    OutputFormat,
    output_option,
    print_change,
    print_creation,
    print_result,
    warn_of_unread_queues,
    watch_option,
)
from rocketmq_py.names import MAX_QUEUES, check_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketmq_py.admin import Admin
    from rocketmq_py.admin.offsets import OffsetReset
    from rocketmq_py.errors import RocketMQError
    from rocketmq_py.message import MessageQueue
    from rocketmq_py.position import Position

RECONSUME_TIMES = click.IntRange(-1, MAX_QUEUES)
RETRY_QUEUES = click.IntRange(0, MAX_QUEUES)
Function = TypeVar("Function", bound=Callable[..., Any])
only_topic_option: Final = topic_option("Only this topic.  [default: all topics that the group consumes]")

GROUPS: Final = Listing(
    Field("group", "GROUP"),
    Field("members", "MEMBERS", right=True),
    Field("lag", "LAG", right=True),
    Field("rate", "MESSAGES/S", right=True),
    Field("consume_type", "CONSUME TYPE"),
    Field("message_model", "MODEL", wide=True),
    Field("brokers", "BROKERS", wide=True),
)
RESETS: Final = Listing(
    Field("topic", "TOPIC", "queue.topic"),
    Field("broker_name", "BROKER", "queue.broker_name"),
    Field("queue_id", "QUEUE", "queue.queue_id", right=True),
    Field("before", "BEFORE", right=True),
    Field("after", "AFTER", right=True),
    Field("min_offset", "MIN OFFSET", right=True, wide=True),
    Field("max_offset", "MAX OFFSET", right=True, wide=True),
)


@click.group("group")
def consumer_group() -> None:
    """List, describe, create, alter, delete, reset and clone consumer groups."""


@consumer_group.command("list")
@click.option("--system", is_flag=True, help="Include RocketMQ's internal groups.")
@output_option
@watch_option
@access_options
def list_groups(access: Access, output: OutputFormat, system: bool) -> None:
    """List groups, with their members and lag."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.groups.list(system=system)
        print_result(output, GROUPS.values(listing.groups), [GROUPS.table(listing.groups)])
        return listing.failures

    run_admin(access, work)


@consumer_group.command()
@group_argument
@topic_option(
    "Only the lag in this topic. Repeatable. Some managed services need it for a group without members.",
    name="topics", multiple=True,
)  # fmt: skip
@output_option
@watch_option
@access_options
def describe(access: Access, output: OutputFormat, group: str, topics: tuple[str, ...]) -> None:
    """Show the lag, members, subscriptions and settings of a group."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        described = await admin.groups.describe(group, topics or None)
        print_result(output, group_value(described), group_tables(described))
        print_not_offered(described.not_offered)
        for missing in sorted({*topics} - {one.topic for one in described.topics}):
            if f"topic {missing}" not in described.failures:
                complain(f"group {group} has no offsets in topic {missing}")
        warn_of_unread_queues(described.unread_queues)
        return described.failures

    run_admin(access, work)


SETTINGS_OPTIONS = (
    click.option(
        "--max-reconsume-times", metavar="N", type=RECONSUME_TIMES,
        help="Redeliveries until a message becomes a dead letter.",
    ),
    click.option("--retry-queues", metavar="N", type=RETRY_QUEUES, help="Queues of the group's retry topic."),
    click.option(
        "--consume/--no-consume", "consume_enable", default=None, help="Whether the group may consume."
    ),
    click.option(
        "--broadcast/--no-broadcast", "broadcast_enable", default=None,
        help="Whether the group may consume by broadcasting.",
    ),
    click.option("--orderly/--no-orderly", default=None, help="Whether the group consumes in order (5.x)."),
)  # fmt: skip


def settings_options(function: Function) -> Function:
    """Add the options for the settings of a group to a command."""
    for option in reversed(SETTINGS_OPTIONS):
        function = option(function)
    return function


@consumer_group.command()
@group_argument
@settings_options
@attributes_option
@broker_option
@cluster_option
@if_not_exists_option
@output_option
@access_options
def create(
    access: Access,
    output: OutputFormat,
    group: str,
    attributes: tuple[tuple[str, str], ...],
    brokers: tuple[str, ...],
    cluster: str | None,
    if_not_exists: bool,
    **options: Any,
) -> None:
    """Create a group on all brokers, or on the selected ones."""
    settings = {name: value for name, value in options.items() if value is not None}

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        created, failures = await partial_result(
            admin.groups.create(
                group,
                attributes=dict(attributes),
                brokers=brokers or None,
                cluster=cluster,
                if_not_exists=if_not_exists,
                **settings,
            )
        )
        print_creation(output, "group", group, tuple(created))
        return failures

    run_admin(access, work)


@consumer_group.command()
@group_argument
@settings_options
@attributes_option
@remove_attributes_option
@broker_option
@output_option
@access_options
def alter(
    access: Access,
    output: OutputFormat,
    group: str,
    attributes: tuple[tuple[str, str], ...],
    removed: tuple[str, ...],
    brokers: tuple[str, ...],
    **options: Any,
) -> None:
    """Change the settings of a group. Options left out keep their value."""
    changes = {**dict(attributes), **dict.fromkeys(removed)}
    if not changes and all(value is None for value in options.values()):
        raise click.UsageError("nothing to change: give at least one option")

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        altered, failures = await partial_result(
            admin.groups.alter(group, attributes=changes, brokers=brokers or None, **options)
        )
        print_change(output, "group", group, "altered", tuple(altered))
        return failures

    run_admin(access, work)


@consumer_group.command()
@group_argument
@click.option("--dead-letters", is_flag=True, help="Delete its dead letters too.")
@yes_option
@output_option
@access_options
def delete(access: Access, output: OutputFormat, group: str, dead_letters: bool, yes: bool) -> None:
    """Delete a group and its offsets on all brokers.

    Stop its members first. Brokers that create groups automatically create it again for members online.
    """
    also = ", its offsets and its dead letters" if dead_letters else " and its offsets"
    confirm(f"Delete group {group}{also}", yes=yes, warn=lambda: _members_online(access, group))

    async def work(admin: Admin) -> None:
        # No partial_result: if the error is that of the retry topic, it may name name servers.
        deleted = await admin.groups.delete(group, dead_letters=dead_letters)
        print_change(output, "group", group, "deleted", deleted)

    run_admin(access, work)


def _members_online(access: Access, group: str) -> str | None:
    """Return a warning before a group with members is deleted. None if no member is known."""
    from rocketmq_py.admin.group_state import members_online
    from rocketmq_py.client import core_of
    from rocketmq_py.errors import RocketMQError

    async def query(admin: Admin) -> int:
        try:
            return len(await members_online(core_of(admin), group))
        except RocketMQError:
            return 0  # the deletion does not need the number, and reports the error if it has the same

    if not (count := query_admin(access, query)):
        return None
    members = "1 member is" if count == 1 else f"{count} members are"
    return (
        f"{members} online in group {group}: brokers that create groups automatically create it again, "
        "without offsets, and its members consume from where new groups start. Stop them before you delete it"
    )


@consumer_group.command()
@group_argument
@only_topic_option
@click.option(
    "--to", "position", metavar="POSITION", callback=checked(parse_position),
    help=f"Where the group continues: {POSITION_HELP}.",
)  # fmt: skip
@click.option(
    "--file", "file", metavar="FILE", type=InputFile(),
    help='Use the offsets in FILE (- for stdin), lines such as '
    '{"broker_name": "broker-a", "queue_id": 0, "queue_offset": 7}.',
)  # fmt: skip
@dry_run_option
@yes_option
@output_option
@access_options
def reset(
    access: Access,
    output: OutputFormat,
    group: str,
    topic: str | None,
    position: Position | None,
    file: Any,
    dry_run: bool,
    yes: bool,
) -> None:
    """Reset the offsets of a group in one topic, or in all topics that it consumes.

    While members run, brokers before 5.2 only support earliest, latest and times, unless they have
    useServerSideResetOffset. Stop the members for any other position. Members of this library notice the
    reset at once, others when their long poll ends: after up to 15 seconds on a topic without new messages.
    """
    if (position is None) == (file is None):
        raise click.UsageError("give one of --to and --file")
    to: Position | Mapping[MessageQueue, int]
    if position is not None:
        to = position
    elif topic is not None:
        to = read_offsets(file, topic)
    else:
        raise click.UsageError("--file needs --topic")
    if not dry_run:
        confirm(f"Reset group {group} on {topic or 'all its topics'}", yes=yes)

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        return await _print_resets(output, admin.offsets.reset(group, topic, to, dry_run=dry_run))

    run_admin(access, work)


@consumer_group.command()
@click.argument("source", metavar="SOURCE", callback=checked(check_group), shell_complete=complete_groups)
@click.argument("target", metavar="TARGET", callback=checked(check_group), shell_complete=complete_groups)
@only_topic_option
@dry_run_option
@yes_option
@output_option
@access_options
def clone(
    access: Access,
    output: OutputFormat,
    source: str,
    target: str,
    topic: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Set the offsets of group TARGET to those of group SOURCE."""
    if not dry_run:
        confirm(f"Reset group {target} to the offsets of {source}", yes=yes)

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        return await _print_resets(output, admin.offsets.clone(source, target, topic, dry_run=dry_run))

    run_admin(access, work)


async def _print_resets(
    output: OutputFormat, change: Awaitable[tuple[OffsetReset, ...]]
) -> Mapping[str, RocketMQError]:
    """Print the resets that a change made. Return the errors of the brokers where it failed."""
    result, failures = await partial_result(change)  # resets, or resets by broker if some brokers failed
    resets: Sequence[OffsetReset] = (
        result
        if isinstance(result, tuple)
        else [reset for of_broker in result.values() for reset in of_broker]
    )
    print_result(output, RESETS.values(resets), [RESETS.table(resets)])
    return failures
