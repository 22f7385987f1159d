"""Spark sessions that need their own JVM: separate executors, Spark Connect, and an example."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from integration.clusters.plugin import StartCluster
from rocketmq_py.blocking import Client
from rocketmq_py.message import Message
from rocketmq_py.spark import STAMP
from tests.behaviours.over_ipv6 import HOST
from tests.spark.conftest import broker_address, new_topic, topic
from tests.spark.session import ROOT, java_or_skip

__all__ = ["broker_address", "new_topic", "topic"]  # fixtures

PROGRAM = ROOT / "tests" / "spark" / "round_trip_program.py"
EXAMPLE = ROOT / "examples" / "spark_exactly_once.py"


@pytest.fixture(autouse=True)
def java() -> Path:
    return java_or_skip()


def run(program: Path, *arguments: str, env: Mapping[str, str] = {}) -> str:
    """Run a program, which must succeed, and return its output."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "SPARK_LOCAL_IP": "127.0.0.1"}
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    process = subprocess.run(
        [sys.executable, str(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **paths, **python, **env},
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def round_trip(master: str, address: str, topic: str) -> dict[str, object]:
    """Run the round trip program, check the rows that it read, and return its output."""
    output = run(PROGRAM, master, address, topic)
    result: dict[str, object] = json.loads(output.splitlines()[-1])
    assert result["batch"] == list(range(1000))
    assert result["stream"] == list(range(1000))
    return result


def test_executors_in_separate_processes(broker_address: str, topic: str) -> None:
    result = round_trip("local-cluster[2,1,1024]", broker_address, topic)
    assert result["session"] == "pyspark.sql.session"


def test_spark_connect(broker_address: str, topic: str) -> None:
    for name in ("grpc", "grpc_status", "google.rpc", "pandas"):
        pytest.importorskip(name, reason="pyspark[connect] is not installed")
    result = round_trip("connect", broker_address, topic)
    assert result["session"] == "pyspark.sql.connect.session"


def test_brokers_on_ipv6_addresses(real_cluster: StartCluster, real_name: str, topic: str) -> None:
    round_trip("local[2]", real_cluster(real_name, HOST).name_servers, topic)


def test_example_stores_each_message_once_in_a_table(
    broker_address: str, topic: str, tmp_path: Path, java: Path
) -> None:
    table, checkpoint = str(tmp_path / "table.sqlite"), tmp_path / "checkpoint"

    def run_example() -> list[str]:
        output = run(EXAMPLE, broker_address, topic, table, str(checkpoint), env={"JAVA_HOME": str(java)})
        return [line for line in output.splitlines() if line.startswith("batch ")]

    with Client(broker_address) as client, client.batching_producer("g") as producer:
        stamped = [Message(topic, b"%d" % n, properties={STAMP: f"q/0/0/{n % 50}"}) for n in range(100)]
        producer.send_all([*stamped, *[Message(topic, b"own") for _ in range(7)]])
        assert run_example() == ["batch 0: 57 new rows"]
        # Remove the commit, so that the batch is replayed.
        for name in ("commits/0", "commits/.0.crc"):
            (checkpoint / name).unlink()
        producer.send(Message(topic, b"late"))
        assert run_example() == ["batch 0: 0 new rows", "batch 1: 1 new rows"]
