"""The first job of the connector's page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rocketmq_py.spark
from rocketmq_py import Message
from rocketmq_py.blocking import Client

README = Path(rocketmq_py.spark.__file__).parent / "README.md"
_BLOCKS = re.findall(
    r"^```(?:python)?\n(.*?)^```", README.read_text().split("## A first job")[1], re.DOTALL | re.MULTILINE
)
COMMANDS, JOB, TABLE, COUNTS = _BLOCKS[:4]


def read_bodies(client: Client, topic: str, count: int) -> list[str]:
    """Wait for ``count`` messages of a topic. Return their bodies."""
    bodies: list[str] = []
    with client.lite_pull_consumer(topic, consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        while len(bodies) < count:
            bodies += [message.body.decode() for message in consumer.poll()]
    return bodies


def test_first_job_prints_and_writes_the_output_shown(
    spark: SparkSession,
    broker_address: str,
    new_topic: Callable[[], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    orders, counts = new_topic(), new_topic()
    job = JOB.replace("127.0.0.1:9876", broker_address)
    job = job.replace('"Orders"', repr(orders)).replace('"OrderCounts"', repr(counts))
    with Client(broker_address) as client:
        producer = client.producer("shop")
        for tag, body in re.findall(r'--tags (\w+) "(.+)"', COMMANDS):
            producer.send(Message(orders, body.encode(), tags=tag))

        read_bodies(client, orders, 3)  # brokers index a message a moment after they acknowledge it
        exec(compile(job, str(README), "exec"), {})

        assert capsys.readouterr().out.strip() == TABLE.strip()
        assert sorted(read_bodies(client, counts, 2)) == COUNTS.splitlines()
