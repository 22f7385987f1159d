"""``rocketmq-py dlq``: its commands and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.consumer_group import group_argument
from rocketmq_py.cli.message_sheets import first_words, full_value
from rocketmq_py.cli.options import since_option, until_option
from rocketmq_py.cli.sheet import Column, Form, Sheet, at, show, takes_form, takes_watch
from rocketmq_py.cli.topic import yes_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketmq_py.admin import Admin, DeadLetter, DeadLetterListing
    from rocketmq_py.errors import RocketMQError

count_option: Final = click.option(
    "-c", "count", metavar="COUNT", type=click.IntRange(1, 10_000), default=100, show_default=True,
    help="The newest COUNT at the most.",
)  # fmt: skip


@click.group
def dlq() -> None:
    """List what a group has given up, and send it again."""


@dlq.command("list")
@group_argument
@since_option
@until_option
@count_option
@takes_form
@takes_watch
@takes_access
def list_letters(
    access: Access, form: Form, group: str, begin_ms: int | None, end_ms: int | None, count: int
) -> None:
    """Print the dead letters of a group, oldest first."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        found = await admin.dead_letters.list(group, max=count, begin_ms=begin_ms, end_ms=end_ms)
        show(form, [_value(one) for one in found.letters], [_sheet(group, found)])
        return found.failures

    administer(access, work)


@dlq.command()
@group_argument
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that `dlq list` shows with the same options.")
@since_option
@until_option
@count_option
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@yes_option
@takes_form
@takes_access
def resend(
    access: Access,
    form: Form,
    group: str,
    ids: tuple[str, ...],
    everything: bool,
    begin_ms: int | None,
    end_ms: int | None,
    count: int,
    dry_run: bool,
    yes: bool,
) -> None:
    """Send dead letters to the topic that they came from, where all its groups get them.

    ID is a message id, of either kind, as `dlq list` shows it. They stay among the dead letters, too. What is
    sent has two more properties: RESENT_FROM, the dead-letter topic, and RESENT_MESSAGE_ID.
    """
    if bool(ids) == everything:
        raise click.UsageError("give ids of dead letters, or --all")
    from rocketmq_py.cli.administering import administer, ask_first

    if not dry_run:
        ask_first(f"Send {'all listed' if everything else len(ids)} dead letters of {group} again", yes=yes)

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        found = await admin.dead_letters.list(group, max=count, begin_ms=begin_ms, end_ms=end_ms)
        letters = _chosen(group, found.letters, ids) if ids else found.letters
        if dry_run:
            show(form, [_value(one) for one in letters], [_sheet(group, found, letters)])
            return found.failures
        results = await admin.dead_letters.resend(letters)
        rows = [
            (
                one.message.message_id,
                one.origin_topic,
                results.values[one.message.offset_message_id].message_id,
            )
            for one in letters
            if one.message.offset_message_id in results.values
        ]
        columns = [Column("DEAD LETTER"), Column("SENT TO"), Column("AS")]
        names = ("message_id", "topic", "sent_message_id")
        show(form, [dict(zip(names, row, strict=True)) for row in rows], [Sheet(columns, rows)])
        return {**found.failures, **results.failures}

    administer(access, work)


def _chosen(group: str, letters: Sequence[DeadLetter], ids: Sequence[str]) -> list[DeadLetter]:
    from rocketmq_py.cli.running import CommandError

    chosen = []
    for wanted in dict.fromkeys(ids):
        found = [one for one in letters if wanted in (one.message.message_id, one.message.offset_message_id)]
        if not found:
            raise CommandError(
                f"there is no {wanted} among the newest {len(letters)} dead letters of {group}; "
                "nothing was sent"
            )
        chosen += found
    return chosen


def _value(letter: DeadLetter) -> dict[str, Any]:
    return {
        "origin_topic": letter.origin_topic,
        "origin_message_id": letter.origin_message_id,
        **full_value(letter.message),
    }


def _sheet(group: str, found: DeadLetterListing, letters: Sequence[DeadLetter] | None = None) -> Sheet:
    columns = [
        Column("STORED"),
        Column("MESSAGE ID"),
        Column("FROM TOPIC"),
        Column("OFFSET MESSAGE ID", wide=True),
        Column("TAG"),
        Column("KEYS"),
        Column("BODY"),
    ]
    rows = [
        (
            at(one.message.store_time_ms),
            one.message.message_id,
            one.origin_topic,
            one.message.offset_message_id,
            one.message.tags,
            one.message.keys,
            first_words(one.message),
        )
        for one in (found.letters if letters is None else letters)
    ]
    return Sheet(columns, rows, title=f"{group}: {found.total:,} dead letters, {len(rows):,} shown")
