"""The embedded broker in a separate process, with the interface of a real cluster."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from integration.clusters import probe
from integration.clusters.cluster import Cluster, ClusterStartError
from integration.clusters.folders import OwnedFolder
from integration.clusters.layout import LOCALHOST, START_TIMEOUT
from integration.clusters.ports import check_host
from integration.clusters.processes import Process
from integration.clusters.provider import ExternalNodes


@contextmanager
def embedded_cluster(host: str = LOCALHOST) -> Iterator[Cluster]:
    """Run ``rocketmq-py server`` on free ports.

    Args:
        host: the IP address of this machine to listen on.

    Raises:
        ClusterUnavailableError: ``host`` cannot be bound.
        ClusterStartError: it does not serve. The text contains the end of its log.
    """
    check_host(host)
    folder = OwnedFolder()
    ports = ["--namesrv-port", "0", "--port", "0"]
    command = [sys.executable, "-m", "rocketmq_py", "server", "--host", host, *ports]
    process = Process(command, log=folder.path / "server.log", folder=folder.path)
    try:
        probe.wait_until(lambda: process.has_printed("\n") or not process.is_running, START_TIMEOUT)
        ready = re.search(r"name server (\S+), broker (\S+)", process.log_tail())
        if ready is None:
            raise ClusterStartError(f"the embedded broker does not serve:\n{process.log_tail()}")
        address, broker = ready.groups()
        yield Cluster(
            "embedded",
            "",
            address,
            {"embedded": broker},
            _OneProcess(process),
            "embedded",
            sees_clients_at=host,
        )
    finally:
        process.kill()
        folder.remove()


@attrs.frozen
class _OneProcess(ExternalNodes):
    process: Process

    def cpu_seconds(self, broker: str) -> float | None:
        return self.process.cpu_seconds()
