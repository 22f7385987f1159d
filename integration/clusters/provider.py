"""Provides real clusters: from the environment, else Docker, else Maven.

- If ``ROCKETMQ_NAMESRV`` is set: the cluster at that address, unchanged. ``ROCKETMQ_VERSION`` names it.
- If a Docker engine responds: the official images, through testcontainers.
- If Java and Maven are installed: the official artifacts, as local processes.

``ROCKETMQ_CLUSTERS=containers`` or ``=maven`` allows only one of the last two. :data:`started` records the
origins.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from integration.clusters import containers, engine, local, maven, probe
from integration.clusters.cluster import Cluster, ClusterUnavailableError
from integration.clusters.layout import LOCALHOST

VERSIONS = engine.VERSIONS
"""The versions of RocketMQ that all tests on real brokers run on."""
OTHER_VERSIONS = (
    *("4.3.2", "4.4.0", "4.5.2", "4.6.1", "4.7.1", "4.8.0", "4.9.4"),
    *("5.0.0", "5.1.4", "5.2.0", "5.3.3", "5.4.0"),
)
"""Further versions for the behaviours, from Maven only, which lacks modules of the versions between."""

started: Counter[str] = Counter()
"""The number of clusters by version and origin, for a run's report: ``{"5.5.0 from maven": 2}``."""
fallbacks: Counter[str] = Counter()
"""The reasons for not using containers, and their counts."""


def external_name() -> str | None:
    """Return the name of the cluster at ``ROCKETMQ_NAMESRV``, or None if it is not set."""
    if not os.environ.get("ROCKETMQ_NAMESRV"):
        return None
    return os.environ.get("ROCKETMQ_VERSION") or "external"


def missing_requirement() -> str | None:
    """Return the missing requirement of clusters, with a remedy, or None if none is known to be missing."""
    if external_name() is not None:
        return None
    if allows("containers") and engine_answers():
        return None
    if not allows("maven"):
        return "ROCKETMQ_CLUSTERS=containers, and no Docker engine answers: `make containers` may set one up"
    if missing := maven.missing_program("java", "javac", "mvn"):
        return (
            f"ROCKETMQ_NAMESRV is not set, no Docker engine answers, and {missing} is not on the PATH; "
            "install a JDK (17 or newer) and Maven, or start Docker, or name a cluster in ROCKETMQ_NAMESRV"
        )
    return None


def allows(way: str) -> bool:
    """Return whether ROCKETMQ_CLUSTERS allows ``"containers"`` or ``"maven"``."""
    chosen = os.environ.get("ROCKETMQ_CLUSTERS") or way
    if chosen not in ("containers", "maven"):
        raise ClusterUnavailableError(f"ROCKETMQ_CLUSTERS={chosen}: it is containers, maven, or not set")
    return chosen == way


def engine_answers() -> bool:
    """Return whether a Docker engine responds, the private one included if ROCKETMQ_CLUSTERS is set."""
    if os.environ.get("ROCKETMQ_CLUSTERS"):
        engine.use()  # the private engine is used only on request
    return containers.engine_answers()


def server_addresses() -> list[str]:
    """Return the possible addresses of servers started here, for their certificates."""
    own = "127.0.0.1"
    if allows("containers") and engine_answers():
        return list(dict.fromkeys([own, containers.engine_address()]))
    return [own]


def external_cluster() -> Cluster:
    """Return the cluster at ``ROCKETMQ_NAMESRV`` (``host:port``, several joined with ``;``).

    Raises:
        ClusterUnavailableError: there is no response, or no broker is registered.
    """
    name_servers = os.environ["ROCKETMQ_NAMESRV"]
    first = name_servers.split(";")[0].strip()
    try:
        brokers = probe.brokers_known_by(first)
    except (OSError, ValueError) as error:
        raise ClusterUnavailableError(f"no name server at ROCKETMQ_NAMESRV ({first}): {error}") from error
    if not brokers:
        raise ClusterUnavailableError(f"the name server at ROCKETMQ_NAMESRV ({first}) knows no broker")
    name = external_name() or ""
    version = os.environ.get("ROCKETMQ_VERSION", "")
    return Cluster(name, version, name_servers, brokers, ExternalNodes(), "environment")


def start_cluster(
    version: str,
    *,
    brokers: int = 1,
    replicas: bool = False,
    settings: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    jvm: Sequence[str] = (),
    host: str = LOCALHOST,
    name_server_settings: Mapping[str, str] | None = None,
    versions: Mapping[str, str] | None = None,
) -> Cluster:
    """Start a cluster. Stop it with :meth:`Cluster.stop`, or use it as a context manager.

    Start it from the main thread, because Linux kills its processes when the thread that started them ends.

    Args:
        version: ``"4.9.7"`` or ``"5.5.0"``.
        brokers: the number of masters: ``broker-a``, ``broker-b`` and so on.
        replicas: whether each master has a replica: ``broker-a-1`` and so on.
        settings: broker settings, e.g. ``{"flushDiskType": "SYNC_FLUSH"}``.
        files: texts by path relative to the servers' home. ``{home}`` in a text is replaced by that home.
        jvm: JVM options of the servers, with ``{home}`` as in ``files``.
        host: the IP address, or host name, of this machine that the servers listen on and announce.
            Unsupported by containers.
        name_server_settings: settings of the name server. Unsupported by containers.
        versions: the versions of nodes that differ, by name. Unsupported by containers.

    Raises:
        ClusterUnavailableError: neither Docker nor Maven can provide it, or is allowed to. The text says why.
        ClusterStartError: it failed to start.
    """
    reasons = ["ROCKETMQ_NAMESRV is not set"]
    for way, start in (
        ("containers", _start_containers),
        ("maven", local.start_local_cluster),
    ):
        if not allows(way):
            reasons.append(f"ROCKETMQ_CLUSTERS={os.environ['ROCKETMQ_CLUSTERS']}")
            continue
        try:
            cluster = start(
                version,
                brokers=brokers,
                replicas=replicas,
                settings=settings,
                files=files,
                jvm=jvm,
                host=host,
                name_server_settings=name_server_settings,
                versions=versions,
            )
        except ClusterUnavailableError as error:
            reasons.append(str(error))
            continue
        started[f"{version} from {way}"] += 1
        if len(reasons) > 1:
            fallbacks[reasons[-1]] += 1
        return cluster
    raise ClusterUnavailableError(f"no RocketMQ {version}: {'; '.join(reasons)}")


def _start_containers(
    version: str,
    *,
    host: str,
    name_server_settings: Mapping[str, str] | None,
    versions: Mapping[str, str] | None,
    **options: Any,
) -> Cluster:
    if name_server_settings:
        raise ClusterUnavailableError("containers start name servers without settings")
    if versions:
        raise ClusterUnavailableError("a cluster of containers has one version")
    if host != LOCALHOST:
        raise ClusterUnavailableError(f"a cluster of containers cannot listen on {host}")
    if not engine_answers():
        raise ClusterUnavailableError("no Docker engine answers")
    return containers.start_container_cluster(version, **options)


class ExternalNodes:
    """The nodes of an externally managed cluster, which tests must not change."""

    def kill(self, broker: str, *, gently: bool = False) -> NoReturn:
        """Refuse."""
        self._refuse(broker)

    def freeze(self, broker: str) -> NoReturn:
        """Refuse."""
        self._refuse(broker)

    def resume(self, broker: str) -> NoReturn:
        """Refuse."""
        self._refuse(broker)

    def restart(self, broker: str) -> NoReturn:
        """Refuse."""
        self._refuse(broker)

    def upgrade(self, broker: str, version: str) -> NoReturn:
        """Refuse."""
        self._refuse(broker)

    def log(self, broker: str) -> str:
        """Return an empty string, because the log is inaccessible."""
        return ""

    def stored(self, broker: str, path: str) -> NoReturn:
        """Refuse, because the files are inaccessible."""
        raise ClusterUnavailableError(f"{broker}'s files are inaccessible: the cluster is externally managed")

    def cpu_seconds(self, broker: str) -> float | None:
        """Return None, because its processes are inaccessible."""
        return None

    def stop(self) -> None:
        """Do nothing. The cluster keeps running."""

    def _refuse(self, broker: str) -> NoReturn:
        raise ClusterUnavailableError(
            f"{broker} is not ours to stop: the cluster is that of ROCKETMQ_NAMESRV"
        )
