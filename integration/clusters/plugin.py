"""A pytest plugin that hands out real clusters: ``-p integration.clusters.plugin --clusters 4.9.7,5.5.0``.

Each cluster is started once a run, when the first test asks for it, and stopped at the end; each process of
pytest-xdist has its own. With ``--dist loadgroup`` the tests of one version are one process's, so that no two
keep a cluster of the same version. Where it cannot be had, the test is skipped with the reason; with
``ROCKETMQ_INTEGRATION=required`` it fails instead.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NoReturn, Protocol

import pytest

from integration.clusters import maven, provider
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.layout import LOCALHOST

EMBEDDED = "embedded"

SETTINGS: Mapping[str, str] = {
    # A retry should not take a test 10 s.
    "messageDelayLevel": "1s 1s 1s 1s 1s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s",
    # Nor a transaction check a minute.
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "2000",
    # 5.x writes down several ends together, and would ask about what has ended in between: it shall write
    # each at once. Besides, 5.5.0 spins from one such interval after the last end on: let that never be over.
    "transactionOpMsgMaxSize": "1",
    "transactionOpBatchInterval": str(24 * 3600 * 1000),
}
"""What the brokers of a test run are told beside the provider's own settings."""

QUICK = ("-XX:TieredStopAtLevel=1",)
"""What the Java of test brokers is told: most of them end before it would pay to compile them well."""

TIMER_SLACK = 2_000_000
"""Nanoseconds by which test brokers may wake late: idle ones look for work a thousand times a second."""

COUNTED = "counted"
"""What a test has counted, for who reads the summary: ``record_property(COUNTED, "3 repeats")``."""

_ORIGINS = "clusters"
_PR_SET_TIMERSLACK = 29


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--clusters``."""
    known = ", ".join((EMBEDDED, *provider.VERSIONS))
    parser.addoption(
        "--clusters",
        default=EMBEDDED,
        help=f"what the behaviours run on, joined with commas: {known} (default: {EMBEDDED}); "
        "with ROCKETMQ_NAMESRV set, that cluster takes the place of the real ones",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check ``--clusters``, and put the cluster of ``ROCKETMQ_NAMESRV`` in the place of the real ones.

    Nothing is run where real ones are required and cannot be had.
    """
    try:
        provider.allows("maven")
    except ClusterUnavailableError as error:
        raise pytest.UsageError(str(error)) from None
    names = [name.strip() for name in str(config.option.clusters).split(",") if name.strip()]
    external = provider.external_name()
    allowed = {EMBEDDED, *provider.VERSIONS, external}
    if unknown := [name for name in names if name not in allowed]:
        raise pytest.UsageError(f"--clusters: unknown {', '.join(unknown)}")
    if external is not None:
        names = [name if name == EMBEDDED else external for name in names]
    config.option.clusters = ",".join(dict.fromkeys(names))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, TIMER_SLACK)  # processes inherit it
    is_worker = hasattr(config, "workerinput")  # one of pytest-xdist's
    wants_real = any(name != EMBEDDED for name in names)
    if wants_real and _required() and not is_worker and (what := provider.lacking()):
        # Said once: else a thousand tests say it.
        raise pytest.UsageError(f"ROCKETMQ_INTEGRATION=required, and there can be no real brokers: {what}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``real_name`` on each real cluster of ``--clusters``; on all if it names none."""
    if "real_name" in metafunc.fixturenames:
        chosen = str(metafunc.config.option.clusters).split(",")
        external = provider.external_name()
        names = [name for name in chosen if name != EMBEDDED]
        names = names or ([external] if external else list(provider.VERSIONS))
        metafunc.parametrize("real_name", names, scope="session")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups when it is its turn
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make the tests of each version a group of pytest-xdist, and the others of each file."""
    for item in items:
        called = item.callspec.params.values() if hasattr(item, "callspec") else ()
        versions = [value for value in called if value in provider.VERSIONS]
        item.add_marker(pytest.mark.xdist_group(versions[0] if versions else item.path.stem))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell whoever started this process of pytest-xdist where its clusters came from."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_ORIGINS] = dict(provider.started), dict(provider.fallbacks)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the clusters of a process of pytest-xdist that has ended; one that crashed tells nothing."""
    started, fallbacks = getattr(node, "workeroutput", {}).get(_ORIGINS, ((), ()))
    provider.started.update(started)
    provider.fallbacks.update(fallbacks)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end where the clusters came from, and what tests have counted."""
    for text, count in provider.started.items():
        terminalreporter.write_line(f"CLUSTERS {text}: {count}")
    for text, count in provider.fallbacks.items():
        terminalreporter.write_line(f"CLUSTERS not from containers, {count} times: {text}")
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == COUNTED:
                terminalreporter.write_line(f"COUNTED {report.nodeid}: {text}")


class StartCluster(Protocol):
    """The fixture ``real_cluster``."""

    def __call__(self, name: str, host: str = LOCALHOST) -> Cluster:
        """Return the cluster of that name on an IP address of this machine, which is started once a run."""


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[StartCluster]:
    """Give real clusters by name, e.g. ``real_cluster("4.9.7").name_servers``."""
    started: dict[tuple[str, str], Cluster | Exception] = {}

    def start(name: str, host: str = LOCALHOST) -> Cluster:
        if (name, host) not in started:
            try:
                started[name, host] = _start(name, host)
            except (ClusterUnavailableError, ClusterStartError) as error:
                started[name, host] = error
        outcome = started[name, host]
        if isinstance(outcome, Exception):
            give_up(outcome)
        return outcome

    yield start
    with ExitStack() as stack:
        for outcome in started.values():
            if isinstance(outcome, Cluster):
                stack.callback(outcome.stop)


def start_own_cluster(version: str, **options: Any) -> Cluster:
    """Start a cluster for some tests alone; takes what :func:`provider.start_cluster` takes.

    For tests that kill, freeze or restart brokers, or want settings or several brokers. They are skipped when
    ROCKETMQ_NAMESRV says which cluster to use, and where none can be had.
    """
    if provider.external_name() is not None:
        pytest.skip("ROCKETMQ_NAMESRV is set, and this test wants a cluster of its own")
    try:
        return provider.start_cluster(version, **options | {"jvm": (*QUICK, *options.get("jvm", ()))})
    except (ClusterUnavailableError, ClusterStartError) as error:
        give_up(error)


@pytest.fixture
def own_cluster() -> Iterator[Callable[..., Cluster]]:
    """Start clusters for one test alone; see :func:`start_own_cluster`."""
    with ExitStack() as stack:
        yield lambda version, **options: stack.enter_context(start_own_cluster(version, **options))


@pytest.fixture
def java_and_maven() -> None:
    """Have what clusters on this machine need, for tests that start one by themselves."""
    if missing := maven.missing_program("java", "javac", "mvn"):
        give_up(ClusterUnavailableError(f"{missing} is not on the PATH"))


def _start(name: str, host: str) -> Cluster:
    if name == provider.external_name():
        if host != LOCALHOST:
            raise ClusterUnavailableError(f"ROCKETMQ_NAMESRV is set, and this test wants a cluster at {host}")
        return provider.external_cluster()
    return provider.start_cluster(name, settings=SETTINGS, jvm=QUICK, host=host)


def give_up(error: Exception) -> NoReturn:
    if isinstance(error, ClusterStartError) or _required():
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))


def _required() -> bool:
    return os.environ.get("ROCKETMQ_INTEGRATION") == "required"
