"""Keys that a job takes from environment variables do not appear anywhere else."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import pytest

from integration.access import ADMIN
from integration.clusters.cluster import Cluster
from integration.clusters.layout import LOCALHOST
from integration.clusters.ports import free_ports
from integration.copied import create_topics, fill
from integration.environments import ROOT
from integration.spark_clusters.conftest import SPARK_USER
from integration.spark_clusters.pages import api_pages, crawl
from integration.spark_clusters.programs.guarded import COPIED, LOOKED
from integration.spark_clusters.shipping import NAME
from integration.spark_clusters.standalone import Job, Standalone, answers, processes, wait_for
from integration.spark_clusters.submitting import SHIPPED
from rocketmq_py import blocking

PROGRAM = Path(__file__).parent / "programs" / "guarded.py"
COUNT = 600
WRONG = "a-wrong-secret-5f2c81d0"
"""A secret key that no user has."""
TOKEN = "a-token-93d7e1ab"


class CommandLines:
    """Records the command lines of all processes while it is open."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            self.seen.update(" ".join(command) for _, command in processes())


def files_below(*folders: Path) -> dict[str, str]:
    """Return the contents of all files but those of shipped environments, by their path."""
    return {
        str(file): file.read_bytes().decode(errors="replace")
        for folder in folders
        for file in folder.rglob("*")
        if file.is_file() and f"/{NAME}/" not in str(file) and file.suffix != ".jar"
    }


def environments(job: Job) -> dict[str, str]:
    """Return the environment variables of all processes but those of the driver, by their command line."""
    found = {}
    for pid, command in processes():
        with suppress(OSError):
            if os.getsid(pid) != job.process.pid:
                found[" ".join(command)] = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return found


def check_hidden(secrets: Collection[str], texts: Mapping[str, str], known: str) -> None:
    """Check that no text contains a secret, and that some contain a ``known`` text."""
    leaks = [(place, secret) for place, text in texts.items() for secret in secrets if secret in place + text]
    assert not leaks
    assert any(known in place + text for place, text in texts.items()), f"{known} is nowhere either"


@attrs.frozen
class GuardedJobs:
    """Submits jobs that copy a topic with keys.

    Attributes:
        spark: the cluster that runs them.
        brokers: brokers that check access.
        archive: the environment to ship.
        directory: the directory of the checkpoint, the event logs, the driver's output and its files.
    """

    spark: Standalone
    brokers: Cluster
    archive: Path
    directory: Path
    ui: int = attrs.field(factory=lambda: free_ports(1)[0])

    def start(self, source: str, target: str, secret: str) -> Job:
        """Submit a job with a secret key, which its program takes from the environment."""
        self.events.mkdir()
        return self.spark.submit(
            PROGRAM, self.brokers.name_servers, source, target, str(self.directory),
            driver_python=sys.executable,
            archive=self.archive,
            log=self.directory / "driver.log",
            settings={
                **SHIPPED,
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": self.events.as_uri(),
                "spark.eventLog.compress": "false",
                "spark.local.dir": str(self.directory / "local"),
                "spark.ui.enabled": "true",
                "spark.ui.port": str(self.ui),
            },
            variables={
                "ACCESS_KEY": SPARK_USER.access_key, "SECRET_KEY": secret, "SECURITY_TOKEN": TOKEN,
            },
            python_path=(ROOT / "src", ROOT),
        )  # fmt: skip

    @property
    def events(self) -> Path:
        """The folder of the event logs."""
        return self.directory / "events"

    def driver_pages(self, application: str) -> dict[str, str]:
        """Return the driver's pages, and those of the REST API."""
        server = f"http://{LOCALHOST}:{self.ui}"
        return crawl(f"{server}/jobs/", *api_pages(server, application))

    def history_pages(self, application: str) -> dict[str, str]:
        """Return the pages of the history server about an application that ended."""
        server = self.spark.start_history_server(self.events)
        pages = f"{server}/api/v1/applications/{application}"
        wait_for(lambda: answers(pages), "history of the application")
        return crawl(f"{server}/", f"{server}/history/{application}/jobs/", *api_pages(server, application))


@pytest.fixture
def jobs(spark_cluster: Standalone, guarded: Cluster, archive: Path, tmp_path: Path) -> GuardedJobs:
    """Submits jobs that copy topics of ``guarded``."""
    return GuardedJobs(spark_cluster, guarded, archive, tmp_path)


@pytest.fixture
def topics(guarded: Cluster) -> tuple[str, str]:
    """A topic with COUNT messages, and an empty one."""
    source, target = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("Guarded", "Copies")]
    create_topics(guarded, source, target, credentials=ADMIN)
    fill(guarded, [source], COUNT, ADMIN)
    return source, target


def test_keys_stay_in_the_process_of_the_driver(jobs: GuardedJobs, topics: tuple[str, str]) -> None:
    source, target = topics
    secrets = (SPARK_USER.secret_key, TOKEN)
    with CommandLines() as commands, jobs.start(source, target, SPARK_USER.secret_key) as job:
        wait_for(lambda: COPIED in job.output() or not job.is_running, "end of the copying")
        assert job.is_running, job.output()[-8000:]
        [application] = jobs.spark.applications()
        driver_pages = jobs.driver_pages(application)
        cluster_pages = crawl(*jobs.spark.pages())
        variables = environments(job)
        files_of_running_job = files_below(jobs.spark.folder, jobs.directory)
        (jobs.directory / LOOKED).touch()
        job.check()
    with blocking.Reader(jobs.brokers.name_servers, credentials=ADMIN) as reader:
        assert sum(end for _, end in reader.offsets(target).values()) == 2 * COUNT

    check_hidden(secrets, dict.fromkeys(commands.seen, ""), PROGRAM.name)
    check_hidden(secrets, variables, "CoarseGrainedExecutorBackend")
    check_hidden(secrets, driver_pages, "copying")
    check_hidden(secrets, cluster_pages, application)
    check_hidden(secrets, jobs.history_pages(application), "copying")
    files = files_below(jobs.spark.folder, jobs.directory)
    for texts in (files_of_running_job, files):
        check_hidden(secrets, texts, source)
    for place in ("/checkpoint/", "/events/", "driver.log", "/stderr"):
        assert any(place in file for file in files), place


def test_keys_that_a_broker_denies_are_not_in_the_error(jobs: GuardedJobs, topics: tuple[str, str]) -> None:
    with CommandLines() as commands, jobs.start(*topics, WRONG) as job:
        assert job.wait() == 1
    assert "AccessDeniedError" in job.output()
    secrets = (WRONG, TOKEN)
    check_hidden(secrets, dict.fromkeys(commands.seen, ""), PROGRAM.name)
    check_hidden(secrets, files_below(jobs.spark.folder, jobs.directory), "AccessDeniedError")
