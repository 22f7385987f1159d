"""Spark Connect on a standalone cluster, with clients that have no Spark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.layout import LOCALHOST
from integration.clusters.ports import free_ports
from integration.copied import create_topics, read_copies
from integration.environments import ROOT, environment
from integration.spark_clusters.conftest import COUNT, SOURCES
from integration.spark_clusters.shipping import NAME
from integration.spark_clusters.standalone import Standalone, wait_for
from integration.spark_copying import STREAM
from rocketmq_py import Message, blocking
from rocketmq_py.spark import STAMP

PROGRAM = Path(__file__).parent / "programs" / "connect_deduplication.py"
EXAMPLE = ROOT / "examples" / "spark_connect.py"
PACKAGE = "pyspark-client==4.2.0"
"""The newest release. It works with servers of 4.3, too."""
REPEATED = 50
SETTINGS = {
    "spark.executorEnv.PATH": f"./{NAME}/bin:../{NAME}/bin:/usr/bin:/bin",
    "spark.sql.execution.pyspark.python": "python",
}
"""The shipped environment for streams, which run in the executor's directory, and for batches, which run in
a folder of it for each session.
"""


@pytest.fixture(scope="module")
def client() -> Path:
    """A Python that has nothing but ``pyspark-client``."""
    return environment("spark-cluster/client", sys.executable, [PACKAGE], not_pinned=("pyspark", "py4j"))


@pytest.fixture(scope="module")
def client_with_package() -> Path:
    """A Python that has ``pyspark-client`` and this package."""
    return environment(
        "spark-cluster/client-with-package",
        sys.executable,
        [PACKAGE, "--editable", "."],
        not_pinned=("pyspark", "py4j"),
    )


@pytest.fixture(scope="module")
def server(
    spark_cluster: Standalone, archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a server of Spark Connect that runs its sessions on the cluster."""
    [port] = free_ports(1)
    folder = tmp_path_factory.mktemp("connect")
    with spark_cluster.submit(
        None,
        driver_python=sys.executable,
        archive=archive,
        log=folder / "server.log",
        settings={**SETTINGS, "spark.connect.grpc.binding.port": str(port)},
        variables={"SPARK_LOG_DIR": str(folder), "SPARK_PID_DIR": str(folder)},
        python_path=(ROOT / "src",),
        command=("sbin/start-connect-server.sh", "--wait"),
    ) as job:

        def serves() -> bool:
            assert job.is_running, job.output()[-8000:]
            with socket.socket() as probe:
                return probe.connect_ex((LOCALHOST, port)) == 0

        wait_for(serves, "server of Spark Connect")
        yield f"sc://{LOCALHOST}:{port}"


def run(python: Path, *arguments: str) -> str:
    """Run a client, which must succeed, and return its output."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [str(python), *arguments], env=variables, capture_output=True, text=True, check=False, timeout=600
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_batches_of_the_example_run_in_a_client_without_packages(
    server: str, client: Path, brokers: Cluster, target: str
) -> None:
    assert run(client, str(EXAMPLE), server, brokers.name_servers, target).splitlines() == [
        "k1: tea",
        "k2: coffee",
        "k3: milk",
    ]


def test_stream_of_a_client_without_packages_copies_each_message_once(
    server: str, client: Path, brokers: Cluster, target: str, tmp_path: Path
) -> None:
    run(
        client, "-m", "integration.spark_copying", STREAM, "--remote", server,
        "--address", brokers.name_servers,
        "--sources", ",".join(SOURCES), "--target", target, "--directory", str(tmp_path),
        "--most", str(COUNT // 2),
    )  # fmt: skip
    copies = read_copies(brokers, target)
    assert copies.messages == COUNT
    assert copies.numbers.keys() == set(range(COUNT))
    assert len(copies.numbers_of_stamp) == COUNT


def test_client_deduplicates(server: str, client_with_package: Path, brokers: Cluster) -> None:
    topic = f"Repeated-{uuid.uuid4().hex[:8]}"
    create_topics(brokers, topic)
    messages = [
        Message(topic, b"row", properties={STAMP: f"query/0/0/{number % REPEATED}"})
        for number in range(2 * REPEATED)
    ]
    with blocking.Producer(brokers.name_servers, group="repeating", linger=0.005) as producer:
        assert not [each for each in producer.send_all(messages) if isinstance(each, Exception)]
    assert run(client_with_package, str(PROGRAM), server, brokers.name_servers, topic).split() == [
        str(REPEATED),
        str(REPEATED),
    ]
