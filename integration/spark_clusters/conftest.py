"""One standalone cluster and one RocketMQ cluster for all tests, because each start takes seconds."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from integration.access import ADMIN, SETTINGS_OF_5
from integration.clusters.cluster import Cluster
from integration.clusters.plugin import SETTINGS, start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.copied import create_topics, fill
from integration.environments import ROOT
from integration.spark_clusters.shipping import shipped_archive
from integration.spark_clusters.standalone import Job, Standalone
from integration.spark_clusters.submitting import SHIPPED
from integration.spark_copying import END
from rocketmq_py import Credentials, blocking
from tests.spark.session import java_or_skip

COPYING = ROOT / "integration" / "spark_copying.py"
SOURCES = ("Orders", "Payments", "Parcels")
"""Each has two queues on each of two brokers."""
COUNT = 12_000
"""Messages in all sources together, with the bodies 0 to COUNT - 1."""

SPARK_USER = Credentials("the-spark-user", "spark-secret-1f6b20ce")
"""May read and write all topics of ``guarded``."""


@pytest.fixture(scope="session")
def brokers() -> Iterator[Cluster]:
    """Two brokers with COUNT messages in SOURCES."""
    with start_own_cluster(VERSIONS[-1], brokers=2) as cluster:
        create_topics(cluster, *SOURCES)
        fill(cluster, SOURCES, COUNT)
        yield cluster


@pytest.fixture(scope="session")
def guarded() -> Iterator[Cluster]:
    """A broker that checks access, and has SPARK_USER."""
    with start_own_cluster(VERSIONS[-1], settings={**SETTINGS, **SETTINGS_OF_5}) as cluster:
        allow_all_topics(cluster, SPARK_USER)
        yield cluster


def allow_all_topics(cluster: Cluster, user: Credentials) -> None:
    """Create a user that may read and write all topics of brokers that check access."""
    with blocking.Admin(cluster.name_servers, credentials=ADMIN) as admin:
        admin.access.create_user(user.access_key, user.secret_key)
        admin.access.put_rule(user.access_key, "Topic:*", ["Pub", "Sub", "Get"])
        admin.access.put_rule(user.access_key, "Group:*", ["Sub"])


@pytest.fixture(scope="session")
def archive() -> Path:
    """The environment that jobs ship."""
    return shipped_archive()


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers with two cores each, whose Python has no packages."""
    with Standalone(tmp_path_factory.mktemp("spark"), java_or_skip()) as cluster:
        yield cluster


@pytest.fixture
def target(brokers: Cluster) -> str:
    """A new topic with two queues on each broker."""
    topic = f"Copies-{uuid.uuid4().hex[:8]}"
    create_topics(brokers, topic)
    return topic


@attrs.frozen
class Copying:
    """Submits jobs that copy topics, with the shipped environment.

    Attributes:
        spark: the cluster that runs them.
        name_servers: the brokers' name servers.
        archive: the environment. None ships nothing.
        directory: the directory of the checkpoint and of the drivers' output.
    """

    spark: Standalone
    name_servers: str
    archive: Path | None
    directory: Path

    def start(
        self,
        mode: str,
        target: str,
        *,
        sources: tuple[str, ...] = SOURCES,
        most: int = 100_000,
        read: tuple[str, ...] = (),
        write: tuple[str, ...] = (),
        settings: Mapping[str, str] = {},
        variables: Mapping[str, str] = {},
    ) -> Job:
        """Submit a job.

        Args:
            mode: a mode of ``integration.spark_copying``.
            target: the topic of the copies.
            sources: the topics to copy.
            most: the maximum number of messages of a batch of a stream.
            read: options of the source, as ``name=value``.
            write: options of the sink.
            settings: settings of Spark, in addition to those of the shipped environment.
            variables: environment variables of the driver.
        """
        options = [word for option in read for word in ("--read", option)]
        options += [word for option in write for word in ("--write", option)]
        return self.spark.submit(
            COPYING, mode, "--address", self.name_servers, "--sources", ",".join(sources),
            "--target", target, "--directory", str(self.directory), "--most", str(most), *options,
            driver_python=sys.executable,
            archive=self.archive,
            log=self.directory / "driver.log",
            settings={**SHIPPED, **settings},
            variables=variables,
            python_path=(ROOT / "src", ROOT),
        )  # fmt: skip

    def end(self) -> None:
        """Let an endless stream end, once it has copied everything."""
        (self.directory / END).touch()


@pytest.fixture
def copying(spark_cluster: Standalone, brokers: Cluster, archive: Path, tmp_path: Path) -> Copying:
    """Submits jobs that copy topics of ``brokers``."""
    return Copying(spark_cluster, brokers.name_servers, archive, tmp_path)
