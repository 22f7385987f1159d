"""Starting spark-submit, with a driver whose machine has no other Python packages than its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from integration.clusters.layout import LOCALHOST
from integration.clusters.processes import end_with_parent
from integration.spark_clusters.shipping import EXECUTOR_PYTHON, NAME, bare_python

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options: most processes end before full compilation pays off."""
SETTINGS: Mapping[str, str] = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.cores.max": "4",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
"""Settings of every job: small processes, and executors with two task slots."""
SHIPPED: Mapping[str, str] = {"spark.sql.execution.pyspark.python": EXECUTOR_PYTHON}
"""The setting with which executors use the archive."""


def spark_home() -> Path:
    """Return the folder of the installed pyspark, which has Spark's programs."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def start_submit(
    command: Sequence[str],
    program: Sequence[str],
    *,
    java_home: Path,
    folder: Path,
    log: Path,
    archive: Path | None,
    settings: Mapping[str, str],
    variables: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start spark-submit in a process group of its own.

    Args:
        command: the path of spark-submit, and its options.
        program: the program and its arguments.
        java_home: the Java to use, prepared by ``shorten_spark_start``.
        folder: its working directory and HOME.
        log: the file for its output.
        archive: the environment to ship, or None.
        settings: settings of Spark, which extend SETTINGS.
        variables: environment variables.
    """
    words = list(command)
    if archive is not None:
        words += ["--archives", f"{archive}#{NAME}"]
    for name, value in {**SETTINGS, **settings}.items():
        words += ["--conf", f"{name}={value}"]
    environment = {
        "PATH": os.pathsep.join([str(bare_python().parent), "/usr/bin", "/bin"]),
        "HOME": str(folder),
        "JAVA_HOME": str(java_home),
        "SPARK_LOCAL_IP": LOCALHOST,
        **{name: os.environ[name] for name in ("SPARK_HOME", "SPARK_SUBMIT_OPTS")},
        **variables,
    }
    with log.open("ab") as output:
        return subprocess.Popen(
            [*words, *program],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent(),
        )


@attrs.frozen(eq=False)
class Submitted:
    """A program that spark-submit runs. As a context manager, it is killed on exit.

    Attributes:
        process: spark-submit, which is the driver's JVM and leads the process group.
        log: the file with its output.
    """

    process: subprocess.Popen[bytes]
    log: Path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        """Whether the driver runs."""
        return self.process.poll() is None

    def output(self) -> str:
        """Return the output and the log of the driver."""
        return self.log.read_text(errors="replace")

    def wait(self, timeout: float = 900) -> int:
        """Wait until the program ends, and return its exit code."""
        return self.process.wait(timeout)

    def check(self, timeout: float = 900) -> str:
        """Wait until the program ends, which must succeed, and return its output."""
        code = self.wait(timeout)
        assert code == 0, self.output()[-8000:]
        return self.output()

    def kill(self) -> None:
        """End the driver with all of its processes by SIGKILL, as the loss of their machine would."""
        if self.is_running:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
