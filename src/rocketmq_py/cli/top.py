"""``rocketmq-py top``: its options, and what it prints."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.console import is_terminal
from rocketmq_py.cli.sheet import WATCH, Column, Form, Sheet, at, show, takes_form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin
    from rocketmq_py.cli.looking import Busy
    from rocketmq_py.errors import RocketMQError

_LINES_AROUND = 6
"""Of a terminal: what stands around the rows of the two tables."""


@click.command
@click.option(
    "--interval", metavar="SECONDS", type=click.FloatRange(min=0.1), default=2.0, show_default=True,
    help="Look again so many seconds later.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Look twice, print what came in between, and end.")
@click.option(
    "--rows", metavar="N", type=click.IntRange(min=1),
    help="So many topics and groups at the most; without it, what fits the terminal, or all.",
)  # fmt: skip
@takes_form
@takes_access
def top(access: Access, form: Form, interval: float, once: bool, rows: int | None) -> None:
    """Show the topics that get most messages and the groups that are furthest behind, until Ctrl-C.

    IN/S is what a topic got between two looks, OUT/S what brokers say that a group takes. Each topic is asked
    for on each of its brokers, many side by side.
    """
    import trio

    from rocketmq_py.cli.administering import administer
    from rocketmq_py.cli.looking import Looking

    if not once:
        click.get_current_context().meta[WATCH] = interval
    looking = Looking()

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        if once:
            await looking.look(admin)
            await trio.sleep(interval)
        busy = await looking.look(admin)
        show(form, _value(busy, rows), _sheets(busy, rows or _rows_that_fit()))
        return busy.failures

    administer(access, work)


def _rows_that_fit() -> int | None:
    if not is_terminal(sys.stdout):
        return None
    return max((shutil.get_terminal_size().lines - _LINES_AROUND) // 2, 1)


def _value(busy: Busy, rows: int | None) -> dict[str, Any]:
    from rocketmq_py.cli.administering import told

    return {
        "topics": [
            {"topic": one.topic, "rate": one.rate, "messages": one.messages, "last_message_ms": one.last_ms}
            for one in busy.topics[:rows]
        ],
        "groups": [
            {"group": one.group, "lag": one.lag, "rate": one.rate, "members": one.members}
            for one in busy.groups[:rows]
        ],
        "failures": told(busy.failures),
    }


def _sheets(busy: Busy, rows: int | None) -> list[Sheet]:
    topics = Sheet(
        [
            Column("TOPIC"),
            Column("IN/S", right=True),
            Column("MESSAGES", right=True),
            Column("LAST MESSAGE"),
        ],
        [(one.topic, one.rate, one.messages, at(one.last_ms)) for one in busy.topics[:rows]],
    )
    groups = Sheet(
        [
            Column("GROUP"),
            Column("LAG", right=True),
            Column("OUT/S", right=True),
            Column("MEMBERS", right=True),
        ],
        [(one.group, one.lag, one.rate, one.members) for one in busy.groups[:rows]],
    )
    return [topics, groups]
