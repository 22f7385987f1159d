"""The proxy of RocketMQ 5, for gRPC and remoting clients, as a local process in front of any cluster."""

from __future__ import annotations

import atexit
import json
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Self

from integration.clusters import maven, probe
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.folders import OwnedFolder
from integration.clusters.layout import CLUSTER_NAME, START_TIMEOUT
from integration.clusters.local import write_logback
from integration.clusters.ports import free_ports
from integration.clusters.processes import OPEN_MODULES, Process

VERSION = "5.5.0"
"""The proxy's version. It works with brokers from 5.0 on."""

_JVM = ("-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", *OPEN_MODULES, "-Xms512m", "-Xmx1g")
_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"
_STARTED = "rocketmq-proxy startup successfully"


class Proxy:
    """A proxy in cluster mode: a client of the brokers, and a server of gRPC and remoting clients.

    It does not compare the type of a message with that of its topic.

    As a context manager, it stops itself on exit. Like clusters, start it from the main thread.

    Args:
        cluster: the cluster that it connects to.
        settings: further settings of its file.

    Attributes:
        address: its address for gRPC clients, ``"host:port"``.
        remoting_address: its address for remoting clients, which is that of its name server and its brokers.
        folder: the folder of its files, until it is stopped.

    Raises:
        ClusterUnavailableError: Java or the artifacts are missing.
        ClusterStartError: it ended early or did not serve in ``START_TIMEOUT`` seconds.
    """

    def __init__(self, cluster: Cluster, settings: Mapping[str, object] = MappingProxyType({})) -> None:
        if missing := maven.missing_program("java"):
            raise ClusterUnavailableError(f"{missing} is not on the PATH")
        jars = maven.proxy_jars(VERSION)
        self._owned = OwnedFolder()
        self.folder = self._owned.path
        port, remoting_port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.remoting_address = f"127.0.0.1:{remoting_port}"
        config = self.folder / "proxy.json"
        config.write_text(json.dumps({**_settings(cluster, port, remoting_port), **settings}))
        write_logback(self.folder)
        home = f"-Duser.home={self.folder}"
        jars_and_settings = f"{self.folder / 'conf'}:{jars}/*"
        self._process = Process(
            ["java", *_JVM, home, "-cp", jars_and_settings, _MAIN, "-pc", str(config)],
            log=self.folder / "proxy.log",
            folder=self.folder,
        )
        atexit.register(self.stop)
        self._wait()

    def cpu_seconds(self) -> float:
        """Return its CPU time in seconds, or 0 if unknown."""
        return self._process.cpu_seconds() or 0.0

    def stop(self) -> None:
        """End it and remove its files. Idempotent."""
        self._process.kill()
        self._owned.remove()
        atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _wait(self) -> None:
        process = self._process
        served = probe.wait_until(
            lambda: not process.is_running or process.has_printed(_STARTED), START_TIMEOUT
        )
        if served and process.is_running:
            return
        log = process.log_tail()
        state = f"does not serve after {START_TIMEOUT:g} s" if process.is_running else "has ended"
        self.stop()
        raise ClusterStartError(f"the proxy of RocketMQ {VERSION} {state}:\n{log}")


def _settings(cluster: Cluster, port: int, remoting_port: int) -> dict[str, object]:
    return {
        "rocketMQClusterName": CLUSTER_NAME,
        "namesrvAddr": cluster.name_servers,
        "proxyMode": "cluster",
        "grpcServerPort": port,
        "remotingListenPort": remoting_port,
        "localServeAddr": "127.0.0.1",
        "remotingAccessAddr": "127.0.0.1",
        "enableTopicMessageTypeCheck": False,
        # By default brokers get to know the groups of transactions only every 20 s.
        "transactionHeartbeatPeriodSecond": 2,
    }
