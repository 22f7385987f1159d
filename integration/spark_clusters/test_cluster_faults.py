"""Executors and drivers are killed while a cluster copies topics.

No message may be lost. Repeated ones have the stamp of the first one.
"""

from __future__ import annotations

import time

from integration.clusters.cluster import Cluster
from integration.spark_clusters.conftest import COUNT, Copying
from integration.spark_clusters.copies import FEW_PER_TASK, Record, check_copies, stored, wait_for_copies
from integration.spark_copying import AVAILABLE_NOW, BATCH


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
