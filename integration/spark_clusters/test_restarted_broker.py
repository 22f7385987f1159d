"""A broker restarts while a cluster copies topics with many tasks."""

from __future__ import annotations

import time

from integration.clusters.cluster import Cluster
from integration.spark_clusters.conftest import COUNT, Copying
from integration.spark_clusters.copies import Record, check_copies, stored, wait_for_copies
from integration.spark_copying import BATCH

TASKS = 64


def test_broker_restarts_under_many_tasks(
    copying: Copying, brokers: Cluster, target: str, record_property: Record
) -> None:
    with copying.start(BATCH, target, read=(f"minPartitions={TASKS}",)) as job:
        wait_for_copies(brokers, target, job, COUNT // 4)
        brokers.kill("broker-a")
        began = time.monotonic()
        brokers.restart("broker-a")
        down = time.monotonic() - began
        assert stored(brokers, target) < COUNT, "the restart came too late"
        output = job.check()
    assert f"tasks={TASKS} " in output
    fault = f"a broker away for {down:.0f} s under {TASKS} tasks"
    check_copies(brokers, target, record_property, fault, began)
