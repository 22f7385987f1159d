"""Where a real cluster comes from: the environment, else Docker, else Maven.

- ``ROCKETMQ_NAMESRV`` set: the cluster at that address, as it is. ``ROCKETMQ_VERSION`` names it.
- A Docker engine answers: the official images, by testcontainers.
- Java and Maven are there: the official artifacts, as processes of this machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

from integration.clusters import containers, local, maven, probe
from integration.clusters.cluster import Cluster, ClusterUnavailableError

VERSIONS = ("4.9.7", "5.5.0")
"""The versions that everything is tested with."""


def external_name() -> str | None:
    """Return what the cluster of ``ROCKETMQ_NAMESRV`` is called, or None when that is not set."""
    if not os.environ.get("ROCKETMQ_NAMESRV"):
        return None
    return os.environ.get("ROCKETMQ_VERSION") or "external"


def lacking() -> str | None:
    """Return what there can be no cluster without, and what to do; None if nothing is known to be lacking."""
    if external_name() is not None or containers.engine_answers():
        return None
    if missing := maven.missing_program("java", "javac", "mvn"):
        return (
            f"ROCKETMQ_NAMESRV is not set, no Docker engine answers, and {missing} is not on the PATH; "
            "install a JDK (17 or newer) and Maven, or start Docker, or name a cluster in ROCKETMQ_NAMESRV"
        )
    return None


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

    Raises:
        ClusterUnavailableError: neither Docker nor Maven can provide it; the text says why.
        ClusterStartError: it should have started and did not.
    """
    reason = "no Docker engine answers"
    if containers.engine_answers():
        try:
            return containers.start_container_cluster(
                version, brokers=brokers, replicas=replicas, settings=settings, files=files, jvm=jvm
            )
        except ClusterUnavailableError as error:
            reason = str(error)
    try:
        return local.start_local_cluster(
            version, brokers=brokers, replicas=replicas, settings=settings, files=files, jvm=jvm
        )
    except ClusterUnavailableError as error:
        raise ClusterUnavailableError(
            f"no RocketMQ {version}: ROCKETMQ_NAMESRV is not set; {reason}; {error}"
        ) from error


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

    def cpu_seconds(self, broker: str) -> None:
        """Return nothing: its processes are out of reach."""

    def stop(self) -> None:
        """Leave it running."""

    def _refuse(self, broker: str) -> NoReturn:
        raise ClusterUnavailableError(
            f"{broker} is not ours to stop: the cluster is that of ROCKETMQ_NAMESRV"
        )
