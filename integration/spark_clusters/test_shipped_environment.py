"""Jobs on a standalone cluster whose machines lack the package: the job ships it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from examples.spark_pipeline.verify import SUCCESS
from integration.clusters.cluster import Cluster
from integration.copied import read_copies
from integration.environments import ROOT
from integration.spark_clusters.conftest import COUNT, Copying
from integration.spark_clusters.shipping import EXECUTOR_PYTHON, NAME, bare_python
from integration.spark_clusters.standalone import Standalone
from integration.spark_clusters.submitting import SHIPPED
from integration.spark_copying import BATCH, STREAM
from tests.spark.session import java_or_skip

PROGRAM = Path(__file__).parent / "programs" / "interpreters.py"
DRIVER_PARTS = ("batch planned", "batch committed", "stream planned", "stream committed")
EXECUTOR_PARTS = ("batch read", "batch written", "stream read", "stream written")
DRIVER, MACHINE = sys.executable, str(bare_python())
ORDERS = 1_000


@attrs.frozen
class Choice:
    """Settings that choose the Python of a job, and the Python of each of its parts.

    Attributes:
        variables: environment variables of the driver.
        settings: settings of Spark.
        program: the Python of the user's program. Empty if it cannot be started.
        driver: the Python that plans and commits. Empty if it cannot be started.
        executor: the Python that reads and writes, as its path ends.
    """

    variables: Mapping[str, str]
    settings: Mapping[str, str]
    program: str
    driver: str
    executor: str


CHOICES = {
    "PYSPARK_PYTHON alone": Choice({"PYSPARK_PYTHON": DRIVER}, {}, DRIVER, DRIVER, DRIVER),
    "the archive for executors": Choice(
        {"PYSPARK_PYTHON": DRIVER}, SHIPPED, DRIVER, DRIVER, f"/{NAME}/bin/python"
    ),
    "spark.pyspark.python wins": Choice(
        {"PYSPARK_PYTHON": MACHINE},
        {"spark.pyspark.python": DRIVER, **SHIPPED},
        DRIVER,
        DRIVER,
        f"/{NAME}/bin/python",
    ),
    "a relative spark.pyspark.python": Choice(
        {"PYSPARK_DRIVER_PYTHON": DRIVER}, {"spark.pyspark.python": EXECUTOR_PYTHON}, "", "", ""
    ),
    "a relative PYSPARK_PYTHON": Choice(
        {"PYSPARK_DRIVER_PYTHON": DRIVER, "PYSPARK_PYTHON": EXECUTOR_PYTHON}, {}, DRIVER, "", ""
    ),
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=list(CHOICES))
def test_settings_that_choose_the_python(
    choice: Choice, spark_cluster: Standalone, archive: Path, tmp_path: Path
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    with spark_cluster.submit(
        PROGRAM,
        str(parts),
        driver_python="",
        archive=archive,
        log=tmp_path / "driver.log",
        settings={"spark.cores.max": "2", **choice.settings},
        variables=choice.variables,
    ) as job:
        code = job.wait()
    seen = {file.name: file.read_text() for file in parts.iterdir() if file.is_file()}
    assert seen.get("program", "") == choice.program
    if not choice.driver:
        assert code == 1
        assert f'Cannot run program "{EXECUTOR_PYTHON}"' in job.output()
        return
    assert code == 0, job.output()[-8000:]
    assert {seen[part] for part in DRIVER_PARTS} == {choice.driver}
    assert all(seen[part].endswith(choice.executor) for part in EXECUTOR_PARTS), seen


def test_job_without_the_environment_fails_for_lack_of_pyarrow(
    spark_cluster: Standalone, brokers: Cluster, target: str, tmp_path: Path
) -> None:
    with Copying(spark_cluster, brokers.name_servers, None, tmp_path).start(
        BATCH, target, settings={"spark.sql.execution.pyspark.python": "python3"}
    ) as job:
        assert job.wait() == 1
    assert "ModuleNotFoundError: No module named 'pyarrow'" in job.output()


@pytest.mark.parametrize("mode", [BATCH, STREAM])
def test_shipped_environment_copies_each_message_once(
    mode: str, copying: Copying, brokers: Cluster, target: str
) -> None:
    with copying.start(mode, target, most=COUNT // 2) as job:
        job.check()
    copies = read_copies(brokers, target)
    assert copies.messages == COUNT
    assert copies.numbers.keys() == set(range(COUNT))
    assert len(copies.numbers_of_stamp) == COUNT


def test_example_pipeline_on_the_cluster(
    spark_cluster: Standalone, brokers: Cluster, archive: Path, tmp_path: Path
) -> None:
    example = ROOT / "examples" / "spark_pipeline"
    files = tmp_path / "files"

    def run(part: str, *arguments: str) -> str:
        command = [sys.executable, "-m", f"examples.spark_pipeline.{part}", brokers.name_servers, *arguments]
        environment = {**os.environ, "JAVA_HOME": str(java_or_skip()), "PYTHONPATH": str(ROOT / "src")}
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    run("produce", f"--orders={ORDERS}", "--seconds=1")
    with spark_cluster.submit(
        example / "job.py",
        brokers.name_servers,
        str(files),
        "--drain",
        driver_python=sys.executable,
        archive=archive,
        log=tmp_path / "driver.log",
        python_path=(ROOT / "src", ROOT),
    ) as job:
        job.check()
    assert SUCCESS in run("verify", str(files), f"--orders={ORDERS}")
