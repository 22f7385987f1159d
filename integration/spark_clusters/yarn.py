"""A YARN cluster on this machine: Hadoop's mini cluster, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from integration.clusters import maven
from integration.clusters.layout import LOCALHOST
from integration.clusters.processes import Process
from integration.spark_clusters.standalone import processes, wait_for
from integration.spark_clusters.submitting import SHIPPED, spark_home, start_submit

CLIENT, CLUSTER = "client", "cluster"
"""Where the driver runs: in spark-submit, or on the cluster."""
SETTINGS = {
    CLIENT: SHIPPED,
    CLUSTER: {"spark.yarn.appMasterEnv.PYSPARK_PYTHON": SHIPPED["spark.sql.execution.pyspark.python"]},
}
"""The settings by which the parts of a job use the shipped environment."""
_PROGRAM = Path(__file__).parent / "programs" / "YarnCluster.java"
_NODES = 2
# The resource manager needs Bouncy Castle, and the mini cluster JUnit, which the jar of Hadoop leaves out.
_OTHERS = (
    *(f"org.bouncycastle:{part}-jdk18on:1.80" for part in ("bcprov", "bcpkix", "bcutil")),
    "org.junit.jupiter:junit-jupiter-api:5.12.2",
    "org.junit.platform:junit-platform-commons:1.12.2",
    "org.opentest4j:opentest4j:1.3.0",
)


def hadoop_version() -> str:
    """Return the version of Hadoop that Spark has."""
    [jar] = (spark_home() / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.rpartition("-")[2]


class Yarn:
    """A resource manager and two node managers. As a context manager, it ends all processes on exit.

    Args:
        folder: the folder of the processes' files.
        java_home: the Java that runs them.

    Raises:
        ClusterUnavailableError: Hadoop cannot be downloaded.
    """

    def __init__(self, folder: Path, java_home: Path) -> None:
        self.folder = folder
        self._java_home = java_home
        self._configuration = folder / "configuration"

    def __enter__(self) -> Self:
        version = hadoop_version()
        artifacts = [f"org.apache.hadoop:hadoop-client-minicluster:{version}", *_OTHERS]
        jars = maven.jars(f"yarn-{version}", artifacts, dependencies=False)
        self._configuration.mkdir()
        command = [
            "env", f"JAVA_HOME={self._java_home}", "java", "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m",
            "-cp", f"{jars}/*:{spark_home()}/jars/*", str(_PROGRAM), str(self._configuration), str(_NODES),
        ]  # fmt: skip
        self._process = Process(command, log=self.folder / "log", folder=self.folder)

        def serves() -> bool:
            assert self._process.is_running, self._process.log_tail()
            return (self._configuration / "yarn-site.xml").exists()

        try:
            wait_for(serves, "YARN")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the cluster, and containers that have not ended yet."""
        self._process.kill()
        for pid, command in processes():
            if pid != os.getpid() and str(self.folder) in " ".join(command):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def submit(
        self,
        mode: str,
        program: Path,
        *arguments: str,
        driver_python: str,
        python_path: Sequence[Path],
        archive: Path,
        log: Path,
    ) -> subprocess.Popen[bytes]:
        """Submit a program with spark-submit, as the page on Spark describes.

        Args:
            mode: CLIENT or CLUSTER.
            program: the file to run.
            arguments: its arguments.
            driver_python: PYSPARK_PYTHON of the driver in the mode CLIENT.
            python_path: folders from which the driver imports modules in the mode CLIENT.
            archive: the environment to ship.
            log: the file for the output of spark-submit.
        """
        variables = {"HADOOP_CONF_DIR": str(self._configuration), "SPARK_HOME": str(spark_home())}
        if mode == CLIENT:
            variables["PYSPARK_PYTHON"] = driver_python
            variables["PYTHONPATH"] = os.pathsep.join([str(path) for path in python_path])
        return start_submit(
            [str(spark_home() / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", mode],
            [str(program), *arguments],
            java_home=self._java_home,
            folder=self.folder,
            log=log,
            archive=archive,
            settings={
                "spark.driver.host": LOCALHOST,
                "spark.executor.instances": "2",
                "spark.yarn.jars": f"local:{spark_home()}/jars/*",  # else each job uploads all of them
                **SETTINGS[mode],
            },
            variables=variables,
        )

    def logs(self) -> str:
        """Return the output of all containers."""
        files = sorted(self.folder.rglob("std*"))
        return "\n".join([f"{file}:\n{file.read_text(errors='replace')}" for file in files if file.is_file()])
