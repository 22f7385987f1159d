"""Measure the commands of ``rocketmq-py``: their start, and the tables of a large cluster.

    python -m integration.benchmarks.commands [--runs 5] [--topics 5000] [--groups 200]

It prints the CPU time (user and system) of each command on an embedded cluster of three brokers in a separate
process, and its ratio to importing trio and attrs. On a busy machine the ratio is more reliable.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from rocketmq_py import Client, Message
from rocketmq_py.client import core_of
from rocketmq_py.message import MessageQueue
from rocketmq_py.testing import run_cluster

ROOT = Path(__file__).resolve().parents[2]
BROKERS = 3
CLI = [sys.executable, "-m", "rocketmq_py"]
YARDSTICK = "import trio, attrs"
STARTS = (
    "--help",
    "topic create --help",
    "config list",
    "completion bash",
    "relay list --store /dev/null/none",
    "topic list",
    "topic list --json",
    "topic describe Orders",
    "topic create New --queues 2",
    "topic alter New --queues 4",
    "topic delete New --yes",
    "group list",
    "group describe billing",
    "group create new",
    "group alter new --retries 3",
    "group reset billing --topic Orders --to latest --dry-run",
    "group clone billing new --dry-run",
    "group delete new --yes",
    "broker list",
    "broker describe broker-a",
    "broker config broker-a",
    "client list",
    "client describe nobody",
    "message find Orders k",
    "message get -t Orders 7F00000100002A9F0000000000000000",
    "message trace 7F00000100002A9F0000000000000000",
    "message tracks -t Orders 7F00000100002A9F0000000000000000",
    "message consume -t Orders 7F00000100002A9F0000000000000000 billing nobody",
    "dlq list billing",
    "dlq resend billing --all --dry-run",
    "acl user list",
    "acl list",
    "acl version",
    "check lag billing --warn 10 --critical 100",
    "top --once",
    "send -t Orders hello",
    "request -t Orders hello --timeout 0.1s",
    "tail -t Orders -o earliest -e",
    "bench produce -t Orders -c 1",
)
"""Command lines that end by themselves, at least one of each kind."""
GO_ON = (
    "reply -t Orders hello",
    "bench consume -t Orders -c 1",
    "relay",
    "server --namesrv-port 0 --port 0",
)
"""Command lines that run until they are stopped."""
PATIENCE = 3.0
"""Seconds after which a command that does not end has loaded all its modules."""
TABLES = (
    "topic list",
    "topic list --json",
    "group list",
    "group list --json",
    "client list",
    "broker list",
)


@attrs.frozen
class Cost:
    """The CPU time and duration of a command, in seconds."""

    cpu: float
    wall: float


def run_command(command: Sequence[str], *, goes_on: bool = False) -> Cost:
    """Run a command to its end, or stop it with SIGTERM if it ``goes_on``."""
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if goes_on:
        time.sleep(PATIENCE)
        os.kill(process.pid, signal.SIGTERM)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(used.ru_utime + used.ru_stime, time.perf_counter() - began)


def median(runs: int, run: Callable[[], Cost]) -> Cost:
    """Return the medians of ``runs`` runs."""
    costs = [run() for _ in range(runs)]
    return Cost(statistics.median(one.cpu for one in costs), statistics.median(one.wall for one in costs))


async def fill(address: str, groups: int) -> None:
    """Create groups with committed offsets in a topic."""
    async with Client(address) as client, client.admin() as admin, client.producer("senders") as producer:
        queues = (await core_of(client).routes.get("Orders")).read_queues
        for queue in queues:
            await producer.send(Message("Orders", b"x", keys="k"), queue=queue)
        names = ["billing", *(f"group-{number}" for number in range(1, groups))]
        limit = trio.CapacityLimiter(16)

        async def make(group: str) -> None:
            async with limit:
                await admin.groups.create(group)
                for queue in queues:
                    await _commit(client, group, queue)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(make, name)


async def _commit(client: Client, group: str, queue: MessageQueue) -> None:
    await core_of(client).brokers.commit_offset(group, queue, 0)


@contextmanager
def cluster(topics: int, groups: int) -> Iterator[str]:
    """Run an embedded cluster in a separate process. Yields the address of its name server."""
    command = [sys.executable, "-m", "integration.benchmarks.commands", "--serve"]
    command += ["--topics", str(topics), "--groups", str(groups)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdout is not None
        yield serving.stdout.readline().strip()
        serving.communicate()


def serve(topics: int, groups: int) -> None:
    """Run the cluster until stdin is closed."""
    names = dict.fromkeys(["Orders", *(f"Topic{number}" for number in range(1, topics))], 4)
    with run_cluster(brokers=BROKERS, topics=names) as running:
        trio.run(fill, running.name_server_address, groups)
        print(running.name_server_address, flush=True)
        sys.stdin.read()


def starts(runs: int) -> None:
    """Print the start times of all commands."""
    yardstick = median(runs, lambda: run_command([sys.executable, "-c", YARDSTICK])).cpu
    print("| command | CPU s | times importing trio and attrs |\n| --- | ---: | ---: |")
    print(
        f"| python -c pass | {median(runs, lambda: run_command([sys.executable, '-c', 'pass'])).cpu:.3f} | |"
    )
    print(f"| {YARDSTICK} | {yardstick:.3f} | 1.00 |", flush=True)
    with cluster(1, 1) as address:
        os.environ["NAMESRV_ADDR"] = address
        for line in (*STARTS, *GO_ON):
            command, goes_on = [*CLI, *line.split()], line in GO_ON
            cost = median(runs, partial(run_command, command, goes_on=goes_on))
            print(f"| {line} | {cost.cpu:.3f} | {cost.cpu / yardstick:.2f} |", flush=True)


def tables(runs: int, topics: int, groups: int) -> None:
    """Print the times of listing a large cluster."""
    print(f"\n{topics:,} topics, {groups:,} groups, {BROKERS} brokers\n")
    print("| command | s | CPU s |\n| --- | ---: | ---: |")
    with cluster(topics, groups) as address:
        os.environ["NAMESRV_ADDR"] = address
        for line in TABLES:
            cost = median(runs, partial(run_command, [*CLI, *line.split()]))
            print(f"| {line} | {cost.wall:.2f} | {cost.cpu:.2f} |", flush=True)


def main() -> None:
    """Run both benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--topics", type=int, default=5_000)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.topics, given.groups)
        return
    starts(given.runs)
    tables(given.runs, given.topics, given.groups)


if __name__ == "__main__":
    main()
