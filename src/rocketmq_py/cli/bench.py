"""``rocketmq-py bench``: its commands and their options."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.options import checked, group_option, parse_duration, parse_sizes, topic_option
from rocketmq_py.cli.sheet import Column, Form, Sheet, show, takes_form

if TYPE_CHECKING:
    from rocketmq_py.cli.benching import Measured

WAYS = click.Choice(["pipelined", "batched", "awaited"])
count_option: Final = click.option(
    "-c", "count", metavar="COUNT", type=click.IntRange(min=1), help="Stop after COUNT messages."
)
duration_option: Final = click.option(
    "--duration", metavar="TIME", callback=checked(parse_duration), help="Stop after so long: 30s, 5m."
)


@click.group
def bench() -> None:
    """Measure how fast messages are sent and consumed, from here, with the client that programs use.

    Times are told as percentiles: of a hundred messages, fifty (p50) or ninety-nine (p99) took no longer.
    Ctrl-C ends it early; what was measured until then is told.
    """


@bench.command()
@topic_option
@count_option
@duration_option
@click.option(
    "--size", "sizes", metavar="BYTES", callback=checked(parse_sizes), default="1000", show_default=True,
    help="How large bodies are: 1000, or any size of 100-4000.",
)  # fmt: skip
@click.option(
    "--rate", metavar="N", type=click.FloatRange(min=0, min_open=True),
    help="Send N messages a second at the most; then times are from when each was due.",
)  # fmt: skip
@click.option(
    "--way", type=WAYS, default="pipelined", show_default=True,
    help="Many at a time, many in one request, or one after the other.",
)  # fmt: skip
@click.option(
    "--parallel", metavar="N", type=click.IntRange(1, 10_000), default=1, show_default=True,
    help="So many send one after the other at the same time, with --way awaited.",
)  # fmt: skip
@takes_form
@takes_access
def produce(
    access: Access,
    form: Form,
    topic: str,
    count: int | None,
    duration: float | None,
    sizes: range,
    rate: float | None,
    way: str,
    parallel: int,
) -> None:
    """Send messages that mean nothing, and measure how long brokers take to store them.

    Without -c and --duration there are 10,000. What is measured of each is the time from when it was handed
    over (with --rate: was due) until the broker has answered. The exit code is 1 if one was not stored.
    """
    if parallel > 1 and way != "awaited":
        raise click.UsageError("--parallel is for --way awaited")

    from rocketmq_py.cli.benching import Load, Measured, produce
    from rocketmq_py.cli.running import end_for_signal, run

    if count is None and duration is None:
        count = 10_000
    load = Load(topic, sizes, count, duration, rate, way, parallel)
    measured = Measured()
    caught = run(lambda: produce(access, load, measured))
    _tell(form, measured, {"topic": topic, "way": way}, "SENT")
    measured.tally.report_failures()
    end_for_signal(caught)
    sys.exit(1 if measured.tally.failed else 0)


@bench.command()
@topic_option
@group_option
@count_option
@duration_option
@takes_form
@takes_access
def consume(
    access: Access, form: Form, topic: str, group: str | None, count: int | None, duration: float | None
) -> None:
    """Consume a topic, and measure how fast that is and how old messages are when they come.

    Without -G no group is joined, and it starts with the oldest message; without -c and --duration it stops
    at the end of what was there. A group needs one of them. Ages are by the clocks of this machine and of the
    senders: of use while messages are being sent.
    """
    if group is not None and count is None and duration is None:
        raise click.UsageError("-G needs -c or --duration: a group goes on for ever")

    from rocketmq_py.cli.benching import Measured, consume
    from rocketmq_py.cli.running import end_for_signal, run

    measured = Measured()
    caught = run(lambda: consume(access, topic, group, count, duration, measured))
    _tell(form, measured, {"topic": topic, "group": group}, "CONSUMED")
    end_for_signal(caught)


def _tell(form: Form, measured: Measured, what: dict[str, str | None], verb: str) -> None:
    value = {**what, **measured.value()}
    times = value["latency_ms"]
    columns = [Column(verb), Column("FAILED"), Column("SECONDS"), Column("MESSAGES/S"), Column("MB/S")]
    columns += [Column(f"{name.upper()} MS") for name in times]
    row = [value["messages"], value["failed"], value["seconds"], value["rate"], value["mb_per_second"]]
    row += [
        None if time is None else f"{time:,.1f}" if time >= 10 else f"{time:.3f}" for time in times.values()
    ]
    right = [Column(column.title, right=True) for column in columns]
    show(form, value, [Sheet(right, [row])])
