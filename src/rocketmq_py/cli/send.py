"""``rocketmq-py send``: its options."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import IO, TYPE_CHECKING

import click

from rocketmq_py.cli.access import Access, takes_access_beside_keys
from rocketmq_py.cli.options import (
    checked,
    parse_duration,
    parse_property,
    parse_queue,
    parse_time,
    topic_option,
)
from rocketmq_py.names import check_topic

if TYPE_CHECKING:
    from rocketmq_py.message import Message


@click.command
@topic_option
@click.argument("body", required=False, type=click.UNPROCESSED)
@click.option(
    "-f",
    "file",
    metavar="FILE",
    type=click.File("rb"),
    help="Send what FILE holds as one message; - is stdin.",
)
@click.option("--tag", metavar="TAG", default="", help="The messages' tag.")
@click.option(
    "-k",
    "--key",
    "keys",
    metavar="KEY",
    multiple=True,
    help="A key to find the messages by; may be repeated.",
)
@click.option(
    "-H",
    "properties",
    metavar="NAME=VALUE",
    callback=checked(parse_property),
    multiple=True,
    help="A property of the messages; may be repeated.",
)
@click.option(
    "--sharding-key",
    metavar="KEY",
    default="",
    help="Messages of one key go to one queue, as long as the topic's queues stay the same.",
)
@click.option(
    "--queue",
    metavar="BROKER/N",
    callback=checked(parse_queue),
    help="The queue that they go to.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Each line is a message as `tail -J` prints it; its tag, keys and properties go along.",
)
@click.option(
    "--template",
    is_flag=True,
    help="Fill {n} (a counter), {time_ms}, {time} and {random} in bodies, keys and the sharding key.",
)
@click.option(
    "--rate",
    metavar="N",
    type=click.FloatRange(min=0, min_open=True),
    help="Send N messages a second at the most.",
)
@click.option(
    "--delay",
    metavar="TIME",
    callback=checked(parse_duration),
    help="Deliver the messages so much later: 250ms, 7.3s, 5m, 2h, 1d. Brokers older than 5.0 need a relay.",
)
@click.option(
    "--deliver-at",
    "deliver_at_ms",
    metavar="TIME",
    callback=checked(parse_time),
    help="Deliver the messages then: 2026-01-31T08:00, of this machine's zone if it names none, or @MS.",
)
@click.option(
    "--priority",
    metavar="N",
    type=click.IntRange(0, 2**31 - 1),
    help="Pop consumers of a topic of type PRIORITY get the highest first: it is their queue (5.4.0).",
)
@click.option(
    "--half",
    type=click.Choice(["commit", "rollback"]),
    help="Send each as a half message, in a transaction that is then committed or rolled back.",
)
@click.option(
    "--delay-relay",
    metavar="TOPIC",
    callback=checked(check_topic),
    help="The buffer topic of a relay, for brokers older than 5.0: see `rocketmq-py relay`.",
)
@click.option(
    "-c",
    "count",
    metavar="COUNT",
    type=click.IntRange(min=1),
    help="Stop after COUNT messages; a BODY or FILE is sent COUNT times.",
)
@click.option(
    "--oneway",
    is_flag=True,
    help="Do not wait for the broker to answer: fast, and what is lost goes unnoticed.",
)
@click.option("-v", "verbose", is_flag=True, help="Print a line for each message instead of a summary.")
@takes_access_beside_keys
def send(
    access: Access,
    topic: str,
    body: str | None,
    file: IO[bytes] | None,
    tag: str,
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
    half: str | None,
    delay_relay: str | None,
    count: int | None,
    oneway: bool,
    verbose: bool,
) -> None:
    """Send messages to a topic.

    BODY is one message. Without it each line of stdin is one, sent as it comes: without its newline,
    otherwise byte for byte (a carriage return stays), and empty lines are left out, as brokers refuse
    empty messages. With --json each line is a message with its tag, keys and properties.
    Messages are spread over the topic's queues and sent many at a time.

    Results go to stderr. The exit code is 0 when every message was stored (with --oneway: was handed to
    the network), and 1 when one was not; then stderr says how many and why.
    """  # fmt: skip
    if body is not None and file is not None:
        raise click.UsageError("give BODY or -f FILE, not both")
    if oneway and verbose:
        raise click.UsageError("-v shows the broker's answers, and with --oneway there are none")

    if queue is not None and sharding_key:
        raise click.UsageError("give --queue or --sharding-key, not both")
    if as_json and (template or body is not None or file is not None):
        raise click.UsageError("--json is for lines of stdin: neither BODY, -f nor --template goes with it")
    if delay is not None and deliver_at_ms is not None:
        raise click.UsageError("give --delay or --deliver-at, not both")
    if delay_relay is not None and delay is None and deliver_at_ms is None:
        raise click.UsageError("--delay-relay is for messages with --delay or --deliver-at")
    if half is not None and (oneway or delay or deliver_at_ms or priority is not None):
        raise click.UsageError("--half goes with none of --oneway, --delay, --deliver-at and --priority")

    from rocketmq_py.cli.bodies import Repeated, lines_of_stdin
    from rocketmq_py.cli.console import complain, is_terminal
    from rocketmq_py.cli.making import Pattern, from_json, templates
    from rocketmq_py.cli.running import end_for_signal, run
    from rocketmq_py.cli.sending import send_all
    from rocketmq_py.cli.tally import Tally
    from rocketmq_py.errors import InvalidMessageError
    from rocketmq_py.message import MessageQueue

    pattern = Pattern(
        topic=topic,
        tag=tag,
        keys=keys,
        properties=dict(properties),
        delay=delay or 0.0,
        deliver_at_ms=deliver_at_ms or 0,
        priority=priority,
        sharding_key=sharding_key,
    )
    one = os.fsencode(body) if body is not None else file.read() if file is not None else None
    try:
        pattern.make(one if one is not None else b"?")
    except InvalidMessageError as error:
        raise click.UsageError(str(error)) from None
    make: Callable[[bytes], Message] = pattern.make
    if as_json:
        make = partial(from_json, pattern)
    elif template:
        make = templates(pattern, rng=random.Random())
    if "||" in tag:
        complain(
            f"a message has one tag: {tag!r} is sent as it is, and who subscribes to a part of it misses it"
        )
    bodies = lines_of_stdin(count) if one is None else Repeated(one, count or 1)
    tally = Tally(verbose=verbose)
    # Not while somebody types the messages into the same terminal, nor between the lines of -v.
    typing = one is None and is_terminal(sys.stdin)
    show = not verbose and not typing and is_terminal(sys.stderr)
    caught = run(
        lambda: send_all(
            access,
            make,
            bodies,
            tally,
            queue=None if queue is None else MessageQueue(topic, *queue),
            rate=rate,
            delay_relay=delay_relay,
            half=half,
            oneway=oneway,
            show=show,
        )
    )
    end_for_signal(caught)
    sys.exit(1 if tally.failed else 0)
