"""A Spark query that copies topics while its driver, its workers and a broker are killed at random."""

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
MOST = 3_000
KILLS = 10
MOST_STARTS = 4 * KILLS
SOURCES = ("Orders", "Payments", "Parcels")
TARGET = "Copies"


@pytest.fixture(params=[VERSIONS[-1]])  # the others do as well, and take minutes
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with start_own_cluster(request.param, brokers=2) as cluster:
        create_topics(cluster, *SOURCES, TARGET)
        fill(cluster, SOURCES, COUNT)
        yield cluster


def test_nothing_is_missing_and_stamps_tell_all_repeats(
    cluster: Cluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """What is killed, and when, is drawn at random, but the same in each run; what it meets is not."""
    rng = random.Random(6)
    victims: list[str] = []
    with _Copying(cluster, tmp_path) as copying:
        for number in range(KILLS):
            copying.until(COUNT * number // (KILLS + 1) + rng.randrange(COUNT // (KILLS + 2)))
            victims.append(
                rng.choice((_Copying.kill_driver, _Copying.kill_worker, _Copying.kill_broker))(copying)
            )
        copying.until_done()
    copies = read_copies(cluster, TARGET)

    assert copies.numbers.keys() == set(range(COUNT))
    # A stamp stands for one row, and a row has one stamp: who keeps one message a stamp has each row once.
    assert all(len(numbers) == 1 for numbers in copies.numbers_of_stamp.values())
    assert all(len(stamps) == 1 for stamps in copies.stamps_of_number.values())
    record_property(
        COUNTED,
        f"killed {', '.join(victims)}; {copying.starts} starts; "
        f"{copies.messages - COUNT} repeats of {COUNT} messages",
    )


class _Copying:
    """The query: started again whenever it has ended before all is copied, but not for ever."""

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
        assert self.starts <= MOST_STARTS, "drivers end by themselves again and again: see what they say"
        return start_copying(self._cluster, AVAILABLE_NOW, SOURCES, TARGET, self._directory, most=MOST)

    def until(self, copied: int) -> None:
        """Wait until there are so many copies, repeats included, and the driver runs."""
        with blocking.Reader(self._cluster.name_servers) as reader:
            while self._copied(reader) < copied:
                self._see_to_driver()
                time.sleep(0.05)
        self._see_to_driver()

    def until_done(self) -> None:
        """Wait until a driver has ended well: all is copied."""
        while self._driver.wait() != 0:
            self._driver = self._start()

    def _see_to_driver(self) -> None:
        ended = self._driver.poll()
        assert ended != 0, "it is done already: the kills come too late"
        if ended is not None:
            self._driver = self._start()

    def _copied(self, reader: blocking.Reader) -> int:
        with contextlib.suppress(RocketMQError):  # a broker is being started
            return sum(end for _, end in reader.offsets(TARGET).values())
        return 0

    def kill_driver(self) -> str:
        """Kill the driver, and with it, as on a lost machine, its JVM and its workers."""
        os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        return "the driver"

    def kill_worker(self) -> str:
        """Kill one of the Python processes that the JVM has: a task's, or the one that plans."""
        workers = _until_some(lambda: _python_below(self._driver.pid), lambda: self._driver.poll() is None)
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(workers[len(workers) // 2], signal.SIGKILL)
        return "a worker"

    def kill_broker(self) -> str:
        """Kill a broker, and start it again."""
        self._cluster.kill("broker-a")
        self._cluster.restart("broker-a")
        return "a broker"


def _until_some(find: Callable[[], list[int]], goes_on: Callable[[], bool]) -> list[int]:
    while not (found := find()) and goes_on():
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
