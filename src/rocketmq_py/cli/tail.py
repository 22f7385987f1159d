"""``rocketmq-py tail``: its options. :mod:`~rocketmq_py.cli.tail_loop` reads and prints the messages."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.file_names import compile_name
from rocketmq_py.cli.message_formats import DEFAULT_FORMAT, Render, compile_format, json_line, unescaped
from rocketmq_py.cli.option_values import (
    POSITION_HELP,
    check_topic_or_pattern,
    checked,
    compile_pattern,
    not_empty,
    parse_interval,
    parse_position,
)
from rocketmq_py.cli.options import join_option, raw_option, since_option, topic_option, until_option

if TYPE_CHECKING:
    from rocketmq_py.message import ReceivedMessage
    from rocketmq_py.position import Position

MAX_COMMANDS = 8
"""Commands of -x that run concurrently with -G."""


@click.command
@topic_option(
    "Topic, or pattern of topics such as 'order-*'. Repeatable.",
    name="topics", check=check_topic_or_pattern, required=True, multiple=True,
)  # fmt: skip
@join_option
@click.option(
    "-o",
    "start",
    metavar="POSITION",
    callback=checked(parse_position),
    show_default="latest",
    help=f"Where to start: {POSITION_HELP}. With -G, the start of a new group.",
)
@since_option
@until_option
@click.option(
    "--wait", is_flag=True,
    help="Wait for topics that do not exist yet, and print them from their first message on.",
)  # fmt: skip
@click.option("-e", "stop_at_end", is_flag=True, help="Stop at the current end of the topic.")
@click.option("-c", "count", metavar="COUNT", type=click.IntRange(min=1), help="Stop after COUNT messages.")
@click.option(
    "--tags",
    metavar="TAGS",
    callback=checked(not_empty),
    help="Only messages with these tags: A, or A || B.",
)
@click.option(
    "--sql",
    metavar="FILTER",
    callback=checked(not_empty),
    help="Only messages whose properties match this SQL92 filter. Brokers need enablePropertyFilter.",
)
@click.option(
    "--grep",
    "pattern",
    type=click.UNPROCESSED,
    metavar="PATTERN",
    callback=checked(compile_pattern),
    help="Only messages whose body matches PATTERN (a Python regular expression).",
)
@click.option(
    "-f",
    "render",
    type=click.UNPROCESSED,
    metavar="FORMAT",
    callback=checked(compile_format),
    help=r"Format of a message, see above.  [default: %s\n]",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="Print each message as a line of JSON.")
@raw_option
@click.option(
    "--to", "file_name", metavar="FILE", type=click.UNPROCESSED, callback=checked(compile_name),
    help="Append messages to FILE. Its name may contain {topic}, {broker}, {queue}, {tags} and {key}. "
    "Missing folders are created.",
)  # fmt: skip
@click.option(
    "-x", "command", metavar="COMMAND", type=click.UNPROCESSED, callback=checked(not_empty),
    help="Run a shell command for each message, with the message as its stdin.",
)  # fmt: skip
@click.option(
    "--lag", "lag_every", metavar="TIME", callback=checked(parse_interval),
    help="With -G: print the group's lag to stderr every TIME: 10 (seconds), 500ms, 1m.",
)  # fmt: skip
@access_options
def tail(
    access: Access,
    topics: tuple[str, ...],
    group: str | None,
    start: Position | None,
    since: Position | None,
    until: Position | None,
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
    """Print the messages of topics as they arrive.

    It runs until Ctrl-C (exit code 130), until the reader of its output closes it, for -c COUNT messages,
    or with -e to the current end. Messages of one queue are in order, those of different queues are mixed.
    A pattern stands for the topics that match it at the start.

    With -G it joins a consumer group. Offsets are committed once messages are printed, so the next run
    continues there. Messages that were being printed at the end may be printed again. -G cannot be used
    with -e, --until, or N and -N of -o. Messages that --grep excludes count as consumed.

    --since sets the start position, as -o does. --until prints the messages stored before then, and exits.

    -x runs commands for the messages of a topic one after the other, with ROCKETMQ_MESSAGE_TOPIC, _ID,
    _TAGS and _KEYS in their environment. If one fails, tail exits with 1. With -G the message is
    redelivered instead, several commands run at a time, and Ctrl-C leaves them a second to end.

    In file names of --to, unsafe characters of messages become %XX, as does NUL in the variables of -x.
    Text that is too long is shortened and ends with a hash of the whole.

    \b
    FORMAT is text with these letters, as in kcat:
      %s body                         %S its length in bytes
      %k keys, separated by spaces    %K their length in bytes, -1 without keys
      %t topic                        %p queue id
      %b broker                       %o offset in the queue
      %g tags                         %i message id
      %h properties, as name=value,name=value
      %T store time on the broker in ms, as in -o @MS
      %% a percent sign
    The escapes are \\n \\t \\r \\0 \\xNN \\\\. No newline is added.

    \b
    --json prints these fields, in this order:
      topic, broker_name, queue_id, queue_offset, message_id,
      store_time_ms (broker's clock), born_time_ms (sender's clock),
      reconsume_times, tags, keys (a list), user_properties,
      body (if it is UTF-8 text; else body_base64)
    """  # fmt: skip
    from rocketmq_py.position import OF_GROUPS, Position, PositionKind

    if as_json and render is not None:
        raise click.UsageError("give -f FORMAT or --json, not both")
    if start is not None and since is not None:
        raise click.UsageError("give -o or --since, not both")
    if file_name is not None and command is not None:
        raise click.UsageError("give --to or -x, not both")
    if tags is not None and sql is not None:
        raise click.UsageError("give --tags or --sql, not both")
    if lag_every is not None and group is None:
        raise click.UsageError("--lag needs -G: only groups have a lag")
    end_ms = None if until is None else until.value
    if end_ms is not None and end_ms > time.time() * 1000:
        raise click.UsageError("--until must be a time in the past")
    position = start or since or (Position.latest if end_ms is None else Position.earliest)
    if end_ms is not None and position.kind is PositionKind.TIME and position.value > end_ms:
        raise click.UsageError("--until is before the start")
    if group is not None and end_ms is not None:
        raise click.UsageError("--until cannot be used with -G: other members consume a part of the topic")
    if group is not None and stop_at_end:
        raise click.UsageError("-e cannot be used with -G: other members consume a part of the topic")
    if group is not None and position.kind not in OF_GROUPS:
        raise click.UsageError("with -G, -o takes earliest, latest or a time")

    from rocketmq_py.cli.runner import exit_for_signal, run
    from rocketmq_py.cli.sinks import CommandSink, FileSink, OpenSink, StdoutSink
    from rocketmq_py.cli.tail_loop import MAX_CONCURRENT, Tail

    render_message = json_line if as_json else render or compile_format(DEFAULT_FORMAT)
    if raw:
        render_message = unescaped(render_message)
    sink: OpenSink = StdoutSink
    if file_name is not None:
        sink = partial(FileSink, file_name)
    elif command is not None:
        sink = partial(CommandSink, command)
    job = Tail(
        access,
        topics,
        tags or "*",
        position,
        render_message,
        count,
        sql=sql,
        pattern=pattern,
        end_ms=end_ms,
        sink=sink,
        concurrency=MAX_COMMANDS if command else MAX_CONCURRENT,
        lag_every=lag_every,
        wait=wait,
    )
    exit_for_signal(run(lambda: job.as_member(group) if group else job.as_reader(stop_at_end=stop_at_end)))
