"""Executors and drivers are killed while a cluster copies topics.

No message may be lost. Repeated ones have the stamp of the first one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import COUNTED
from integration.copied import read_copies
from integration.spark_clusters.conftest import COUNT, Copying
from integration.spark_clusters.standalone import Job, wait_for
from integration.spark_copying import AVAILABLE_NOW, BATCH
from rocketmq_py import RocketMQError, blocking

Record = Callable[[str, object], None]
FEW_PER_TASK = ("maxRecordsPerPartition=500",)
"""Splits a job into many short tasks, so that some have ended and others have not when a fault comes."""


def stored(brokers: Cluster, target: str) -> int:
    """Return the number of messages of a topic. 0 while a broker is away."""
    try:
        with blocking.Reader(brokers.name_servers) as reader:
            return sum(end for _, end in reader.offsets(target).values())
    except RocketMQError:
        return 0


def wait_for_copies(brokers: Cluster, target: str, job: Job, count: int) -> None:
    """Wait until a topic has at least ``count`` messages, while the job runs."""

    def has_copied() -> bool:
        assert job.is_running, job.output()[-8000:]
        return stored(brokers, target) >= count

    wait_for(has_copied, f"{count} copies")


def check_copies(brokers: Cluster, target: str, record: Record, fault: str, began: float) -> None:
    """Check that each message was copied, and that repeated copies share a stamp. Report their number."""
    copies = read_copies(brokers, target)
    assert copies.numbers.keys() == set(range(COUNT))
    assert all(len(numbers) == 1 for numbers in copies.numbers_of_stamp.values())
    assert all(len(stamps) == 1 for stamps in copies.stamps_of_number.values())
    seconds = time.monotonic() - began
    record(
        COUNTED,
        f"{fault}: 0 lost, {copies.messages - COUNT} repeated of {COUNT}, ended {seconds:.0f} s later",
    )


def test_killed_executor_of_a_batch(
    copying: Copying, brokers: Cluster, target: str, record_property: Record
) -> None:
    with copying.start(BATCH, target, read=FEW_PER_TASK) as job:
        executor = copying.spark.wait_for_executors(2)[0]
        wait_for_copies(brokers, target, job, COUNT // 4)
        executor.kill()
        began = time.monotonic()
        assert stored(brokers, target) < COUNT, "the kill came too late"
        job.check()
    check_copies(brokers, target, record_property, "executor killed in a batch", began)


def test_killed_executor_of_a_stream(
    copying: Copying, brokers: Cluster, target: str, record_property: Record
) -> None:
    with copying.start(AVAILABLE_NOW, target, most=COUNT // 4, read=FEW_PER_TASK) as job:
        executor = copying.spark.wait_for_executors(2)[0]
        wait_for_copies(brokers, target, job, COUNT // 3)
        executor.kill()
        began = time.monotonic()
        job.check()
    check_copies(brokers, target, record_property, "executor killed in a stream", began)


def test_killed_driver_is_replaced_by_another_one(
    copying: Copying, brokers: Cluster, target: str, record_property: Record
) -> None:
    with copying.start(AVAILABLE_NOW, target, most=COUNT // 4, read=FEW_PER_TASK) as job:
        wait_for_copies(brokers, target, job, COUNT // 3)
    began = time.monotonic()
    with copying.start(AVAILABLE_NOW, target, most=COUNT // 4, read=FEW_PER_TASK) as job:
        job.check()
    check_copies(brokers, target, record_property, "driver killed in a stream", began)
