"""One RocketMQ cluster and one Spark for all tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from integration.clusters.cluster import Cluster, ClusterUnavailableError
from integration.clusters.plugin import skip_or_fail, start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.copied import create_topics
from integration.spark_lakehouse.jars import spark_python, table_jars
from integration.spark_lakehouse.programs import Spark
from tests.spark.session import java_or_skip


@pytest.fixture(scope="session")
def brokers() -> Iterator[Cluster]:
    """Two brokers 5.5.0, which do not refuse messages that have waited because the machine is busy."""
    settings = {"waitTimeMillsInSendQueue": "60000"}
    with start_own_cluster(VERSIONS[-1], brokers=2, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark() -> Spark:
    """Spark 4.1 with the jars of both table formats."""
    try:
        return Spark.of(spark_python(), java_or_skip(), table_jars())
    except ClusterUnavailableError as error:
        skip_or_fail(error)


@pytest.fixture
def new_topic(brokers: Cluster) -> Callable[[], str]:
    """Create topics with two queues on each broker."""

    def create() -> str:
        topic = f"Topic-{uuid.uuid4().hex[:8]}"
        create_topics(brokers, topic)
        return topic

    return create
