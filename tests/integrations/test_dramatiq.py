"""Dramatiq runs on the kombu transport through ``dramatiq-kombu-broker``."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("dramatiq_kombu_broker")

import dramatiq
from dramatiq_kombu_broker import ConnectionPooledKombuBroker

import rocketmq_py.integrations.kombu  # noqa: F401  # registers rocketmq://
from rocketmq_py.testing import run_broker

pytestmark = pytest.mark.sockets

PATIENCE = 120


@pytest.fixture
def broker() -> Iterator[ConnectionPooledKombuBroker]:
    with run_broker() as server:
        options = {"hostname": f"rocketmq://{server.name_server_address}", "heartbeat": 0}
        broker = ConnectionPooledKombuBroker(kombu_connection_options=options)
        try:
            yield broker
        finally:
            broker.close()


def test_actors_retries_and_delays(broker: ConnectionPooledKombuBroker) -> None:
    runs: list[int] = []
    is_done, is_late = threading.Event(), threading.Event()

    @dramatiq.actor(broker=broker, queue_name="jobs", max_retries=1, min_backoff=1, max_backoff=2)
    def work(number: int) -> None:
        runs.append(number)
        if runs.count(3) == 1 and number == 3:
            raise ValueError("try again")
        if len(runs) == 6:
            is_done.set()

    @dramatiq.actor(broker=broker, queue_name="jobs")
    def late() -> None:
        is_late.set()

    for number in range(5):
        work.send(number)
    late.send_with_options(delay=1)
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=2)
    worker.start()
    try:
        assert is_done.wait(PATIENCE)
        assert is_late.wait(PATIENCE)
    finally:
        worker.stop()
    assert sorted(runs) == [0, 1, 2, 3, 3, 4]
