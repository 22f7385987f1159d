"""Workers and executors come and go while a cluster copies topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.copied import create_topics, fill
from integration.spark_clusters.conftest import COUNT, SOURCES, Copying
from integration.spark_clusters.copies import FEW_PER_TASK, Record, check_copies, stored, wait_for_copies
from integration.spark_clusters.standalone import DECOMMISSIONING, Machine, Standalone, wait_for
from integration.spark_copying import BATCH, ENDLESS
from tests.spark.session import java_or_skip


@pytest.fixture
def cluster_to_shrink(tmp_path: Path) -> Iterator[Standalone]:
    """A cluster whose workers can be decommissioned."""
    machines = [Machine(f"127.0.0.{number}", DECOMMISSIONING) for number in (1, 2)]
    with Standalone(tmp_path / "spark", java_or_skip(), machines) as cluster:
        yield cluster


def test_decommissioned_worker(
    cluster_to_shrink: Standalone,
    brokers: Cluster,
    archive: Path,
    target: str,
    tmp_path: Path,
    record_property: Record,
) -> None:
    copying = Copying(cluster_to_shrink, brokers.name_servers, archive, tmp_path)
    decommission = {"spark.decommission.enabled": "true"}
    with copying.start(BATCH, target, read=FEW_PER_TASK, settings=decommission) as job:
        executor = cluster_to_shrink.wait_for_executors(2)[1]
        wait_for_copies(brokers, target, job, COUNT // 4)
        cluster_to_shrink.decommission(1)
        began = time.monotonic()
        assert stored(brokers, target) < COUNT, "it came too late"
        wait_for(lambda: executor not in cluster_to_shrink.executors(), "end of its executor")
        assert job.is_running, "its executor ended only with the job"
        job.check()
    check_copies(brokers, target, record_property, "worker decommissioned in a batch", began)


DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
}
WAVE = 2_000
"""Messages that arrive while no executor is left."""


def test_executors_come_and_go_between_batches(
    spark_cluster: Standalone,
    archive: Path,
    tmp_path: Path,
    record_property: Record,
) -> None:
    """Idle executors end between the waves of messages, and new ones read the next wave."""
    with start_own_cluster(VERSIONS[-1], brokers=2) as brokers:
        create_topics(brokers, *SOURCES, "Copies")
        copying = Copying(spark_cluster, brokers.name_servers, archive, tmp_path)
        began = time.monotonic()
        seen: set[int] = set()
        with copying.start(ENDLESS, "Copies", read=FEW_PER_TASK, settings=DYNAMIC) as job:
            for wave in range(3):
                fill(brokers, SOURCES, WAVE, first=wave * WAVE)
                wait_for_copies(brokers, "Copies", job, (wave + 1) * WAVE)
                running = {executor.pid for executor in spark_cluster.executors()}
                assert running - seen, "an executor of the wave before ran still"
                seen |= running
                wait_for(lambda: not spark_cluster.executors(), "end of idle executors")
                assert job.is_running, job.output()[-8000:]
            copying.end()
            job.check()
        fault = f"{len(seen)} executors, added and removed between batches"
        assert not check_copies(brokers, "Copies", record_property, fault, began, count=3 * WAVE)
