"""``rocketmq-py dlq``: dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from rocketmq_py.cli.admin_runner import run_admin
from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.console import complain
from rocketmq_py.cli.message_tables import body_summary, full_value
from rocketmq_py.cli.options import group_argument, since_option, until_option, yes_option
from rocketmq_py.cli.prompts import confirm
from rocketmq_py.cli.table_layout import Column
from rocketmq_py.cli.tables import (
    OutputFormat,
    Table,
    format_time,
    output_option,
    print_result,
    watch_option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketmq_py.admin import Admin, DeadLetter
    from rocketmq_py.admin.message_values import DeadLetterListing
    from rocketmq_py.errors import RocketMQError
    from rocketmq_py.position import Position

count_option: Final = click.option(
    "-c", "count", metavar="COUNT", type=click.IntRange(1, 10_000), default=100, show_default=True,
    help="At most the newest COUNT messages.",
)  # fmt: skip

UNKNOWN: Final = "cannot tell whether {} was sent again"
"""The failed action if a broker does not find the message that was resent for a dead letter."""


@click.group
def dlq() -> None:
    """List and resend dead letters: messages that a group failed on too often."""


@dlq.command("list")
@group_argument
@since_option
@until_option
@count_option
@output_option
@watch_option
@access_options
def list_letters(
    access: Access,
    output: OutputFormat,
    group: str,
    since: Position | None,
    until: Position | None,
    count: int,
) -> None:
    """List the dead letters of a group, oldest first."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        found = await admin.dead_letters.list(
            group, max_messages=count, start=since or "earliest", end=until or "latest"
        )
        print_result(output, [_value(one) for one in found.letters], [_table(group, found)])
        return _named_failures(found, found.failures, UNKNOWN)

    run_admin(access, work)


@dlq.command()
@group_argument
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--all", "everything", is_flag=True, help="Resend all that `dlq list` shows with the same options."
)
@since_option
@until_option
@count_option
@click.option("--to-topic", is_flag=True, help="Send them to their original topics, for all groups.")
@click.option("--again", is_flag=True, help="Also send letters that were sent again before.")
@click.option("--dry-run", is_flag=True, help="Print the messages without sending them.")
@yes_option
@output_option
@access_options
def resend(
    access: Access,
    output: OutputFormat,
    group: str,
    ids: tuple[str, ...],
    everything: bool,
    since: Position | None,
    until: Position | None,
    count: int,
    to_topic: bool,
    again: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Send dead letters to the group that failed on them, as messages of their original topic.

    ID is a message id or offset message id that `dlq list` shows. Other groups do not receive the messages,
    except with --to-topic. The letters also stay in the dead-letter topic. Letters that were sent again
    before, as `dlq list` shows, are skipped, except with --again.
    """
    if bool(ids) == everything:
        raise click.UsageError("give ids of dead letters, or --all")
    if not dry_run:
        target = "their original topics" if to_topic else "the group"
        number = "all listed" if everything else len(ids)
        confirm(f"Resend {number} dead letters of {group} to {target}", yes=yes)

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        found = await admin.dead_letters.list(
            group, max_messages=count, start=since or "earliest", end=until or "latest"
        )
        letters = _selected(group, found.letters, ids) if ids else found.letters
        fresh = [one for one in letters if again or one.resent_ms is None]
        if skipped := len(letters) - len(fresh):
            complain(f"skipped {skipped} that were sent again before; --again sends them once more")
        if dry_run:
            print_result(output, [_value(one) for one in fresh], [_table(group, found, fresh)])
            return _named_failures(found, found.failures, UNKNOWN)
        results = await admin.dead_letters.resend(fresh, to_topic=to_topic, again=again)
        rows = [
            (one.message.message_id, topic)
            for one in fresh
            if (topic := results.values.get(one.message.offset_message_id)) is not None
        ]
        columns = [Column("DEAD LETTER", whole=True), Column("SENT TO")]
        names = ("message_id", "topic")
        print_result(output, [dict(zip(names, row, strict=True)) for row in rows], [Table(columns, rows)])
        return _named_failures(found, {**found.failures, **results.failures}, "{} was not sent")

    run_admin(access, work)


def _selected(group: str, letters: Sequence[DeadLetter], ids: Sequence[str]) -> list[DeadLetter]:
    """Return the letters with the given ids. Raises CommandError if one is missing."""
    from rocketmq_py.cli.runner import CommandError

    selected = []
    for wanted in dict.fromkeys(ids):
        found = [one for one in letters if wanted in (one.message.message_id, one.message.offset_message_id)]
        if not found:
            raise CommandError(
                f"{wanted} is not among the newest {len(letters)} dead letters of group {group}; "
                "nothing was sent. Increase -c or check the id"
            )
        selected += found
    return selected


def _named_failures(
    found: DeadLetterListing, failures: Mapping[str, RocketMQError], what: str
) -> dict[str, RocketMQError]:
    """Return errors by the failed action. For dead letters, ``what`` describes it, with the letter's id."""
    ids = {one.message.offset_message_id: one.message.message_id for one in found.letters}
    return {what.format(ids[key]) if key in ids else key: error for key, error in failures.items()}


def _value(letter: DeadLetter) -> dict[str, Any]:
    return {
        "origin_topic": letter.origin_topic,
        "origin_message_id": letter.origin_message_id,
        "reason": letter.reason,
        "resent_ms": letter.resent_ms,
        **full_value(letter.message),
    }


def _table(group: str, found: DeadLetterListing, letters: Sequence[DeadLetter] | None = None) -> Table:
    columns = [
        Column("STORED"),
        Column("MESSAGE ID", whole=True),
        Column("ORIGINAL TOPIC"),
        Column("OFFSET MESSAGE ID", wide=True, whole=True),
        Column("TAGS"),
        Column("KEYS"),
        Column("BODY", detail=True),
        Column("REASON"),
        Column("RESENT"),
    ]
    rows = [
        (
            format_time(one.message.store_time_ms),
            one.message.message_id,
            one.origin_topic,
            one.message.offset_message_id,
            one.message.tags,
            one.message.keys,
            body_summary(one.message),
            one.reason,
            "unknown" if one.message.offset_message_id in found.failures else format_time(one.resent_ms),
        )
        for one in (found.letters if letters is None else letters)
    ]
    return Table(columns, rows, title=f"{group}: {found.total:,} dead letters, {len(rows):,} shown")
