"""``rocketmq-py tail``: its options."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.file_names import compile_name
from rocketmq_py.cli.format import BODY_A_LINE, Render, as_it_is, compile_format
from rocketmq_py.cli.options import (
    check_topic_or_pattern,
    checked,
    compile_pattern,
    complete_topics,
    group_option,
    not_empty,
    raw_option,
    since_option,
    until_option,
)
from rocketmq_py.cli.start import Offset, Position, parse_offset

if TYPE_CHECKING:
    from rocketmq_py.message import ReceivedMessage

MAX_COMMANDS = 8
"""Commands of -x that run concurrently in a group."""


@click.command
@click.option(
    "-t", "topics", metavar="TOPIC", callback=checked(check_topic_or_pattern), required=True, multiple=True,
    shell_complete=complete_topics,
    help="The topic; may be repeated, or be a pattern: 'order-*'.",
)  # fmt: skip
@group_option
@click.option(
    "-o",
    "offset",
    metavar="OFFSET",
    callback=checked(parse_offset),
    show_default="end",
    help="Where to start: beginning, end, N (this offset in each queue), -N (the last N of each "
    "queue), @TIMESTAMP_MS or, with an end, @T1..@T2. With -G it says where a new group begins.",
)
@since_option
@until_option
@click.option(
    "--wait", is_flag=True,
    help="Wait for topics that do not exist yet, and print them from their first message on.",
)  # fmt: skip
@click.option("-e", "stop_at_end", is_flag=True, help="Stop at the end of the topic.")
@click.option("-c", "count", metavar="COUNT", type=click.IntRange(min=1), help="Stop after COUNT messages.")
@click.option(
    "--tag",
    "tags",
    metavar="TAGS",
    callback=checked(not_empty),
    help="Only these tags: A, or A || B.",
)
@click.option(
    "--sql",
    metavar="FILTER",
    callback=checked(not_empty),
    help="Only what a SQL92 filter on properties lets through, if brokers have enablePropertyFilter.",
)
@click.option(
    "--grep",
    "pattern",
    type=click.UNPROCESSED,
    metavar="PATTERN",
    callback=checked(compile_pattern),
    help="Only what has PATTERN, a regular expression of Python's, somewhere in its body.",
)
@click.option(
    "-f",
    "render",
    type=click.UNPROCESSED,
    metavar="FORMAT",
    callback=checked(compile_format),
    help=r"How to print a message; the default is '%s\n', see below.",
)
@click.option("-J", "as_json", is_flag=True, help="Print messages as lines of JSON.")
@raw_option
@click.option(
    "--to", "file_name", metavar="FILE", type=click.UNPROCESSED, callback=checked(compile_name),
    help="Add messages to FILE, whose name may hold {topic}, {broker}, {queue}, {tag} and {key}.",
)  # fmt: skip
@click.option(
    "-x", "command", metavar="COMMAND", type=click.UNPROCESSED, callback=checked(not_empty),
    help="Run COMMAND for each message, which it reads from its stdin.",
)  # fmt: skip
@click.option(
    "--lag", "lag_every", metavar="SECONDS", type=click.FloatRange(min=0.1),
    help="With -G: tell every so many seconds, on stderr, how far the group is behind.",
)  # fmt: skip
@takes_access
def tail(
    access: Access,
    topics: tuple[str, ...],
    group: str | None,
    offset: Offset | None,
    begin_ms: int | None,
    end_ms: int | None,
    wait: bool,
    stop_at_end: bool,
    count: int | None,
    tags: str | None,
    sql: str | None,
    pattern: re.Pattern[bytes] | None,
    render: Render | None,
    as_json: bool,
    raw: bool,
    file_name: Callable[[ReceivedMessage], str] | None,
    command: str | None,
    lag_every: float | None,
) -> None:
    """Print the messages of topics as they come, without joining a group.

    It goes on until Ctrl-C (exit code 130), until whoever reads its output goes away, until -c COUNT
    messages, or with -e until all that was there has been printed. The messages of one queue come in
    order; those of different queues are mixed. A pattern means the topics that there are at the beginning.

    With -G offsets are committed once messages are printed, so the next run goes on where this one
    stopped; what was just being printed when it was stopped may come again. -e and --until are not
    possible then, and neither are N and -N as -o. What --grep leaves out counts as consumed.

    --since is another word for -o; --until prints what was stored until then, and ends.

    -x runs a command of the shell for each message, of a topic one after the other; its environment has
    ROCKETMQ_MESSAGE_TOPIC, _ID, _TAG and _KEYS. If it fails that is the end, with exit code 1;
    with -G the message has failed, and comes again, and some commands run at the same time.

    In file names of --to, characters of messages that are unsafe there are written as %XX. In the
    variables of -x, NUL is. Text that is too long is shortened and ends with a hash of the whole.

    \b
    FORMAT is text with these letters, as in kcat:
      %s body                     %S its length in bytes
      %k keys, blanks between     %K their length in bytes, -1 without any
      %t topic                    %p queue
      %b broker                   %o offset in the queue
      %g tag                      %i message id
      %h properties, as name=value,name=value
      %T time when the broker stored it, in ms: what -o @TIMESTAMP_MS looks for
      %% a percent sign
    and the escapes \\n \\t \\r \\0 \\xNN \\\\. No newline is added.

    \b
    -J prints these fields, in this order:
      topic, broker, queue, offset, message_id, store_time_ms (broker's clock),
      born_time_ms (sender's clock), reconsume_times, tag, keys (a list),
      properties, body (if it is UTF-8 text; else body_base64)
    """  # fmt: skip
    if as_json and render is not None:
        raise click.UsageError("give -f FORMAT or -J, not both")
    if offset is not None and begin_ms is not None:
        raise click.UsageError("give -o or --since, not both")
    if file_name is not None and command is not None:
        raise click.UsageError("give --to or -x, not both")
    if lag_every is not None and group is None:
        raise click.UsageError("--lag is for -G: without a group there is none")
    end = "--until"
    if offset is not None and offset.end_ms is not None:
        if end_ms is not None:
            raise click.UsageError("give --until or -o @T1..@T2, not both")
        end_ms, end = offset.end_ms, "-o @T1..@T2"
    if tags is not None and sql is not None:
        raise click.UsageError("give --tag or --sql, not both")
    if end_ms is not None and end_ms > time.time() * 1000:
        raise click.UsageError(f"{end} is a time that has passed")
    if begin_ms is not None:
        offset = Offset(Position.TIMESTAMP, begin_ms)
    elif offset is None:
        offset = Offset(Position.END if end_ms is None else Position.BEGINNING)
    if group is not None and end_ms is not None:
        raise click.UsageError(f"{end} does not go with -G: other members hold a part of the topic")
    if group is not None and stop_at_end:
        raise click.UsageError("-e does not go with -G: other members hold a part of the topic")
    if group is not None and offset.position in (Position.OFFSET, Position.LAST):
        raise click.UsageError("with -G, -o takes beginning, end or @TIMESTAMP_MS")

    from rocketmq_py.cli.outlets import Printed, to_command, to_files
    from rocketmq_py.cli.running import end_for_signal, run
    from rocketmq_py.cli.tailing import MAX_CONCURRENT, Tail

    if as_json:
        from rocketmq_py.cli.json_lines import json_line

        render = json_line
    shown = render or compile_format(BODY_A_LINE)
    if raw:
        shown = as_it_is(shown)
    outlet = to_files(file_name) if file_name else to_command(command) if command else Printed
    job = Tail(
        access,
        topics,
        tags or "*",
        offset,
        shown,
        count,
        sql=sql,
        pattern=pattern,
        end_ms=end_ms,
        outlet=outlet,
        concurrency=MAX_COMMANDS if command else MAX_CONCURRENT,
        lag_every=lag_every,
        wait=wait,
    )
    end_for_signal(run(lambda: job.as_member(group) if group else job.as_reader(stop_at_end=stop_at_end)))
