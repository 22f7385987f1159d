"""Many messages through Spark and back, each exactly once, on two real brokers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.copied import create_topics, fill, read_copies, start_copying
from integration.spark_copying import AVAILABLE_NOW, BATCH, STREAM
from rocketmq_py import blocking

COUNT = int(os.environ.get("SPARK_COUNT", "60000"))
"""``make million`` sets 1,000,000, which takes ten minutes for each version."""
SOURCES = ("Orders", "Payments", "Parcels")
"""Each has two queues on each of two brokers: 12 queues in total."""
MAX_OFFSETS = {BATCH: COUNT, AVAILABLE_NOW: COUNT * 3 // 10, STREAM: COUNT // 5}


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with start_own_cluster(request.param, brokers=2) as cluster:
        create_topics(cluster, *SOURCES, *[f"Copies-{mode}" for mode in MAX_OFFSETS])
        fill(cluster, SOURCES, COUNT)
        _until_readable(cluster, COUNT)
        yield cluster


def _until_readable(cluster: Cluster, count: int) -> None:
    """Wait until all messages are in their queues. Brokers acknowledge them slightly earlier."""
    with blocking.Reader(cluster.name_servers) as reader:
        while True:
            if sum(end for _, end in reader.offsets(SOURCES).values()) >= count:
                return
            time.sleep(0.1)


@pytest.mark.parametrize("mode", MAX_OFFSETS)
def test_each_message_is_copied_once(cluster: Cluster, mode: str, tmp_path: Path) -> None:
    target = f"Copies-{mode}"
    driver = start_copying(cluster, mode, SOURCES, target, tmp_path, most=MAX_OFFSETS[mode])
    assert driver.wait() == 0
    copies = read_copies(cluster, target)
    assert copies.messages == COUNT
    assert copies.numbers.keys() == set(range(COUNT))
    assert len(copies.numbers_of_stamp) == COUNT
