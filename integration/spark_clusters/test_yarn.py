"""Jobs on YARN, whose machines lack the package: the job ships it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.clusters.cluster import Cluster
from integration.copied import read_copies
from integration.environments import ROOT
from integration.spark_clusters.conftest import COPYING, COUNT, SOURCES
from integration.spark_clusters.yarn import CLIENT, CLUSTER, Yarn
from integration.spark_copying import BATCH
from tests.spark.session import java_or_skip


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    """A resource manager and two node managers."""
    with Yarn(tmp_path_factory.mktemp("yarn"), java_or_skip()) as yarn:
        yield yarn


@pytest.mark.parametrize("mode", [CLIENT, CLUSTER])
def test_a_batch_copies_each_message_once(
    mode: str, yarn: Yarn, brokers: Cluster, archive: Path, target: str, tmp_path: Path
) -> None:
    log = tmp_path / "submit.log"
    job = yarn.submit(
        mode, COPYING, BATCH, "--address", brokers.name_servers, "--sources", ",".join(SOURCES),
        "--target", target, "--directory", str(tmp_path),
        driver_python=sys.executable, python_path=(ROOT / "src", ROOT), archive=archive, log=log,
    )  # fmt: skip
    try:
        assert job.wait(900) == 0, log.read_text()[-4000:] + yarn.logs()[-8000:]
    finally:
        job.kill()
    copies = read_copies(brokers, target)
    assert copies.messages == COUNT
    assert copies.numbers.keys() == set(range(COUNT))
    assert len(copies.numbers_of_stamp) == COUNT
