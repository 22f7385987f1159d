"""What a test knows of a RocketMQ cluster, whoever runs it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

import attrs


class ClusterUnavailableError(Exception):
    """No such cluster can be had here; the text says why, and what would help."""


class ClusterStartError(Exception):
    """A cluster that should have started did not; the text has the end of its log."""


class Nodes(Protocol):
    """Whatever runs a cluster's brokers: processes, containers, or somebody else."""

    def kill(self, broker: str, *, gently: bool = False) -> None:
        """End a broker with SIGKILL, or with SIGTERM when ``gently``; return when it has gone."""

    def freeze(self, broker: str) -> None:
        """Stop a broker in its tracks: its connections stay open, and nothing is answered."""

    def resume(self, broker: str) -> None:
        """Let a frozen broker go on."""

    def restart(self, broker: str) -> None:
        """Start a broker again on the same port and store; return when it serves."""

    def log(self, broker: str) -> str:
        """Return the end of what a broker has printed."""

    def stored(self, broker: str, path: str) -> str:
        """Return the text of a file of a broker's store, whether it runs or not."""

    def cpu_seconds(self, broker: str) -> float | None:
        """Return the processor time that a broker has used; None where that cannot be known."""

    def stop(self) -> None:
        """End everything and remove its files; a second call does nothing."""


@attrs.frozen
class Cluster:
    """A running RocketMQ cluster.

    As a context manager it stops itself at the end.

    Attributes:
        name: what a test report calls it, e.g. ``"4.9.7"``.
        version: the brokers' version, e.g. ``"4.9.7"``; empty when it is not known.
        name_servers: ``"host:port"``, several joined with ``;``.
        brokers: the master's address of each broker name, e.g. ``{"broker-a": "127.0.0.1:10911"}``.
        nodes: ends, freezes and starts single brokers.
        origin: where it comes from: ``"environment"``, ``"docker"`` or ``"maven"``.
        replicas: the replica's address of each broker name that has one. Whoever ends or starts that of
            ``broker-a`` calls it ``broker-a-1``.
        sees_clients_at: the IP address that brokers see clients of this machine at.
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
        """End ``broker`` with SIGKILL, or with SIGTERM when ``gently``; return when it has gone."""
        self.nodes.kill(broker, gently=gently)

    def freeze(self, broker: str) -> None:
        """Stop ``broker`` in its tracks: its connections stay open, and nothing is answered."""
        self.nodes.freeze(broker)

    def resume(self, broker: str) -> None:
        """Let a frozen ``broker`` go on."""
        self.nodes.resume(broker)

    def restart(self, broker: str) -> None:
        """Start ``broker`` again on the same port and store, ending it first; return when it serves."""
        self.nodes.restart(broker)

    def log(self, broker: str) -> str:
        """Return the end of what ``broker`` has printed to its standard streams."""
        return self.nodes.log(broker)

    def stored(self, broker: str, path: str) -> str:
        """Return the text of a file of ``broker``'s store, whether it runs or not.

        Args:
            broker: whose.
            path: the file's, in the store, e.g. ``"config/topics.json"``.

        Raises:
            FileNotFoundError: there is none.
        """
        return self.nodes.stored(broker, path)

    def cpu_seconds(self, broker: str) -> float | None:
        """Return the processor time that ``broker`` has used, in seconds; None where that cannot be known."""
        return self.nodes.cpu_seconds(broker)

    def stop(self) -> None:
        """End every process and remove its files; a second call does nothing."""
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
