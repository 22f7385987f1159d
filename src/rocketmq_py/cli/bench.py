"""``rocketmq-py bench``: options and output. :mod:`~rocketmq_py.cli.bench_loop` does the work."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.option_values import checked, parse_duration, parse_sizes
from rocketmq_py.cli.options import join_option, required_topic_option
from rocketmq_py.cli.table_layout import Column
from rocketmq_py.cli.tables import OutputFormat, Table, output_option, print_result

if TYPE_CHECKING:
    from rocketmq_py.cli.bench_loop import Measurement

MODES = click.Choice(["pipelined", "batched", "awaited"])
count_option: Final = click.option(
    "-c", "count", metavar="COUNT", type=click.IntRange(min=1), help="Stop after COUNT messages."
)
duration_option: Final = click.option(
    "--duration", metavar="TIME", callback=checked(parse_duration), help="Stop after TIME: 30s, 5m."
)


@click.group
def bench() -> None:
    """Measure the rate and latency of sending or consuming messages from this machine.

    Latencies are percentiles: 50 of 100 messages took at most p50, 99 of them at most p99.
    Ctrl-C stops the measurement early and prints its results.
    """


@bench.command()
@required_topic_option
@count_option
@duration_option
@click.option(
    "--size", "sizes", metavar="BYTES", callback=checked(parse_sizes), default="1000", show_default=True,
    help="Size of bodies: 1000, or a random size of the range 100-4000.",
)  # fmt: skip
@click.option(
    "--rate", metavar="N", type=click.FloatRange(min=0, min_open=True),
    help="Send at most N messages per second. Latencies then count from the time a message was due.",
)  # fmt: skip
@click.option(
    "--way", "mode", type=MODES, default="pipelined", show_default=True,
    help="Many messages in flight, many messages per request, or one after the other.",
)  # fmt: skip
@click.option(
    "--parallel", metavar="N", type=click.IntRange(1, 10_000), default=1, show_default=True,
    help="With --way awaited: number of concurrent senders.",
)  # fmt: skip
@output_option
@access_options
def produce(
    access: Access,
    output: OutputFormat,
    topic: str,
    count: int | None,
    duration: float | None,
    sizes: range,
    rate: float | None,
    mode: str,
    parallel: int,
) -> None:
    """Send random messages, and measure the time until brokers have stored them.

    The default is 10,000 messages. The latency of a message is the time from its send (with --rate: from its
    due time) to the broker's answer. The exit code is 1 if a message was not stored.
    """
    if parallel > 1 and mode != "awaited":
        raise click.UsageError("--parallel is for --way awaited")

    from rocketmq_py.cli.bench_loop import LoadProfile, Measurement, produce
    from rocketmq_py.cli.runner import exit_for_signal, run

    if count is None and duration is None:
        count = 10_000
    load = LoadProfile(topic, sizes, count, duration, rate, mode, parallel)
    measurement = Measurement()
    caught = run(lambda: produce(access, load, measurement))
    _print(output, measurement, {"topic": topic, "way": mode}, "SENT")
    measurement.statistics.report_failures()
    exit_for_signal(caught)
    sys.exit(1 if measurement.statistics.failed else 0)


@bench.command()
@required_topic_option
@join_option
@count_option
@duration_option
@output_option
@access_options
def consume(
    access: Access,
    output: OutputFormat,
    topic: str,
    group: str | None,
    count: int | None,
    duration: float | None,
) -> None:
    """Consume a topic, and measure the rate and the age of messages when they arrive.

    Without -G it reads from the oldest message, and without -c and --duration it stops at the current end.
    With -G it needs -c or --duration. Ages compare the clocks of this machine and of the senders. They are
    useful while messages are being sent.
    """
    if group is not None and count is None and duration is None:
        raise click.UsageError("-G needs -c or --duration: a group consumes without end")

    from rocketmq_py.cli.bench_loop import Measurement, consume
    from rocketmq_py.cli.runner import exit_for_signal, run

    measurement = Measurement()
    caught = run(lambda: consume(access, topic, group, count, duration, measurement))
    _print(output, measurement, {"topic": topic, "group": group}, "CONSUMED")
    exit_for_signal(caught)


def _print(
    output: OutputFormat, measurement: Measurement, labels: dict[str, str | None], count_title: str
) -> None:
    value = {**labels, **measurement.value()}
    latencies = value["latency_ms"]
    titles = [count_title, "FAILED", "SECONDS", "MESSAGES/S", "MB/S"]
    titles += [f"{name.upper()} MS" for name in latencies]
    row = [value["messages"], value["failed"], value["seconds"], value["rate"], value["mb_per_second"]]
    row += [
        None if latency is None else f"{latency:,.1f}" if latency >= 10 else f"{latency:.3f}"
        for latency in latencies.values()
    ]
    print_result(output, value, [Table([Column(title, right=True) for title in titles], [row])])
