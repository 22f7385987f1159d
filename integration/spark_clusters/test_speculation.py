"""Speculation runs a task of a job that copies topics twice."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from integration.clusters.cluster import Cluster
from integration.environments import ROOT
from integration.spark_clusters.conftest import SOURCES
from integration.spark_clusters.copies import Record, check_copies
from integration.spark_clusters.programs.held_copying import HELD
from integration.spark_clusters.standalone import Standalone, wait_for
from integration.spark_clusters.submitting import SHIPPED

HELD_COPYING = Path(__file__).parent / "programs" / "held_copying.py"
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1",
    # The held attempt passes on full batches and buffers only.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.buffer.size": "1024",
}


def test_speculative_task_repeats_rows_with_the_same_stamps(
    spark_cluster: Standalone,
    brokers: Cluster,
    archive: Path,
    target: str,
    tmp_path: Path,
    record_property: Record,
) -> None:
    with spark_cluster.submit(
        HELD_COPYING, brokers.name_servers, ",".join(SOURCES), target, str(tmp_path),
        driver_python=sys.executable,
        archive=archive,
        log=tmp_path / "driver.log",
        settings={**SHIPPED, **SPECULATION},
        python_path=(ROOT / "src", ROOT),
    ) as job:  # fmt: skip
        wait_for(lambda: (tmp_path / HELD).exists() or not job.is_running, "held task")
        began = time.monotonic()
        job.check()
    assert check_copies(brokers, target, record_property, "a task held, and run twice", began) > 0
