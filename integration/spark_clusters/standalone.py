"""A standalone Spark cluster: a master and workers, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from integration.clusters.layout import LOCALHOST
from integration.clusters.ports import free_ports
from integration.clusters.processes import Process
from integration.spark_clusters.shipping import bare_python
from integration.spark_clusters.submitting import QUICK, SHIPPED, Submitted, spark_home, start_submit

PATIENCE = 900.0
"""Seconds until a process must serve, or an application must have its executors."""
Result = TypeVar("Result")


def wait_for(condition: Callable[[], Result], awaited: str, patience: float = PATIENCE) -> Result:
    """Poll until ``condition`` returns something true, and return that. Raises TimeoutError."""
    deadline = time.monotonic() + patience
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {awaited} within {patience:g} s")
        time.sleep(0.05)


@attrs.frozen
class Machine:
    """Where a worker runs.

    Attributes:
        host: its address. Spark runs the attempts of a speculative task on different hosts.
        variables: environment variables, in addition to a PATH whose ``python3`` has no packages.
        command: what the command line of the worker begins with, such as a change of the network.
    """

    host: str
    variables: Mapping[str, str] = attrs.field(factory=dict)
    command: Sequence[str] = ()


DECOMMISSIONING = {"SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -Dspark.decommission.enabled=true"}
"""Environment variables of machines whose workers can be decommissioned. The master needs them, too."""
MACHINES = (Machine(LOCALHOST), Machine("127.0.0.2"))


@attrs.frozen
class Executor:
    """A running executor.

    Attributes:
        pid: the process id of its JVM.
        worker: the number of its worker.
    """

    pid: int
    worker: int

    def kill(self) -> None:
        """End its JVM with SIGKILL, as the loss of its machine would."""
        os.kill(self.pid, signal.SIGKILL)

    def python_processes(self) -> list[int]:
        """Return the process ids of its Python processes."""
        return descendants(self.pid)


class Standalone:
    """A master and workers. As a context manager, it ends all processes on exit.

    Args:
        folder: the folder of the processes' files.
        java_home: the Java that runs them.
        machines: the machine of each worker. That of the first one runs the master and the drivers, too.
    """

    def __init__(self, folder: Path, java_home: Path, machines: Sequence[Machine] = MACHINES) -> None:
        self.folder = folder
        self._java_home = java_home
        self._machines = machines
        self._host = machines[0].host
        self._processes: list[Process] = []
        port, self._master_ui, *workers = free_ports(2 + 2 * len(machines))
        self.master = f"spark://{self._host}:{port}"
        self._worker_ports = workers[: len(machines)]
        self._worker_uis = workers[len(machines) :]

    def __enter__(self) -> Self:
        _, _, port = self.master.rpartition(":")
        try:
            ui, variables = str(self._master_ui), self._machines[0].variables
            arguments = ("--host", self._host, "--port", port, "--webui-port", ui)
            self._start("master", "Master", *arguments, variables=variables)
            wait_for(self._master_state, "master")
            for number in range(len(self._machines)):
                self._start_worker(number)
            count = len(self._machines)
            wait_for(lambda: (self._master_state() or {}).get("aliveworkers") == count, "workers")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.kill()

    # Processes

    def _start_worker(self, number: int) -> None:
        machine = self._machines[number]
        self._start(
            "worker", "Worker", self.master, "--host", machine.host,
            "--port", str(self._worker_ports[number]), "--webui-port", str(self._worker_uis[number]),
            "--cores", "2", "--memory", "1g", "--work-dir", str(self.folder / f"work-{number}"),
            variables={"SPARK_LOCAL_IP": machine.host, **machine.variables},
            command=machine.command,
        )  # fmt: skip

    def decommission(self, worker: int) -> None:
        """Take a worker out of service. The machines need the settings DECOMMISSIONING."""
        host = self._machines[worker].host
        url = f"http://{self._host}:{self._master_ui}/workers/kill/?host={host}"
        with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=10):
            pass

    def start_history_server(self, events: Path) -> str:
        """Start a server of the pages of ended applications, and return its URL.

        Args:
            events: the folder of the event logs.
        """
        [port] = free_ports(1)
        options = {"fs.logDirectory": events.as_uri(), "ui.port": port, "fs.update.interval": "1s"}
        java_options = [f"-Dspark.history.{name}={value}" for name, value in options.items()]
        self._start("history", "HistoryServer", variables={"SPARK_HISTORY_OPTS": " ".join(java_options)})
        url = f"http://{self._host}:{port}"
        wait_for(lambda: answers(url), "history server")
        return url

    def _start(
        self,
        package: str,
        name: str,
        *arguments: str,
        variables: Mapping[str, str] = {},
        command: Sequence[str] = (),
    ) -> None:
        folder = self.folder / f"{package}-{len(self._processes)}"
        folder.mkdir(parents=True)
        environment = {
            "PATH": os.pathsep.join([str(bare_python().parent), "/usr/bin", "/bin"]),
            "JAVA_HOME": str(self._java_home),
            "SPARK_LOCAL_IP": self._host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            **variables,
        }
        words = [
            *command, "env", "-i", *[f"{key}={value}" for key, value in environment.items()],
            str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{package}.{name}",
            *arguments,
        ]  # fmt: skip
        self._processes.append(Process(words, log=folder / "log", folder=folder))

    # State

    def pages(self) -> list[str]:
        """Return the URLs of the first pages of the master and the workers, and of their JSON twins."""
        hosts = [self._host, *[machine.host for machine in self._machines]]
        ports = [self._master_ui, *self._worker_uis]
        servers = [f"http://{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        return [server + path for server in servers for path in ("/", "/json/", "/environment/")]

    def _master_state(self) -> dict[str, Any] | None:
        return state_of(f"http://{self._host}:{self._master_ui}/json/")

    def applications(self) -> list[str]:
        """Return the ids of the applications that run."""
        return [each["id"] for each in (self._master_state() or {}).get("activeapps", ())]

    def executors(self) -> list[Executor]:
        """Return the running executors of all applications, by worker."""
        found = []
        for pid, command in processes():
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" not in command:
                continue
            url = command[command.index("--worker-url") + 1]
            port = int(url.rpartition(":")[2])
            if port in self._worker_ports:
                found.append(Executor(pid, self._worker_ports.index(port)))
        return sorted(found, key=lambda each: each.worker)

    def wait_for_executors(self, count: int) -> list[Executor]:
        """Wait until ``count`` executors run, and return them."""
        return wait_for(lambda: found if len(found := self.executors()) >= count else [], "executors")

    def logs(self) -> str:
        """Return the output of all processes and executors."""
        files = [*self.folder.glob("*/log"), *self.folder.glob("work-*/*/*/std*")]
        return "\n".join([file.read_text(errors="replace") for file in files])

    # Jobs

    def submit(
        self,
        program: Path | None,
        *arguments: str,
        driver_python: str,
        archive: Path | None,
        log: Path,
        settings: Mapping[str, str] = SHIPPED,
        variables: Mapping[str, str] = {},
        python_path: Sequence[Path] = (),
        command: Sequence[str] = ("bin/spark-submit",),
    ) -> Job:
        """Submit a program with spark-submit.

        Args:
            program: the file to run. None if ``command`` needs none.
            arguments: its arguments.
            driver_python: PYSPARK_PYTHON of the driver. Empty if it is not set.
            archive: the environment to ship.
            log: the file for the driver's output.
            settings: settings of Spark, which extend SETTINGS.
            variables: environment variables of the driver.
            python_path: folders from which the driver imports modules.
            command: the program of Spark that submits, and its first arguments.
        """
        process = start_submit(
            [str(spark_home() / command[0]), *command[1:], "--master", self.master],
            [*([] if program is None else [str(program)]), *arguments],
            java_home=self._java_home,
            folder=self.folder,
            log=log,
            archive=archive,
            settings=settings,
            variables={
                "SPARK_LOCAL_IP": self._host,
                "PYTHONPATH": os.pathsep.join([str(path) for path in python_path]),
                **({"PYSPARK_PYTHON": driver_python} if driver_python else {}),
                **variables,
            },
        )
        return Job(process, log, self)


@attrs.frozen(eq=False)
class Job(Submitted):
    """A submitted job.

    Attributes:
        cluster: where it runs.
    """

    cluster: Standalone

    def kill(self) -> None:
        """End the driver with all of its processes, and wait until the master has noticed."""
        super().kill()
        wait_for(lambda: not self.cluster.applications(), "end of the application")
        wait_for(lambda: not self.cluster.executors(), "end of the executors")


def answers(url: str) -> bool:
    """Return whether a page is served."""
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except OSError:
        return False


def state_of(url: str) -> dict[str, Any] | None:
    """Return the state that a web page of Spark shows, or None if it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
    except (OSError, ValueError):
        return None
    return state


def processes() -> Iterator[tuple[int, list[str]]]:
    """Return the id and command line of each process of this machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            yield int(entry.name), command.decode(errors="replace").split("\0")


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    below, found = list(children.get(pid, ())), []
    while below:
        found.append(below.pop())
        below += children.get(found[-1], ())
    return sorted(found)
