"""A pytest plugin that provides real clusters: ``-p integration.clusters.plugin --clusters 4.9.7,5.5.0``.

Each cluster starts once per run, when a test first requests it, and stops at the end. Each pytest-xdist
worker has its own clusters. With ``--dist loadgroup``, one worker runs all tests of a version, so that no two
workers run clusters of the same version. If a cluster is unavailable, the test is skipped with the reason, or
fails if ``ROCKETMQ_INTEGRATION=required`` is set.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NoReturn, Protocol

import pytest
import trio

from integration.clusters import maven, provider
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.layout import LOCALHOST, START_TIMEOUT
from integration.clusters.proxy import Proxy
from rocketmq_py import Message, Producer

EMBEDDED = "embedded"

SETTINGS: Mapping[str, str] = {
    # By default a retry takes 10 s.
    "messageDelayLevel": "1s 1s 1s 1s 1s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s",
    # By default a transaction check takes a minute.
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "2000",
    # 5.x batches the records of ended transactions and would check back on those not yet written, so write
    # each immediately. 5.5.0 also spins once this interval has passed since the last end, so make it long.
    "transactionOpMsgMaxSize": "1",
    "transactionOpBatchInterval": str(24 * 3600 * 1000),
    # Needed for lite topics (5.5).
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
"""Settings of the brokers of a test run, in addition to the provider's."""

QUICK = ("-XX:TieredStopAtLevel=1",)
"""JVM options of test brokers. Most of them end before full compilation pays off."""

TIMER_SLACK = 2_000_000
"""Nanoseconds by which test brokers may wake up late. Idle ones poll a thousand times a second."""

COUNTED = "counted"
"""Property that a test reports in the summary: ``record_property(COUNTED, "3 repeats")``."""

THROUGH_PROXY = "-proxy"
"""Suffix of the name of a cluster that a test reaches through a proxy: ``5.5.0-proxy``."""

_ORIGINS = "clusters"
_PR_SET_TIMERSLACK = 29


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--clusters``."""
    known = ", ".join((EMBEDDED, *provider.VERSIONS, *provider.OTHER_VERSIONS))
    parser.addoption(
        "--clusters",
        default=EMBEDDED,
        help=f"comma-separated clusters to run behaviour tests on: {known} (default: {EMBEDDED}). "
        "If ROCKETMQ_NAMESRV is set, that cluster replaces the real ones",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check ``--clusters``, and replace real clusters by that of ``ROCKETMQ_NAMESRV`` if it is set.

    Raises pytest.UsageError if real clusters are required but unavailable.
    """
    try:
        provider.allows("maven")
    except ClusterUnavailableError as error:
        raise pytest.UsageError(str(error)) from None
    names = [name.strip() for name in str(config.option.clusters).split(",") if name.strip()]
    external = provider.external_name()
    allowed = {EMBEDDED, *provider.VERSIONS, *provider.OTHER_VERSIONS, external}
    if unknown := [name for name in names if name not in allowed]:
        raise pytest.UsageError(f"--clusters: unknown {', '.join(unknown)}")
    if external is not None:
        names = [name if name == EMBEDDED else external for name in names]
    config.option.clusters = ",".join(dict.fromkeys(names))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, TIMER_SLACK)  # processes inherit it
    is_worker = hasattr(config, "workerinput")  # a pytest-xdist worker
    wants_real = any(name != EMBEDDED for name in names)
    if wants_real and _required() and not is_worker and (missing := provider.missing_requirement()):
        # Reported once here instead of by every test.
        raise pytest.UsageError(f"ROCKETMQ_INTEGRATION=required, but real brokers are unavailable: {missing}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that take ``real_name`` on each real cluster of ``--clusters``, by default on all."""
    if "real_name" in metafunc.fixturenames:
        chosen = str(metafunc.config.option.clusters).split(",")
        external = provider.external_name()
        names = [name for name in chosen if name != EMBEDDED]
        names = names or ([external] if external else list(provider.VERSIONS))
        metafunc.parametrize("real_name", names, scope="session")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests for pytest-xdist: by version, or by file if they have no version."""
    for item in items:
        called = item.callspec.params.values() if hasattr(item, "callspec") else ()
        names = [value.removesuffix(THROUGH_PROXY) for value in called if isinstance(value, str)]
        versions = [name for name in names if name in (*provider.VERSIONS, *provider.OTHER_VERSIONS)]
        item.add_marker(pytest.mark.xdist_group(versions[0] if versions else item.path.stem))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report the origins of this worker's clusters to the pytest-xdist controller."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_ORIGINS] = dict(provider.started), dict(provider.fallbacks)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the origins of an ended worker's clusters. A crashed worker reports none."""
    started, fallbacks = getattr(node, "workeroutput", {}).get(_ORIGINS, ((), ()))
    provider.started.update(started)
    provider.fallbacks.update(fallbacks)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the origins of the clusters and the counts of tests."""
    for text, count in provider.started.items():
        terminalreporter.write_line(f"CLUSTERS {text}: {count}")
    for text, count in provider.fallbacks.items():
        terminalreporter.write_line(f"CLUSTERS not from containers, {count} times: {text}")
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == COUNTED:
                terminalreporter.write_line(f"COUNTED {report.nodeid}: {text}")


class StartCluster(Protocol):
    """The type of the fixture ``real_cluster``."""

    def __call__(self, name: str, host: str = LOCALHOST) -> Cluster:
        """Return the named cluster on an IP address of this machine. It starts once per run."""


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[StartCluster]:
    """Provide real clusters by name, e.g. ``real_cluster("4.9.7").name_servers``."""
    started: dict[tuple[str, str], Cluster | Exception] = {}

    def start(name: str, host: str = LOCALHOST) -> Cluster:
        if (name, host) not in started:
            try:
                started[name, host] = _start(name, host)
            except (ClusterUnavailableError, ClusterStartError) as error:
                started[name, host] = error
        outcome = started[name, host]
        if isinstance(outcome, Exception):
            skip_or_fail(outcome)
        return outcome

    yield start
    with ExitStack() as stack:
        for outcome in started.values():
            if isinstance(outcome, Cluster):
                stack.callback(outcome.stop)


@pytest.fixture(scope="session")
def real_proxy(real_cluster: StartCluster) -> Iterator[Callable[[str], Proxy]]:
    """Provide proxies in front of real clusters by the names of these. Each proxy starts once per run."""
    started: dict[str, Proxy] = {}

    def start(name: str) -> Proxy:
        cluster = real_cluster(name)
        if name not in started:
            try:
                started[name] = Proxy(cluster)
            except (ClusterUnavailableError, ClusterStartError) as error:
                skip_or_fail(error)
            trio.run(_send_first_message, started[name].remoting_address)
        return started[name]

    yield start
    for proxy in started.values():
        proxy.stop()


async def _send_first_message(address: str) -> None:
    """Send a message, because the first one takes seconds on a busy machine."""
    async with Producer(address, send_timeout=START_TIMEOUT) as producer:
        await producer.send(Message("test_first_message", b"first"))


def start_own_cluster(version: str, **options: Any) -> Cluster:
    """Start a separate cluster, with the options of :func:`provider.start_cluster`.

    For tests that kill, freeze or restart brokers, or need settings or several brokers. Skips the test if
    ROCKETMQ_NAMESRV is set or no cluster is available.
    """
    if provider.external_name() is not None:
        pytest.skip("ROCKETMQ_NAMESRV is set, but this test needs a separate cluster")
    try:
        return provider.start_cluster(version, **options | {"jvm": (*QUICK, *options.get("jvm", ()))})
    except (ClusterUnavailableError, ClusterStartError) as error:
        skip_or_fail(error)


@pytest.fixture
def own_cluster() -> Iterator[Callable[..., Cluster]]:
    """Start clusters for one test. See :func:`start_own_cluster`."""
    with ExitStack() as stack:
        yield lambda version, **options: stack.enter_context(start_own_cluster(version, **options))


@pytest.fixture
def java_and_maven() -> None:
    """Skip or fail the test if Java or Maven is missing."""
    if missing := maven.missing_program("java", "javac", "mvn"):
        skip_or_fail(ClusterUnavailableError(f"{missing} is not on the PATH"))


def _start(name: str, host: str) -> Cluster:
    if name == provider.external_name():
        if host != LOCALHOST:
            raise ClusterUnavailableError(f"ROCKETMQ_NAMESRV is set, but this test needs a cluster at {host}")
        return provider.external_cluster()
    return provider.start_cluster(name, settings=SETTINGS, jvm=QUICK, host=host)


def skip_or_fail(error: Exception) -> NoReturn:
    if isinstance(error, ClusterStartError) or _required():
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))


def _required() -> bool:
    return os.environ.get("ROCKETMQ_INTEGRATION") == "required"
