"""Waiting for copies, and checks that none is lost and that repeated ones can be recognised."""

from __future__ import annotations

import time
from collections.abc import Callable

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import COUNTED
from integration.copied import read_copies
from integration.spark_clusters.conftest import COUNT
from integration.spark_clusters.standalone import Job, wait_for
from rocketmq_py import Credentials, RocketMQError, blocking

Record = Callable[[str, object], None]
FEW_PER_TASK = ("maxRecordsPerPartition=500",)
"""Splits a job into many short tasks, so that some have ended and others have not when a fault comes."""


def stored(brokers: Cluster, target: str, credentials: Credentials | None = None) -> int:
    """Return the number of messages of a topic. 0 while a broker is away."""
    try:
        with blocking.Reader(brokers.name_servers, credentials=credentials) as reader:
            return sum(end for _, end in reader.offsets(target).values())
    except RocketMQError:
        return 0


def wait_for_copies(
    brokers: Cluster, target: str, job: Job, count: int, credentials: Credentials | None = None
) -> None:
    """Wait until a topic has at least ``count`` messages, while the job runs."""

    def has_copied() -> bool:
        assert job.is_running, job.output()[-8000:]
        return stored(brokers, target, credentials) >= count

    wait_for(has_copied, f"{count} copies")


def check_copies(
    brokers: Cluster,
    target: str,
    record: Record,
    fault: str,
    began: float,
    *,
    count: int = COUNT,
    credentials: Credentials | None = None,
) -> int:
    """Check that each message was copied, and that repeated copies share a stamp.

    Report the number of repeated ones and the seconds since ``began``. Return the number.
    """
    seconds = time.monotonic() - began
    copies = read_copies(brokers, target, credentials)
    assert copies.numbers.keys() == set(range(count))
    assert all(len(numbers) == 1 for numbers in copies.numbers_of_stamp.values())
    assert all(len(stamps) == 1 for stamps in copies.stamps_of_number.values())
    repeated = copies.messages - count
    record(COUNTED, f"{fault}: 0 lost, {repeated} repeated of {count}, ended {seconds:.0f} s later")
    return repeated
