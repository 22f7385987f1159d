"""Example programs that spark-submit runs, each in a process group that can be killed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import attrs

from integration.clusters.layout import LOCALHOST
from integration.clusters.processes import end_with_parent
from integration.environments import ROOT
from integration.spark_clusters.submitting import Submitted
from integration.spark_copying import LATE
from integration.spark_java import QUICK
from integration.spark_lakehouse.sql import MARK

SETTINGS: Mapping[str, str] = {
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": LOCALHOST,
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""Settings for a small machine. Nothing in the examples depends on them."""
CODE_CACHE = "-XX:ReservedCodeCacheSize=240m"
"""Four pipelines in one driver fill the 48 MB that a JVM without full compilation has."""
KILLS = int(os.environ.get("SPARK_LAKEHOUSE_KILLS", "3"))
"""The number of kills in each test that kills its program."""
MAX_STARTS = 5
_HOME = "from integration.spark_java import spark_home; print(spark_home())"


@attrs.frozen
class Spark:
    """A Spark installation with the jars of table formats.

    Attributes:
        python: the Python of its environment.
        variables: environment variables with which its programs start.
        jars: the jars that programs get with ``--jars``.
    """

    python: Path
    variables: Mapping[str, str]
    jars: Sequence[Path]

    @classmethod
    def of(cls, python: Path, java_home: Path, jars: Sequence[Path]) -> Self:
        """Return the Spark of an environment, without the zip of PySpark, which every start would compile."""
        command = [str(python), "-c", _HOME]
        done = subprocess.run(
            command, cwd=ROOT, env=_without_spark(), stdout=subprocess.PIPE, text=True, check=True
        )
        variables = {
            "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": done.stdout.strip(),
            "SPARK_LOCAL_IP": LOCALHOST,
            "SPARK_SUBMIT_OPTS": " ".join([*QUICK, CODE_CACHE]),
        }
        return cls(python, variables, jars)

    def start(
        self,
        program: str,
        *arguments: str,
        folder: Path,
        options: Sequence[str] | None = None,
        settings: Mapping[str, str] = {},
    ) -> Running:
        """Submit a program in ``local[2,4]``: a failed task is tried again, as on a cluster.

        Args:
            program: its path below the root of the repository.
            arguments: its arguments.
            folder: the directory of its log, temporary files and warehouse. Starts share it.
            options: options of spark-submit instead of ``--jars``.
            settings: settings of Spark, which extend SETTINGS.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if options is None:
            options = ["--jars", ",".join(map(str, self.jars))]
        conf = {"spark.local.dir": str(folder / "local"), **SETTINGS, **settings}
        words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        submit = self.python.with_name("spark-submit")
        command = [str(submit), "--master", "local[2,4]", *options, *words, str(ROOT / program), *arguments]
        log = folder / f"{Path(program).stem}.log"
        with log.open("ab") as output:
            begin = output.tell()
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**_without_spark(), **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent(),
            )
        return Running(process, log, begin)

    def sql(self, warehouse: Path, *statements: str, folder: Path) -> list[list[dict[str, Any]]]:
        """Run SQL statements on tables. Return the rows of each, with dates as text.

        Args:
            warehouse: the warehouse of the Iceberg catalog ``lake``. Delta tables are named delta.`path`.
            statements: the statements, in their order.
            folder: the directory of the log and temporary files.
        """
        with self.start(
            "integration/spark_lakehouse/sql.py", str(warehouse), *statements, folder=folder
        ) as run:
            lines = run.check().splitlines()
        return [json.loads(line.removeprefix(MARK)) for line in lines if line.startswith(MARK)]

    def run(self, program: str, *arguments: str, folder: Path, **options: Any) -> str:
        """Run a program until it succeeds, and return the output of its last start.

        A stream whose Python process started too slowly is started again, as a supervisor does. The
        arguments are those of :meth:`start`.
        """
        for _ in range(MAX_STARTS):
            with self.start(program, *arguments, folder=folder, **options) as running:
                if running.wait() == 0 or LATE not in running.output():
                    break
        return running.check()


def _without_spark() -> dict[str, str]:
    """Return this process's environment variables without those of another Spark.

    Python may cache bytecode: compiling PySpark takes longer than Spark waits for its Python processes.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK", "PYTHONDONT"))
    }


@attrs.frozen(eq=False)
class Running(Submitted):
    """A program whose starts share a log.

    Attributes:
        begin: the position in ``log`` where the output of this start begins.
    """

    begin: int

    def output(self) -> str:
        """Return the output and the log of this start."""
        return self.log.read_bytes()[self.begin :].decode(errors="replace")
