"""Very many messages through Spark and back, on two real brokers: each of them once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.copied import create_topics, fill, read_copies, start_copying
from integration.spark_copying import AVAILABLE_NOW, BATCH, MODES, STREAM
from rocketmq_py import blocking

COUNTS = {"4.9.7": 200_000, "5.5.0": 1_000_000}
"""4.9.7 did as well with a million; it takes ten minutes there."""
SOURCES = ("Orders", "Payments", "Parcels")
"""With four queues on each of two brokers: 24 queues."""
MOST = {BATCH: 1_000_000, AVAILABLE_NOW: 300_000, STREAM: 150_000}


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with start_own_cluster(request.param, brokers=2) as cluster:
        create_topics(cluster, *SOURCES, *[f"Copies-{mode}" for mode in MODES])
        fill(cluster, SOURCES, COUNTS[cluster.version])
        _until_readable(cluster, COUNTS[cluster.version])
        yield cluster


def _until_readable(cluster: Cluster, count: int) -> None:
    """Brokers acknowledge a message a moment before it is in its queue."""
    with blocking.Reader(cluster.name_servers) as reader:
        while True:
            queues = [offsets.values() for offsets in reader.offsets_of(SOURCES).values()]
            if sum(end for offsets in queues for _, end in offsets) >= count:
                return
            time.sleep(0.1)


@pytest.mark.parametrize("mode", MODES)
def test_each_message_comes_out_once(cluster: Cluster, mode: str, tmp_path: Path) -> None:
    target = f"Copies-{mode}"
    driver = start_copying(cluster, mode, SOURCES, target, tmp_path, most=MOST[mode])
    assert driver.wait() == 0
    copies, count = read_copies(cluster, target), COUNTS[cluster.version]
    assert copies.messages == count
    assert copies.numbers.keys() == set(range(count))
    assert len(copies.numbers_of_stamp) == count
