"""``rocketmq-py send``: options. :mod:`~rocketmq_py.cli.send_loop` does the work."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import IO, TYPE_CHECKING

import click

from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.option_values import (
    InputFile,
    checked,
    parse_duration,
    parse_future_time,
    parse_property,
    parse_queue,
    read_file,
)
from rocketmq_py.cli.options import required_topic_option
from rocketmq_py.names import check_topic

if TYPE_CHECKING:
    from rocketmq_py.message import Message


@click.command
@required_topic_option
@click.argument("body", required=False, type=click.UNPROCESSED)
@click.option(
    "-f",
    "file",
    metavar="FILE",
    type=InputFile(),
    help="Send the content of FILE as one message (- for stdin).",
)
@click.option("--tags", metavar="TAG", default="", help="Tag of the messages.")
@click.option(
    "-k",
    "--key",
    "keys",
    metavar="KEY",
    multiple=True,
    help="Key of the messages. Repeatable.",
)
@click.option(
    "-H",
    "properties",
    metavar="NAME=VALUE",
    callback=checked(parse_property),
    multiple=True,
    help="Property of the messages. Repeatable.",
)
@click.option(
    "--sharding-key",
    metavar="KEY",
    default="",
    help="Send messages with the same key to the same queue, as long as the topic's queues do not change.",
)
@click.option(
    "--queue",
    metavar="BROKER/N",
    callback=checked(parse_queue),
    help="Send the messages to this queue.",
)
@click.option(
    "-J",
    "--json",
    "as_json",
    is_flag=True,
    help="Each line of stdin is a message in JSON, with the names of Message, as `tail --json` prints it.",
)
@click.option(
    "--template",
    is_flag=True,
    help="Replace {n} (a counter), {time_ms}, {time} and {random} in bodies, keys and the sharding key.",
)
@click.option(
    "--rate",
    metavar="N",
    type=click.FloatRange(min=0, min_open=True),
    help="Send at most N messages per second.",
)
@click.option(
    "--delay",
    metavar="TIME",
    callback=checked(parse_duration),
    help="Deliver the messages after TIME: 250ms, 7.3s, 5m, 2h, 1d. Brokers before 5.0 need a relay.",
)
@click.option(
    "--deliver-at",
    "deliver_at_ms",
    metavar="TIME",
    callback=checked(parse_future_time),
    help="Deliver the messages at TIME: 2026-01-31T08:00 (local time without an offset), 10m, or @MS.",
)
@click.option(
    "--priority",
    metavar="N",
    type=click.IntRange(0, 2**31 - 1),
    help="Priority for pop consumers of a PRIORITY topic: the highest is delivered first (5.4.0).",
)
@click.option(
    "--lite-topic",
    metavar="NAME",
    default="",
    help="Lite topic below TOPIC, which has the type LITE (5.5.0).",
)
@click.option(
    "--half",
    type=click.Choice(["commit", "rollback"]),
    help="Send each message in a transaction, as a half message, then commit or roll back.",
)
@click.option(
    "--delay-relay",
    metavar="TOPIC",
    callback=checked(check_topic),
    help="Buffer topic of a relay, for brokers before 5.0. See `rocketmq-py relay`.",
)
@click.option(
    "--start-deliver-time/--no-start-deliver-time",
    default=None,
    envvar="ROCKETMQ_START_DELIVER_TIME",
    show_envvar=True,
    help="Send delivery times as __STARTDELIVERTIME, too. By default if the address is of a service that "
    "delivers by it.",
)
@click.option(
    "-c",
    "count",
    metavar="COUNT",
    type=click.IntRange(min=1),
    help="Stop after COUNT messages. BODY or FILE is sent COUNT times.",
)
@click.option(
    "--oneway",
    is_flag=True,
    help="Do not wait for the broker's answer. Fast, but lost messages are not noticed.",
)
@click.option("-v", "verbose", is_flag=True, help="Print a line per message instead of a summary.")
@access_options
def send(
    access: Access,
    topic: str,
    body: str | None,
    file: IO[bytes] | None,
    tags: str,
    keys: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    sharding_key: str,
    queue: tuple[str, int] | None,
    as_json: bool,
    template: bool,
    rate: float | None,
    delay: float | None,
    deliver_at_ms: int | None,
    priority: int | None,
    lite_topic: str,
    half: str | None,
    delay_relay: str | None,
    count: int | None,
    oneway: bool,
    verbose: bool,
) -> None:
    """Send messages to a topic.

    BODY is one message. Without BODY and -f, each line of stdin is a message, and is sent as soon as it
    arrives. Its newline is removed, all other bytes are kept. Empty lines are skipped, since brokers reject
    empty messages. Many messages are in flight at a time, spread over the queues of the topic.

    Results go to stderr. The exit code is 0 if every message was stored (with --oneway: written to the
    network). Otherwise it is 1, and stderr shows the number of failures by reason.

    With --json, a line has body (or body_base64), and optionally tags, keys, properties, flag,
    sharding_key, delay (seconds), deliver_at_ms, delay_level, priority, lite_topic and wait_store_ok.
    user_properties, as `tail --json` prints them, are sent as properties. The other fields that it prints
    are ignored. An unknown field ends the command with exit code 1, in a file before anything is sent.
    """  # fmt: skip
    if body is not None and file is not None:
        raise click.UsageError("give BODY or -f FILE, not both")
    if oneway and verbose:
        raise click.UsageError("-v prints the broker's answers, but with --oneway there are none")
    if queue is not None and sharding_key:
        raise click.UsageError("give --queue or --sharding-key, not both")
    if as_json and (template or body is not None or file is not None):
        raise click.UsageError("--json reads lines of stdin: do not give BODY, -f or --template")
    if delay is not None and deliver_at_ms is not None:
        raise click.UsageError("give --delay or --deliver-at, not both")
    if delay_relay is not None and delay is None and deliver_at_ms is None:
        raise click.UsageError("--delay-relay is for messages with --delay or --deliver-at")
    if half is not None and (oneway or delay or deliver_at_ms or priority is not None or lite_topic):
        raise click.UsageError(
            "--half cannot be used with --oneway, --delay, --deliver-at, --priority or --lite-topic"
        )
    if lite_topic and queue is not None:
        raise click.UsageError("give --queue or --lite-topic, not both")

    from rocketmq_py.cli.console import complain, is_terminal
    from rocketmq_py.cli.message_input import (
        MessageFields,
        RepeatedBody,
        json_lines_of_stdin,
        json_message,
        lines_of_stdin,
        template_messages,
    )
    from rocketmq_py.cli.runner import exit_for_signal, run
    from rocketmq_py.cli.send_loop import send_all
    from rocketmq_py.cli.send_statistics import SendStatistics
    from rocketmq_py.errors import InvalidMessageError
    from rocketmq_py.message import MessageQueue

    fields = MessageFields(
        topic=topic,
        tags=tags,
        keys=keys,
        properties=dict(properties),
        delay=delay or 0.0,
        deliver_at_ms=deliver_at_ms or 0,
        priority=priority,
        lite_topic=lite_topic,
        sharding_key=sharding_key,
    )
    single_body = os.fsencode(body) if body is not None else read_file(file) if file is not None else None
    try:
        fields.message(single_body if single_body is not None else b"?")
    except InvalidMessageError as error:
        raise click.UsageError(str(error)) from None
    make: Callable[[bytes], Message] = fields.message
    if as_json:
        make = partial(json_message, fields)
    elif template:
        make = template_messages(fields, rng=random.Random())
    if "||" in tags:
        complain(f"a message has one tag: consumers that subscribe to a part of {tags!r} will not receive it")
    statistics = SendStatistics(verbose=verbose)
    # A progress line would disturb messages that are typed on the same terminal, and the lines of -v.
    is_typed = single_body is None and is_terminal(sys.stdin)
    progress = not verbose and not is_typed and is_terminal(sys.stderr)

    async def work() -> None:
        bodies = (
            RepeatedBody(single_body, count or 1) if single_body is not None
            else await json_lines_of_stdin(count) if as_json
            else lines_of_stdin(count)
        )  # fmt: skip
        await send_all(
            access,
            make,
            bodies,
            statistics,
            queue=None if queue is None else MessageQueue(topic, *queue),
            rate=rate,
            delay_relay=delay_relay,
            half=half,
            oneway=oneway,
            progress=progress,
        )

    exit_for_signal(run(work))
    sys.exit(1 if statistics.failed else 0)
