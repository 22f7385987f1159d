"""Fixtures shared with tests/behaviours, and fixtures for tests that start their own brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS
from integration.java.peer import CLIENT_OF_SERVER
from rocketmq_py import Client
from tests.behaviours.conftest import create_topic, unique

__all__ = ["unique"]


@pytest.fixture(scope="session")
def restart_thread() -> Iterator[ThreadPoolExecutor]:
    """A thread that restarts brokers during a test. Linux kills the brokers when the thread that started
    them ends.
    """
    with ThreadPoolExecutor(1) as restart_thread:
        yield restart_thread


@pytest.fixture(params=VERSIONS)
def real(request: pytest.FixtureRequest, real_cluster: Callable[[str], Cluster]) -> Cluster:
    return real_cluster(request.param)


@pytest.fixture
async def client(real: Cluster) -> AsyncIterator[Client]:
    async with Client(real.name_servers) as client:
        yield client


@pytest.fixture
async def topic(client: Client, unique: str) -> str:
    await create_topic(client, unique, queues=4)
    return unique


@pytest.fixture
def java(real: Cluster) -> str:
    return CLIENT_OF_SERVER[real.version]
