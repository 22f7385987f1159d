"""Spark sessions that need their own JVM: separate executors, Spark Connect, and an example."""

from __future__ import annotations

import json
import os
import shutil
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
CONNECT_EXAMPLE = ROOT / "examples" / "spark_connect.py"
PIPELINE_EXAMPLE = ROOT / "examples" / "spark_declarative"


@pytest.fixture(autouse=True)
def java() -> Path:
    return java_or_skip()


def run(program: Path, *arguments: str, env: Mapping[str, str] = {}) -> str:
    """Run a Python program, which must succeed, and return its output."""
    return run_command(sys.executable, str(program), *arguments, env=env)


def run_command(*command: str, env: Mapping[str, str], directory: Path | None = None) -> str:
    """Run a command, which must succeed, and return its output."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "SPARK_LOCAL_IP": "127.0.0.1"}
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    process = subprocess.run(
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **paths, **python, **env},
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def connect_or_skip() -> None:
    """Skip the test if the packages of Spark Connect are missing."""
    for name in ("grpc", "grpc_status", "google.rpc", "pandas"):
        pytest.importorskip(name, reason="pyspark[connect] is not installed")


def round_trip(master: str, address: str, topic: str) -> dict[str, object]:
    """Run the round trip program, check the rows that it read, and return its output."""
    output = run(PROGRAM, master, address, topic)
    result: dict[str, object] = json.loads(output.splitlines()[-1])
    assert result["batch"] == list(range(1000))
    assert result["stream"] == list(range(1000))
    assert result["counted"] == 1000
    return result


def test_executors_in_separate_processes(broker_address: str, topic: str) -> None:
    result = round_trip("local-cluster[2,1,1024]", broker_address, topic)
    assert result["session"] == "pyspark.sql.session"


def test_spark_connect(broker_address: str, topic: str) -> None:
    connect_or_skip()
    result = round_trip("connect", broker_address, topic)
    assert result["session"] == "pyspark.sql.connect.session"


def test_example_of_spark_connect(broker_address: str, topic: str, java: Path) -> None:
    connect_or_skip()
    output = run(CONNECT_EXAMPLE, "local[2]", broker_address, topic, env={"JAVA_HOME": str(java)})
    assert output.splitlines() == ["k1: tea", "k2: coffee", "k3: milk"]


def test_example_of_a_declarative_pipeline(broker_address: str, tmp_path: Path, java: Path) -> None:
    connect_or_skip()
    pytest.importorskip("yaml", reason="pyspark[pipelines] is not installed")
    shutil.copytree(PIPELINE_EXAMPLE, tmp_path / "pipeline")
    specification = tmp_path / "pipeline" / "spark-pipeline.yml"
    text = specification.read_text()
    specification.write_text(text.replace("file:///tmp/orders-pipeline", (tmp_path / "storage").as_uri()))
    command = Path(sys.executable).with_name("spark-pipelines")

    with Client(broker_address) as client, client.producer("g") as producer:
        producer.send(Message("Orders", b"tea", keys="k1"))
        producer.send(Message("Orders", b"milk"))
        environment = {"NAMESRV_ADDR": broker_address, "JAVA_HOME": str(java)}
        run_command(str(command), "run", "--spec", str(specification), env=environment, directory=tmp_path)
        with client.reader() as reader:
            offsets = reader.offsets("ShoutedOrders")
            messages = [each for queue, span in offsets.items() for each in reader.range(queue, *span)]
    assert sorted([message.body for message in messages]) == [b"MILK", b"TEA"]


def test_brokers_on_ipv6_addresses(real_cluster: StartCluster, real_name: str, topic: str) -> None:
    round_trip("local[2]", real_cluster(real_name, HOST).name_servers, topic)


def test_example_stores_each_message_once_in_a_table(
    broker_address: str, topic: str, tmp_path: Path, java: Path
) -> None:
    table, checkpoint = str(tmp_path / "table.sqlite"), tmp_path / "checkpoint"

    def run_example() -> list[str]:
        output = run(EXAMPLE, broker_address, topic, table, str(checkpoint), env={"JAVA_HOME": str(java)})
        return [line for line in output.splitlines() if line.startswith("batch ")]

    with Client(broker_address) as client, client.producer("g", linger=0.005) as producer:
        stamped = [Message(topic, b"%d" % n, properties={STAMP: f"q/0/0/{n % 50}"}) for n in range(100)]
        producer.send_all([*stamped, *[Message(topic, b"own") for _ in range(7)]])
        assert run_example() == ["batch 0: 57 new rows"]
        # Remove the commit, so that the batch is replayed.
        for name in ("commits/0", "commits/.0.crc"):
            (checkpoint / name).unlink()
        producer.send(Message(topic, b"late"))
        assert run_example() == ["batch 0: 0 new rows", "batch 1: 1 new rows"]
