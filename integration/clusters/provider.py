"""Where a real cluster comes from: the environment, else Docker, else Maven.

- ``ROCKETMQ_NAMESRV`` set: the cluster at that address, as it is. ``ROCKETMQ_VERSION`` names it.
- A Docker engine answers: the official images, by testcontainers.
- Java and Maven are there: the official artifacts, as processes of this machine.

``ROCKETMQ_CLUSTERS=containers`` or ``=maven`` allows one of the last two only; :data:`started` says which
it was.
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
"""The versions that everything is tested with."""

started: Counter[str] = Counter()
"""How many clusters came from where, for who reads a run's report: ``{"5.5.0 from maven": 2}``."""
fallbacks: Counter[str] = Counter()
"""Why they did not come from containers."""


def external_name() -> str | None:
    """Return what the cluster of ``ROCKETMQ_NAMESRV`` is called, or None when that is not set."""
    if not os.environ.get("ROCKETMQ_NAMESRV"):
        return None
    return os.environ.get("ROCKETMQ_VERSION") or "external"


def lacking() -> str | None:
    """Return what there can be no cluster without, and what to do; None if nothing is known to be lacking."""
    if external_name() is not None:
        return None
    if allows("containers") and _engine_answers():
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
    """Say whether clusters may come this way: ``"containers"`` or ``"maven"``."""
    chosen = os.environ.get("ROCKETMQ_CLUSTERS") or way
    if chosen not in ("containers", "maven"):
        raise ClusterUnavailableError(f"ROCKETMQ_CLUSTERS={chosen}: it is containers, maven, or not set")
    return chosen == way


def _engine_answers() -> bool:
    if os.environ.get("ROCKETMQ_CLUSTERS"):
        engine.use()  # one of our own is only for who asks for it
    return containers.engine_answers()


def server_addresses() -> list[str]:
    """Return the addresses that servers started here may have: their certificates name these."""
    own = "127.0.0.1"
    if allows("containers") and _engine_answers():
        return list(dict.fromkeys([own, containers.engine_address()]))
    return [own]


def external_cluster() -> Cluster:
    """Return the cluster at ``ROCKETMQ_NAMESRV`` (``host:port``, several joined with ``;``).

    Raises:
        ClusterUnavailableError: nobody answers there, or no broker is registered.
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
    return Cluster(name, version, name_servers, brokers, NotOurs(), "environment")


def start_cluster(
    version: str,
    *,
    brokers: int = 1,
    replicas: bool = False,
    settings: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    jvm: Sequence[str] = (),
    host: str = LOCALHOST,
) -> Cluster:
    """Start a cluster of our own; stop it with :meth:`Cluster.stop`, or use it as a context manager.

    Start it from the main thread: Linux ends its processes with the thread that started them.

    Args:
        version: ``"4.9.7"`` or ``"5.5.0"``.
        brokers: how many masters: ``broker-a``, ``broker-b`` and so on.
        replicas: whether each has one: ``broker-a-1`` and so on.
        settings: broker settings, e.g. ``{"flushDiskType": "SYNC_FLUSH"}``.
        files: texts by their paths under the servers' home, which ``{home}`` in them stands for.
        jvm: options of the servers' Java machines; ``{home}`` as in ``files``.
        host: the IP address of this machine that the servers listen on and announce. Containers cannot
            choose it.

    Raises:
        ClusterUnavailableError: neither Docker nor Maven can provide it, or may; the text says why.
        ClusterStartError: it should have started and did not.
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
            )
        except ClusterUnavailableError as error:
            reasons.append(str(error))
            continue
        started[f"{version} from {way}"] += 1
        if len(reasons) > 1:
            fallbacks[reasons[-1]] += 1
        return cluster
    raise ClusterUnavailableError(f"no RocketMQ {version}: {'; '.join(reasons)}")


def _start_containers(version: str, *, host: str, **options: Any) -> Cluster:
    if host != LOCALHOST:
        raise ClusterUnavailableError(f"a cluster of containers cannot listen on {host}")
    if not _engine_answers():
        raise ClusterUnavailableError("no Docker engine answers")
    return containers.start_container_cluster(version, **options)


class NotOurs:
    """The nodes of a cluster that somebody else runs: they stay as they are."""

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

    def log(self, broker: str) -> str:
        """Return nothing: its log is out of reach."""
        return ""

    def stored(self, broker: str, path: str) -> NoReturn:
        """Refuse: its files are out of reach."""
        raise ClusterUnavailableError(f"{broker}'s files are out of reach: the cluster is not ours")

    def cpu_seconds(self, broker: str) -> float | None:
        """Return None: its processes are out of reach."""
        return None

    def stop(self) -> None:
        """Leave it running."""

    def _refuse(self, broker: str) -> NoReturn:
        raise ClusterUnavailableError(
            f"{broker} is not ours to stop: the cluster is that of ROCKETMQ_NAMESRV"
        )
