"""Workers leave a cluster while it copies topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.clusters.cluster import Cluster
from integration.spark_clusters.conftest import COUNT, Copying
from integration.spark_clusters.copies import FEW_PER_TASK, Record, check_copies, stored, wait_for_copies
from integration.spark_clusters.standalone import DECOMMISSIONING, Machine, Standalone, wait_for
from integration.spark_copying import BATCH
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
