"""Brokers and names for the tests of integrations, which also run on real clusters (``--clusters``)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from kombu import Connection

from rocketmq_py.testing import run_broker
from tests.blocking.conftest import unused_address
from tests.integrations.kombu_programs import connect

__all__ = ["unused_address"]

_counter = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cluster_name" in metafunc.fixturenames:
        names: str = metafunc.config.getoption("--clusters", default="embedded")
        metafunc.parametrize("cluster_name", names.split(","), scope="module")


@pytest.fixture(scope="module")
def address(cluster_name: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name server of a cluster."""
    if cluster_name != "embedded":
        yield request.getfixturevalue("real_cluster")(cluster_name).name_servers
    else:
        with run_broker() as broker:
            yield broker.name_server_address


@pytest.fixture
def connection(address: str) -> Iterator[Connection]:
    with connect(address) as connection:
        yield connection


@pytest.fixture
def other(address: str) -> Iterator[Connection]:
    """A connection as another process has it."""
    with connect(address) as connection:
        yield connection


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name for queues that no other test and no other run on the same cluster uses."""
    test = "".join(char if char.isalnum() else "-" for char in request.function.__name__)
    return f"{test.removeprefix('test-')[:50]}-{os.getpid()}-{next(_counter)}"
