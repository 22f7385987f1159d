"""The interface of a RocketMQ cluster under test, independent of how it runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

import attrs


class ClusterUnavailableError(Exception):
    """This machine cannot provide the cluster. The text says why and what would help."""


class ClusterStartError(Exception):
    """A cluster failed to start. The text contains the end of its log."""


NAME_SERVER = "namesrv"
"""The name of the name server where the nodes of a cluster from Maven are named."""


class Nodes(Protocol):
    """Controls the brokers of a cluster: processes, containers, or an external cluster's."""

    def kill(self, broker: str, *, gently: bool = False) -> None:
        """End a broker with SIGKILL, or with SIGTERM if ``gently``. Return when it has ended."""

    def freeze(self, broker: str) -> None:
        """Suspend a broker. Its connections stay open, but it does not respond."""

    def resume(self, broker: str) -> None:
        """Resume a frozen broker."""

    def restart(self, broker: str) -> None:
        """Restart a broker on the same port and store. Return when it serves."""

    def upgrade(self, broker: str, version: str) -> None:
        """Stop a broker or name server, and start another version on its port and store."""

    def log(self, broker: str) -> str:
        """Return the end of a broker's output."""

    def stored(self, broker: str, path: str) -> str:
        """Return the text of a file in a broker's store. The broker need not run."""

    def cpu_seconds(self, broker: str) -> float | None:
        """Return the CPU time of a broker in seconds, or None if unknown."""

    def stop(self) -> None:
        """End everything and remove its files. Idempotent."""


@attrs.frozen
class Cluster:
    """A running RocketMQ cluster.

    As a context manager, it stops itself on exit.

    Attributes:
        name: its name in test reports, e.g. ``"4.9.7"``.
        version: the brokers' version, e.g. ``"4.9.7"``; empty if unknown.
        name_servers: ``"host:port"``, several joined with ``;``.
        brokers: the master's address of each broker name, e.g. ``{"broker-a": "127.0.0.1:10911"}``.
        nodes: kills, freezes and restarts single brokers.
        origin: the source of the cluster: ``"environment"``, ``"docker"`` or ``"maven"``.
        replicas: the replica's address of each broker name that has one. Methods take the name
            ``broker-a-1`` for the replica of ``broker-a``.
        sees_clients_at: the IP address under which brokers see clients of this machine.
    """

    name: str
    version: str
    name_servers: str
    brokers: Mapping[str, str]
    nodes: Nodes = attrs.field(repr=False, eq=False)
    origin: str
    replicas: Mapping[str, str] = attrs.field(factory=dict)
    sees_clients_at: str = "127.0.0.1"

    def kill(self, broker: str, *, gently: bool = False) -> None:
        """End ``broker`` with SIGKILL, or with SIGTERM if ``gently``. Return when it has ended."""
        self.nodes.kill(broker, gently=gently)

    def freeze(self, broker: str) -> None:
        """Suspend ``broker``. Its connections stay open, but it does not respond."""
        self.nodes.freeze(broker)

    def resume(self, broker: str) -> None:
        """Resume a frozen ``broker``."""
        self.nodes.resume(broker)

    def restart(self, broker: str) -> None:
        """Restart ``broker`` on the same port and store. Return when it serves."""
        self.nodes.restart(broker)

    def upgrade(self, broker: str, version: str) -> None:
        """Stop ``broker``, and start another version on its port and store. Return when it serves."""
        self.nodes.upgrade(broker, version)

    def log(self, broker: str) -> str:
        """Return the end of ``broker``'s standard output and error."""
        return self.nodes.log(broker)

    def stored(self, broker: str, path: str) -> str:
        """Return the text of a file in ``broker``'s store. The broker need not run.

        Args:
            broker: the broker's name.
            path: the file's path in the store, e.g. ``"config/topics.json"``.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        return self.nodes.stored(broker, path)

    def cpu_seconds(self, broker: str) -> float | None:
        """Return the CPU time of ``broker`` in seconds, or None if unknown."""
        return self.nodes.cpu_seconds(broker)

    def stop(self) -> None:
        """End every process and remove its files. Idempotent."""
        self.nodes.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
