"""``bench``, its latency recorder and its rate limit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.cli.bench_loop import LatencyRecorder, Measurement
from rocketmq_py.cli.send_statistics import rate_limiter
from tests.cli.conftest import Invoke

TIMES = ["mean", "p50", "p90", "p99", "p99.9", "max"]


async def create(address: str) -> None:
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create("Bench", queues=2)


async def sizes_of(address: str) -> list[int]:
    async with (
        Client(address) as client,
        client.reader() as reader,
        reader.open("Bench", start="earliest", stop_at_end=True) as messages,
    ):
        return [len(message.body) async for message in messages]


@pytest.mark.parametrize(
    "way", [["pipelined"], ["batched"], ["awaited"], ["awaited", "--parallel", "3"]], ids=" ".join
)
def test_produce_sends_count_messages_in_each_mode(
    invoke: Invoke, threaded_broker: str, way: list[str]
) -> None:
    trio.run(create, threaded_broker)
    ended = invoke(
        *("bench", "produce", "-t", "Bench", "-c", "30", "--size", "5-9", "--way", *way),
        *("--json", "-n", threaded_broker),
    )
    assert (ended.code, ended.err) == (0, "")
    value = json.loads(ended.out)
    assert (value["topic"], value["way"], value["messages"], value["failed"]) == ("Bench", way[0], 30, 0)
    assert list(value["latency_ms"]) == TIMES
    assert all(time > 0 for time in value["latency_ms"].values())
    assert value["latency_ms"]["p50"] <= value["latency_ms"]["p99"] <= value["latency_ms"]["max"]
    sizes = trio.run(sizes_of, threaded_broker)
    assert len(sizes) == 30
    assert set(sizes) <= set(range(5, 10))
    assert value["bytes"] == sum(sizes)


def test_produce_stops_after_a_duration_and_keeps_a_rate(invoke: Invoke, threaded_broker: str) -> None:
    trio.run(create, threaded_broker)
    ended = invoke(
        *("bench", "produce", "-t", "Bench", "--duration", "300ms", "--rate", "100", "-n", threaded_broker)
    )
    assert (ended.code, ended.err) == (0, "")
    header, row = ended.out.decode().splitlines()
    assert header.split()[:3] == ["SENT", "FAILED", "SECONDS"]
    assert 1 <= int(row.split()[0]) <= 31


def test_consume_reads_existing_messages_or_joins_a_group(invoke: Invoke, threaded_broker: str) -> None:
    trio.run(create, threaded_broker)
    at = ("--json", "-n", threaded_broker)
    assert invoke("bench", "produce", "-t", "Bench", "-c", "50", "--size", "7", *at).code == 0
    read = json.loads(invoke("bench", "consume", "-t", "Bench", *at).out)
    assert (read["messages"], read["bytes"], read["group"]) == (50, 350, None)
    some = json.loads(invoke("bench", "consume", "-t", "Bench", "-c", "20", *at).out)
    assert some["messages"] == 20
    member = json.loads(invoke("bench", "consume", "-t", "Bench", "-G", "measurers", "-c", "20", *at).out)
    assert (member["messages"], member["group"]) == (20, "measurers")
    quiet = json.loads(invoke("bench", "consume", "-t", "Bench", "-G", "g", "--duration", "1ms", *at).out)
    assert quiet["messages"] >= 0


def test_produce_exits_with_1_if_sends_fail(invoke: Invoke, threaded_broker: str) -> None:
    trio.run(create, threaded_broker)
    assert invoke("topic", "alter", "Bench", "--permission", "R", "-n", threaded_broker).code == 0
    ended = invoke("bench", "produce", "-t", "Bench", "-c", "3", "--json", "-n", threaded_broker)
    assert ended.code == 1
    assert "Bench" in ended.err


@pytest.mark.parametrize("command", [("produce",), ("consume",), ("consume", "-G", "g", "-c", "1")], ids=str)
def test_a_missing_topic_or_cluster_is_one_line(
    invoke: Invoke,
    threaded_broker: str,
    unused_address: str,
    command: tuple[str, ...],
    default_timeouts: Callable[[float], None],
) -> None:
    arguments = ("bench", *command, "-t", "Nope")
    if command[0] == "consume":  # a send creates the topic
        missing = invoke(*arguments, "-n", threaded_broker)
        assert (missing.code, missing.out) == (1, b"")
        assert missing.err == f"rocketmq-py: topic 'Nope' does not exist (asked {threaded_broker})\n"
    default_timeouts(0.2)
    ended = invoke(*arguments, "-n", unused_address)
    assert (ended.code, ended.out) == (1, b"")
    assert ended.err.startswith("rocketmq-py: no name server answered")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["produce"], "Missing option '-t'"),
        (["produce", "-t", "T", "--size", "0"], "neither a size from 1 to 4194304 nor a range"),
        (["produce", "-t", "T", "--size", "9-8"], "neither a size"),
        (["produce", "-t", "T", "--size", "5000000"], "neither a size"),
        (["produce", "-t", "T", "--rate", "0"], "0.0 is not in the range"),
        (["produce", "-t", "T", "--duration", "soon"], "is not a duration such as"),
        (["produce", "-t", "T", "--parallel", "2"], "--parallel is for --way awaited"),
        (["consume", "-t", "T", "-G", "g"], "-G needs -c or --duration"),
    ],
)
def test_usage_errors(invoke: Invoke, arguments: list[str], error: str) -> None:
    ended = invoke("bench", *arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert error in line


def test_percentiles_are_right_to_half_a_percent() -> None:
    latencies = LatencyRecorder()
    assert latencies.milliseconds() == dict.fromkeys(TIMES)
    for number in range(1, 1001):
        latencies.add(number / 1000)
    for percent in (1, 50, 90, 99, 99.9, 100):
        found = latencies.percentile(percent)
        assert found is not None
        assert math.isclose(found, math.ceil(10 * percent) / 1000, rel_tol=0.006), percent
    assert latencies.mean == pytest.approx(0.5005)
    assert latencies.maximum == 1.0


def test_a_negative_latency_counts_as_zero() -> None:
    latencies = LatencyRecorder()
    latencies.add(-5.0)
    assert latencies.milliseconds() == {**dict.fromkeys(TIMES, 0.0)}


async def test_the_rate_limit_does_not_catch_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    started = trio.current_time()
    limit = rate_limiter(10)
    times = []
    for number in range(5):
        due = await limit.wait()
        times.append((round(due - started, 6), round(trio.current_time() - started, 6)))
        if number == 2:
            await trio.sleep(1)  # late by nine intervals
    assert times == [(0.0, 0.0), (0.1, 0.1), (0.2, 0.2), (0.3, 1.2), (1.2, 1.2)]


async def test_the_progress_line(autojump_clock: trio.testing.MockClock) -> None:
    measurement = Measurement()
    assert measurement.progress_line(0) == "0 messages, 0/s, 0.0 MB/s"
    measurement.start()
    await trio.sleep(2)
    for _ in range(1000):
        measurement.add(5000, 0.25)
    assert measurement.progress_line(2) == "1,000 messages, 500/s, 2.5 MB/s, p99 250 ms"
