"""A firewall between one executor and one broker, while a cluster copies a topic of that broker."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.clusters.cluster import Cluster, ClusterUnavailableError
from integration.clusters.plugin import skip_or_fail, start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.copied import QUEUES, create_topics, fill
from integration.spark_clusters.conftest import COUNT, Copying
from integration.spark_clusters.copies import FEW_PER_TASK, Record, check_copies
from integration.spark_clusters.firewalls import HOST_NAME, FirewalledNetwork
from integration.spark_clusters.standalone import Machine, Standalone
from integration.spark_copying import BATCH
from rocketmq_py import blocking
from tests.spark.session import java_or_skip

SOURCE, TARGET = "Orders", "Copies"
ELSEWHERE = {"spark.excludeOnFailure.enabled": "true"}
"""Spark runs a failed task again on another executor."""


@pytest.fixture
def network() -> Iterator[FirewalledNetwork]:
    try:
        with FirewalledNetwork() as network:
            yield network
    except ClusterUnavailableError as error:
        skip_or_fail(error)


@pytest.fixture
def brokers(network: FirewalledNetwork) -> Iterator[Cluster]:
    """SOURCE is on broker-b, which the machine behind the firewall does not reach, TARGET on both brokers."""
    with start_own_cluster(VERSIONS[-1], brokers=2, host=network.address) as cluster:
        with blocking.Admin(cluster.name_servers) as admin:
            admin.topics.create(SOURCE, queues=QUEUES, brokers=["broker-b"])
        create_topics(cluster, TARGET)
        fill(cluster, (SOURCE,), COUNT)
        network.drop(int(cluster.brokers["broker-b"].rpartition(":")[2]))
        yield cluster


@pytest.fixture
def copying(network: FirewalledNetwork, brokers: Cluster, archive: Path, tmp_path: Path) -> Iterator[Copying]:
    """Submits jobs to two workers, of which the second one is behind the firewall."""
    machines = (Machine(network.address), network.machine())
    with Standalone(tmp_path / "spark", java_or_skip(), machines) as spark:
        yield Copying(spark, brokers.name_servers, archive, tmp_path)


def test_failed_tasks_name_the_broker_and_the_executor_and_run_again_elsewhere(
    copying: Copying, network: FirewalledNetwork, brokers: Cluster, record_property: Record
) -> None:
    began = time.monotonic()
    with copying.start(BATCH, TARGET, sources=(SOURCE,), read=FEW_PER_TASK, settings=ELSEWHERE) as job:
        output = job.check()
    check_copies(brokers, TARGET, record_property, "a firewall before one executor", began)
    host, broker = re.escape(network.firewalled), re.escape(brokers.brokers["broker-b"])
    lost = rf"Lost task .* \({host} executor \d\): (?:.*\n)*?.*{broker}.*check connection.*{HOST_NAME}"
    assert re.search(lost, output), output[-8000:]
