"""Pytest fixtures for :mod:`rocketmq_py.testing`. Nothing is started until a test uses them.

``rocketmq_broker`` and ``rocketmq_cluster`` start once per session, in a thread of their own, and are empty
for each test. They support plain tests, and tests that run on trio or asyncio with any plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from rocketmq_py.testing import RealCluster, TestBroker, TestCluster

MARKER = "rocketmq_embedded"
FIXTURES = ("rocketmq_broker", "rocketmq_cluster", "rocketmq_broker_factory", "rocketmq_cluster_factory")
_Cluster = TypeVar("_Cluster")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--rocketmq-namesrv``."""
    parser.getgroup("rocketmq").addoption(
        "--rocketmq-namesrv",
        metavar="ADDRESSES",
        help="name servers of a real cluster (host:port;host:port) for rocketmq_broker and rocketmq_cluster",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker of tests that cannot run on a real cluster."""
    config.addinivalue_line("markers", f"{MARKER}: needs an embedded broker; skipped with --rocketmq-namesrv")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need an embedded broker if ``--rocketmq-namesrv`` names a real cluster.

    Fail tests with the ``autojump_clock`` of pytest-trio: all of their requests would time out at once.
    """
    names = getattr(item, "fixturenames", ())
    threaded = [name for name in FIXTURES if name in names]
    if threaded and "autojump_clock" in names:
        pytest.fail(
            f"autojump_clock does not wait for the thread of {threaded[0]}: run an EmbeddedBroker in the "
            "test, or use rocketmq_py.testing.simulate",
            pytrace=False,
        )
    if item.config.getoption("--rocketmq-namesrv") and item.get_closest_marker(MARKER):
        pytest.skip("needs an embedded broker, and --rocketmq-namesrv names a real cluster")


@pytest.fixture(scope="session")
def rocketmq_broker_settings() -> dict[str, Any]:
    """The arguments of ``rocketmq_broker``: those of ``run_broker``.

    To change them, define a session fixture with this name.
    """
    return {}


@pytest.fixture(scope="session")
def rocketmq_cluster_settings() -> dict[str, Any]:
    """The arguments of ``rocketmq_cluster``: those of ``run_cluster``, with two name servers by default.

    To change them, define a session fixture with this name.
    """
    return {}


@pytest.fixture(scope="session")
def _rocketmq_real(request: pytest.FixtureRequest) -> Iterator[RealCluster | None]:
    address = request.config.getoption("--rocketmq-namesrv")
    if not address:
        yield None
        return
    from rocketmq_py.testing import RealCluster

    cluster = RealCluster(address)
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def _rocketmq_session_broker(
    _rocketmq_real: RealCluster | None, rocketmq_broker_settings: dict[str, Any]
) -> Iterator[TestBroker | RealCluster]:
    from rocketmq_py.testing import run_broker

    with _real_or_embedded(_rocketmq_real, run_broker, rocketmq_broker_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def _rocketmq_session_cluster(
    _rocketmq_real: RealCluster | None, rocketmq_cluster_settings: dict[str, Any]
) -> Iterator[TestCluster | RealCluster]:
    from rocketmq_py.testing import run_cluster

    settings = {"name_servers": 2, **rocketmq_cluster_settings}
    with _real_or_embedded(_rocketmq_real, run_cluster, settings) as cluster:
        yield cluster


def _real_or_embedded(
    real: RealCluster | None, run: Callable[..., AbstractContextManager[_Cluster]], settings: dict[str, Any]
) -> AbstractContextManager[_Cluster | RealCluster]:
    """Return the real cluster if there is one, or else a context manager that runs an embedded one."""
    return run(**settings) if real is None else nullcontext(real)


@pytest.fixture
def rocketmq_broker(_rocketmq_session_broker: TestBroker | RealCluster) -> TestBroker | RealCluster:
    """An empty broker and name server. See :class:`rocketmq_py.testing.TestBroker`."""
    _rocketmq_session_broker.reset()
    return _rocketmq_session_broker


@pytest.fixture
def rocketmq_cluster(_rocketmq_session_cluster: TestCluster | RealCluster) -> TestCluster | RealCluster:
    """Two empty brokers and two name servers. See :class:`rocketmq_py.testing.TestCluster`."""
    _rocketmq_session_cluster.reset()
    return _rocketmq_session_cluster


@pytest.fixture
def rocketmq_broker_factory() -> Iterator[Callable[..., TestBroker]]:
    """A function that starts brokers like ``run_broker``. They are closed at the end of the test."""
    from rocketmq_py.testing import run_broker

    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(run_broker(**settings))


@pytest.fixture
def rocketmq_cluster_factory() -> Iterator[Callable[..., TestCluster]]:
    """A function that starts clusters like ``run_cluster``. They are closed at the end of the test."""
    from rocketmq_py.testing import run_cluster

    with ExitStack() as stack:
        yield lambda *counts, **settings: stack.enter_context(run_cluster(*counts, **settings))
