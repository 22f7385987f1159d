"""A Spark query copies topics while its driver, its workers and a broker are killed at random."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Self

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import COUNTED, start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.copied import create_topics, fill, read_copies, start_copying
from integration.spark_copying import AVAILABLE_NOW
from rocketmq_py import RocketMQError, blocking

COUNT = 60_000
MAX_OFFSETS = 3_000
KILLS = 10
MAX_STARTS = 4 * KILLS
SOURCES = ("Orders", "Payments", "Parcels")
TARGET = "Copies"


@pytest.fixture(params=[VERSIONS[-1]])  # each further version would take minutes
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with start_own_cluster(request.param, brokers=2) as cluster:
        create_topics(cluster, *SOURCES, TARGET)
        fill(cluster, SOURCES, COUNT)
        yield cluster


def test_kills_lose_no_message_and_duplicates_share_their_stamp(
    cluster: Cluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The victims and the times of the kills are the same in each run. The state they hit is not."""
    rng = random.Random(6)
    victims: list[str] = []
    with _CopyQuery(cluster, tmp_path) as query:
        for number in range(KILLS):
            query.wait_for_copies(COUNT * number // (KILLS + 1) + rng.randrange(COUNT // (KILLS + 2)))
            kill = rng.choice((_CopyQuery.kill_driver, _CopyQuery.kill_worker, _CopyQuery.kill_broker))
            victims.append(kill(query))
        query.wait_for_end()
    copies = read_copies(cluster, TARGET)

    assert copies.numbers.keys() == set(range(COUNT))
    # Stamps and rows correspond one to one, so that keeping one message per stamp keeps each row once.
    assert all(len(numbers) == 1 for numbers in copies.numbers_of_stamp.values())
    assert all(len(stamps) == 1 for stamps in copies.stamps_of_number.values())
    record_property(
        COUNTED,
        f"killed {', '.join(victims)}; {query.starts} starts; "
        f"{copies.messages - COUNT} duplicates of {COUNT} messages",
    )


class _CopyQuery:
    """The query that copies. It is restarted whenever its driver ends early, up to MAX_STARTS times."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self.starts = 0
        self._driver = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._driver.poll() is None:
            self.kill_driver()

    def _start(self) -> Popen[bytes]:
        self.starts += 1
        assert self.starts <= MAX_STARTS, "drivers keep failing by themselves; see their stderr"
        return start_copying(self._cluster, AVAILABLE_NOW, SOURCES, TARGET, self._directory, most=MAX_OFFSETS)

    def wait_for_copies(self, count: int) -> None:
        """Wait until the target has ``count`` messages, duplicates included, and the driver runs."""
        with blocking.Reader(self._cluster.name_servers) as reader:
            while self._copies(reader) < count:
                self._restart_ended_driver()
                time.sleep(0.05)
        self._restart_ended_driver()

    def wait_for_end(self) -> None:
        """Wait until a driver succeeds, which means that everything is copied."""
        while self._driver.wait() != 0:
            self._driver = self._start()

    def _restart_ended_driver(self) -> None:
        exit_code = self._driver.poll()
        assert exit_code != 0, "everything is copied already; the kills come too late"
        if exit_code is not None:
            self._driver = self._start()

    def _copies(self, reader: blocking.Reader) -> int:
        with contextlib.suppress(RocketMQError):  # while a broker restarts
            return sum(end for _, end in reader.offsets(TARGET).values())
        return 0

    def kill_driver(self) -> str:
        """Kill the driver with its JVM and workers, as the loss of their machine would."""
        os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        return "the driver"

    def kill_worker(self) -> str:
        """Kill one of the JVM's Python processes: a task's, or the one that plans."""
        workers = _wait_for_any(lambda: _python_below(self._driver.pid), lambda: self._driver.poll() is None)
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(workers[len(workers) // 2], signal.SIGKILL)
        return "a worker"

    def kill_broker(self) -> str:
        """Kill a broker and restart it."""
        self._cluster.kill("broker-a")
        self._cluster.restart("broker-a")
        return "a broker"


def _wait_for_any(find: Callable[[], list[int]], may_continue: Callable[[], bool]) -> list[int]:
    while not (found := find()) and may_continue():
        time.sleep(0.05)
    return found


def _python_below(driver: int) -> list[int]:
    """Return the Python processes among the driver's descendants."""
    children: dict[int, list[int]] = {}
    names: dict[int, bytes] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
                names[int(entry.name)] = (entry / "cmdline").read_bytes()
    below, found = list(children.get(driver, ())), []
    while below:
        one = below.pop()
        below += children.get(one, ())
        if b"pyspark" in names.get(one, b"") and b"java" not in names[one].split(b"\0")[0]:
            found.append(one)
    return sorted(found)
