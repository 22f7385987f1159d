"""Clusters of containers, from the official images. They want a Docker engine that answers.

A broker tells its clients the address that it believes in. So the ports inside and outside of a container are
the same, chosen beforehand, and ``brokerIP1`` is the engine's host as seen from here. The brokers share the
name server's network: to them it is at 127.0.0.1, and its container publishes everybody's ports.
"""

from __future__ import annotations

import ipaddress
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from integration.clusters import probe
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.layout import (
    BROKER_OPTIONS,
    BROKER_SETTINGS,
    NAME_SERVER_HEAP,
    START_TIMEOUT,
    STOP_TIMEOUT,
    as_properties,
    broker_names,
    free_ports,
    identity_settings,
    with_home,
)

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_PING = "from testcontainers.core.docker_client import DockerClient; DockerClient(timeout=3).client.ping()"
_CONFIG = "/tmp/rocketmq.conf"  # in the container, where every user may write


@cache
def engine_answers() -> bool:
    """Say whether a Docker engine can be used; asked once a run, in a process of its own, and silently."""
    try:
        done = subprocess.run([sys.executable, "-c", _PING], capture_output=True, timeout=15)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def start_container_cluster(
    version: str,
    *,
    brokers: int = 1,
    settings: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    jvm: Sequence[str] = (),
) -> Cluster:
    """Start one name server and ``brokers`` masters of RocketMQ ``version``; return when all are registered.

    See :func:`integration.clusters.local.start_local_cluster` for the arguments. When this interpreter dies
    before it could stop them, testcontainers' reaper removes the containers.

    Raises:
        ClusterUnavailableError: the engine cannot run the image, e.g. because it cannot fetch it.
        ClusterStartError: a container does not serve in time.
    """
    with _quiet_imports():
        from docker.errors import DockerException  # type: ignore[import-untyped]  # it ships no types
    nodes = ContainerNodes(version, brokers, settings or {}, files or {}, jvm)
    try:
        nodes.start()
    except DockerException as error:
        nodes.stop()
        raise ClusterUnavailableError(f"Docker cannot run RocketMQ {version}: {error}") from error
    except BaseException:
        nodes.stop()
        raise
    return Cluster(version, version, nodes.name_server, dict(nodes.brokers), nodes, "docker")


class ContainerNodes:
    """The containers of one cluster."""

    def __init__(
        self,
        version: str,
        brokers: int,
        settings: Mapping[str, str],
        files: Mapping[str, str],
        jvm: Sequence[str],
    ) -> None:
        self._image = f"apache/rocketmq:{version}"
        self._settings = settings
        home = f"/home/rocketmq/rocketmq-{version}"
        self._files = {f"{home}/{path}": with_home(text, home) for path, text in files.items()}
        self._jvm = [with_home(option, home) for option in jvm]
        self._ports = free_ports(1 + brokers)
        self._containers: dict[str, DockerContainer] = {}
        self.name_server = ""
        self.brokers: dict[str, str] = {}

    def start(self) -> None:
        """Start everything; return when the name server lists every broker."""
        own_port, *broker_ports = self._ports
        name_server = self._container("namesrv", NAME_SERVER_HEAP, {"listenPort": str(own_port)})
        for port in self._ports:
            name_server.with_bind_ports(port, port)
        name_server.start()
        host = _as_ip(name_server.get_container_host_ip())
        self.name_server = f"{host}:{own_port}"
        self._wait("namesrv", lambda: probe.name_server_serves(self.name_server))
        addresses = [f"{host}:{port}" for port in broker_ports]
        self.brokers = dict(zip(broker_names(len(addresses)), addresses, strict=True))
        for broker, address in self.brokers.items():
            identity = identity_settings(broker, address, f"127.0.0.1:{own_port}")
            settings = {**BROKER_SETTINGS, **identity, **self._settings}
            container = self._container("broker", BROKER_OPTIONS, settings, key=broker)
            container.with_kwargs(network_mode=f"container:{name_server.get_container_id()}").start()
        for broker in self.brokers:
            self._wait_for_broker(broker)

    def kill(self, broker: str, *, gently: bool = False) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.kill`."""
        container = self._containers[broker].get_wrapped_container()
        if gently:
            # Process 1 is a shell that would not pass SIGTERM on: signal all others.
            container.exec_run(["sh", "-c", "kill -TERM -1"])
            container.stop(timeout=STOP_TIMEOUT)
        else:
            container.kill()
            container.wait()

    def freeze(self, broker: str) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.freeze`."""
        self._containers[broker].get_wrapped_container().pause()

    def resume(self, broker: str) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.resume`."""
        self._containers[broker].get_wrapped_container().unpause()

    def restart(self, broker: str) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.restart`."""
        self._containers[broker].get_wrapped_container().restart(timeout=0)
        self._wait_for_broker(broker)

    def log(self, broker: str) -> str:
        """See :meth:`integration.clusters.cluster.Nodes.log`."""
        return b"\n".join(self._containers[broker].get_logs()).decode(errors="replace")

    def cpu_seconds(self, broker: str) -> float:
        """See :meth:`integration.clusters.cluster.Nodes.cpu_seconds`."""
        statistics = self._containers[broker].get_wrapped_container().stats(stream=False)
        return int(statistics["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9

    def stop(self) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.stop`."""
        # The brokers live in the name server's network: it goes last.
        for container in reversed(self._containers.values()):
            container.stop()
        self._containers.clear()

    def _container(
        self, program: str, options: tuple[str, ...], config: Mapping[str, str], *, key: str = ""
    ) -> DockerContainer:
        with _quiet_imports():
            from testcontainers.core.container import DockerContainer
        container = DockerContainer(self._image, command=f"sh mq{program} -c {_CONFIG}")
        container.with_env("JAVA_OPT_EXT", " ".join([*options, *self._jvm]))
        container.with_copy_into_container(as_properties(config).encode(), _CONFIG)
        for path, text in self._files.items():
            container.with_copy_into_container(text.encode(), path)
        self._containers[key or program] = container
        return container

    def _wait_for_broker(self, broker: str) -> None:
        self._wait(broker, lambda: probe.is_registered(broker, self.brokers[broker], self.name_server))

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        if not probe.wait_until(ready, START_TIMEOUT):
            text = self.log(name)[-3000:]
            raise ClusterStartError(
                f"{name} ({self._image}) does not serve after {START_TIMEOUT:g} s:\n{text}"
            )


@contextmanager
def _quiet_imports() -> Iterator[None]:
    """Import without warnings: what testcontainers makes of its own dependencies must not fail our tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _as_ip(host: str) -> str:
    """Return ``host`` as an IPv4 address: brokers do not resolve the name that they are told to show."""
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        return socket.gethostbyname(host)
