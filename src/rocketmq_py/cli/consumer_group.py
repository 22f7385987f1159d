"""``rocketmq-py group``: its commands and their options."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.console import print_out
from rocketmq_py.cli.group_sheets import group_sheets, group_value
from rocketmq_py.cli.options import checked, complete_groups, complete_topics
from rocketmq_py.cli.reset_place import Place, parse_place, read_offsets
from rocketmq_py.cli.sheet import Column, Form, Sheet, show, takes_form, takes_watch
from rocketmq_py.cli.topic import broker_option, yes_option
from rocketmq_py.names import MAX_QUEUES, check_group, check_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketmq_py.admin import Admin, GroupSummary, OffsetReset
    from rocketmq_py.errors import RocketMQError

COUNT = click.IntRange(0, MAX_QUEUES)
Function = TypeVar("Function", bound=Callable[..., Any])
group_argument: Final = click.argument(
    "group", metavar="GROUP", callback=checked(check_group), shell_complete=complete_groups
)
topic_option: Final = click.option(
    "--topic", metavar="TOPIC", callback=checked(check_topic), shell_complete=complete_topics,
    help="Only this topic. Without it: all that the group consumes.",
)  # fmt: skip
dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


@click.group("group")
def consumer_group() -> None:
    """List, describe, create, alter, delete, reset and clone consumer groups."""


@consumer_group.command("list")
@click.option("--system", is_flag=True, help="With RocketMQ's own.")
@takes_form
@takes_watch
@takes_access
def list_groups(access: Access, form: Form, system: bool) -> None:
    """Print all groups, with their members and lag."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.groups.list(system=system)
        columns = [
            Column("GROUP"),
            Column("MEMBERS", right=True),
            Column("LAG", right=True),
            Column("MESSAGES/S", right=True),
            Column("CONSUMES"),
            Column("MODEL", wide=True),
            Column("BROKERS", wide=True),
        ]
        rows = [
            (one.group, one.members, one.lag, one.rate, one.consume_type, one.message_model, one.brokers)
            for one in listing.groups
        ]
        show(form, [_summary(one) for one in listing.groups], [Sheet(columns, rows)])
        return listing.failures

    administer(access, work)


def _summary(group: GroupSummary) -> dict[str, Any]:
    return {
        "group": group.group,
        "members": group.members,
        "lag": group.lag,
        "rate": group.rate,
        "consume_type": group.consume_type,
        "message_model": group.message_model,
        "brokers": list(group.brokers),
    }


@consumer_group.command()
@group_argument
@takes_form
@takes_watch
@takes_access
def describe(access: Access, form: Form, group: str) -> None:
    """Print a group's lag, members, subscriptions and settings."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        described = await admin.groups.describe(group)
        show(form, group_value(described), group_sheets(described))
        return described.failures

    administer(access, work)


SETTINGS = (
    click.option("--retries", metavar="N", type=COUNT, help="Failures until a message is a dead letter."),
    click.option("--retry-queues", metavar="N", type=COUNT, help="Queues of its retry topic."),
    click.option(
        "--consume/--no-consume", "consume_enable", default=None, help="Whether it may consume."
    ),
    click.option(
        "--broadcast/--no-broadcast", "broadcast_enable", default=None,
        help="Whether it may consume by broadcasting.",
    ),
    click.option("--orderly/--no-orderly", default=None, help="Whether it consumes in order (5.x)."),
)  # fmt: skip


def takes_settings(function: Function) -> Function:
    """Give a command the options that set what a group may do."""
    for option in reversed(SETTINGS):
        function = option(function)
    return function


@consumer_group.command()
@group_argument
@takes_settings
@broker_option
@click.option("--cluster", metavar="NAME", help="Only on the brokers of this cluster.")
@takes_form
@takes_access
def create(access: Access, form: Form, group: str, brokers: tuple[str, ...], **options: Any) -> None:
    """Create a group on all brokers, or some."""
    from rocketmq_py.cli.administering import administer, as_far_as_done

    given = {name: value for name, value in options.items() if value is not None}

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        done, failures = await as_far_as_done(admin.groups.create(group, brokers=brokers or None, **given))
        _show_done(form, group, "created", tuple(done))
        return failures

    administer(access, work)


@consumer_group.command()
@group_argument
@takes_settings
@broker_option
@takes_form
@takes_access
def alter(access: Access, form: Form, group: str, brokers: tuple[str, ...], **options: Any) -> None:
    """Change a group's settings; what is not given stays as it is."""
    from rocketmq_py.cli.administering import administer, as_far_as_done

    if all(value is None for value in options.values()):
        raise click.UsageError("nothing to change: give an option")

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        done, failures = await as_far_as_done(admin.groups.alter(group, brokers=brokers or None, **options))
        _show_done(form, group, "altered", tuple(done))
        return failures

    administer(access, work)


@consumer_group.command()
@group_argument
@click.option("--dead-letters", is_flag=True, help="Its dead letters, too.")
@yes_option
@takes_form
@takes_access
def delete(access: Access, form: Form, group: str, dead_letters: bool, yes: bool) -> None:
    """Delete a group with its offsets on all brokers."""
    from rocketmq_py.cli.administering import administer, ask_first

    also = ", its offsets and its dead letters" if dead_letters else " and its offsets"
    ask_first(f"Delete group {group}{also}", yes=yes)

    async def work(admin: Admin) -> None:
        _show_done(form, group, "deleted", await admin.groups.delete(group, dead_letters=dead_letters))

    administer(access, work)


@consumer_group.command()
@group_argument
@topic_option
@click.option(
    "--to", "place", metavar="PLACE", callback=checked(parse_place),
    help="earliest, latest, @MS (a time, epoch milliseconds) or OFFSET.",
)  # fmt: skip
@click.option("--as-group", metavar="GROUP", callback=checked(check_group), help="To where this group is.")
@click.option(
    "--file", "file", metavar="FILE", type=click.File("rb"),
    help='To the offsets in FILE, lines such as {"broker": "broker-a", "queue": 0, "offset": 7}; - is stdin.',
)  # fmt: skip
@dry_run_option
@yes_option
@takes_form
@takes_access
def reset(
    access: Access,
    form: Form,
    group: str,
    topic: str | None,
    place: Place | None,
    as_group: str | None,
    file: Any,
    dry_run: bool,
    yes: bool,
) -> None:
    """Have a group go on elsewhere, in one topic or all that it consumes.

    Brokers of 5.x move it while its members run. Those of 4.x tell the members, who can be told earliest,
    latest and a time only: stop them for anything else.
    """
    if sum(given is not None for given in (place, as_group, file)) != 1:
        raise click.UsageError("give one of --to, --as-group and --file")
    if file is not None and topic is None:
        raise click.UsageError("--file needs --topic")
    from rocketmq_py.admin import ResetTo
    from rocketmq_py.cli.administering import administer, ask_first

    if file is not None:
        to = ResetTo.queues(read_offsets(file, str(topic)))
    else:
        to = ResetTo.as_group(as_group) if as_group is not None else place.reset_to()  # type: ignore[union-attr]
    if not dry_run:
        ask_first(f"Reset group {group} on {topic or 'all its topics'}", yes=yes)

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        return await _move(form, admin.offsets.reset(group, topic, to, dry_run=dry_run))

    administer(access, work)


@consumer_group.command()
@click.argument("source", metavar="GROUP", callback=checked(check_group), shell_complete=complete_groups)
@click.argument("target", metavar="TARGET", callback=checked(check_group), shell_complete=complete_groups)
@topic_option
@dry_run_option
@yes_option
@takes_form
@takes_access
def clone(
    access: Access, form: Form, source: str, target: str, topic: str | None, dry_run: bool, yes: bool
) -> None:
    """Have group TARGET go on where GROUP is."""
    from rocketmq_py.cli.administering import administer, ask_first

    if not dry_run:
        ask_first(f"Reset group {target} to where {source} is", yes=yes)

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        return await _move(form, admin.offsets.clone(source, target, topic, dry_run=dry_run))

    administer(access, work)


def _show_done(form: Form, group: str, what: str, brokers: tuple[str, ...]) -> None:
    if form in (Form.JSON, Form.JSONL):
        show(form, {"group": group, "brokers": list(brokers)}, [])
    else:
        print_out(f"group {group}: {what} on {', '.join(brokers)}")


async def _move(form: Form, change: Awaitable[tuple[OffsetReset, ...]]) -> Mapping[str, RocketMQError]:
    """Print what a change did to queues, as far as brokers made it; return the errors of the others."""
    from rocketmq_py.cli.administering import as_far_as_done

    done, failures = await as_far_as_done(change)
    if isinstance(done, tuple):
        _show_moves(form, done)
    else:
        _show_moves(form, [move for some in done.values() for move in some])
    return failures


def _show_moves(form: Form, moves: Sequence[OffsetReset]) -> None:
    columns = [
        Column("TOPIC"),
        Column("BROKER"),
        Column("QUEUE", right=True),
        Column("BEFORE", right=True),
        Column("AFTER", right=True),
        Column("MIN OFFSET", right=True, wide=True),
        Column("MAX OFFSET", right=True, wide=True),
    ]
    rows = [
        (
            move.queue.topic,
            move.queue.broker_name,
            move.queue.queue_id,
            move.before,
            move.after,
            move.min_offset,
            move.max_offset,
        )
        for move in moves
    ]
    names = ("topic", "broker", "queue", "before", "after", "min_offset", "max_offset")
    show(form, [dict(zip(names, row, strict=True)) for row in rows], [Sheet(columns, rows)])
