"""Clusters of containers, from the official images. They need a running Docker engine.

A broker announces its own address to clients. Therefore the ports inside and outside a container are equal
and chosen beforehand, and ``brokerIP1`` is the engine's host as seen from this machine. The brokers share the
name server's network: they reach it at 127.0.0.1, and its container publishes all ports.
"""

from __future__ import annotations

import io
import ipaddress
import socket
import subprocess
import sys
import tarfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from integration.clusters import probe
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.layout import (
    ATTEMPTS,
    BROKER_OPTIONS,
    BROKER_SETTINGS,
    NAME_SERVER_OPTIONS,
    START_TIMEOUT,
    STOP_TIMEOUT,
    Node,
    addresses_of,
    as_properties,
    identity_settings,
    nodes_at,
    starts,
    with_home,
)
from integration.clusters.ports import free_ports

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_PING = "from testcontainers.core.docker_client import DockerClient; DockerClient(timeout=3).client.ping()"
_CONFIG = "/tmp/rocketmq.conf"  # in the container, where every user may write
_STORE = "/home/rocketmq/store"  # the default of brokers
_PORT_TAKEN = ("port is already allocated", "address already in use")
# Signals Java only. Ending the shells that wait for Java would end the container, which kills Java.
_TERMINATE_JAVA = (
    "for each in /proc/[0-9]*; do "
    '[ "$(cat $each/comm)" = java ] && kill -TERM ${each#/proc/}; done 2> /dev/null'
)


@cache
def engine_answers() -> bool:
    """Return whether a Docker engine responds. Checked once per run, silently, in a subprocess."""
    try:
        done = subprocess.run([sys.executable, "-c", _PING], capture_output=True, timeout=15)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def start_container_cluster(
    version: str,
    *,
    brokers: int = 1,
    replicas: bool = False,
    settings: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    jvm: Sequence[str] = (),
) -> Cluster:
    """Start one name server and ``brokers`` masters of RocketMQ ``version``. Return when all are registered.

    See :func:`integration.clusters.local.start_local_cluster` for the arguments. If this interpreter dies
    before stopping them, testcontainers' reaper removes the containers.

    Raises:
        ClusterUnavailableError: the engine cannot run the image, e.g. because pulling it failed.
        ClusterStartError: a container did not serve in time.
    """
    with _quiet_imports():
        from docker.errors import DockerException  # type: ignore[import-untyped]  # it ships no types
    for attempt in range(1, ATTEMPTS + 1):
        nodes = ContainerNodes(version, brokers, replicas, settings or {}, files or {}, jvm)
        try:
            nodes.start()
            break
        except DockerException as error:
            nodes.stop()
            if attempt == ATTEMPTS or not any(text in str(error).lower() for text in _PORT_TAKEN):
                raise ClusterUnavailableError(f"Docker cannot run RocketMQ {version}: {error}") from error
        except BaseException:
            nodes.stop()
            raise
    masters, slaves = (addresses_of(nodes.brokers.values(), broker_id) for broker_id in (0, 1))
    gateway = nodes.gateway()
    return Cluster(
        version, version, nodes.name_server, masters, nodes, "docker", slaves, sees_clients_at=gateway
    )


class ContainerNodes:
    """The containers of one cluster."""

    def __init__(
        self,
        version: str,
        brokers: int,
        replicas: bool,
        settings: Mapping[str, str],
        files: Mapping[str, str],
        jvm: Sequence[str],
    ) -> None:
        self._image = f"apache/rocketmq:{version}"
        self._settings = settings
        home = f"/home/rocketmq/rocketmq-{version}"
        self._files = {f"{home}/{path}": with_home(text, home) for path, text in files.items()}
        self._jvm = [with_home(option, home) for option in jvm]
        self._replicas = replicas
        self._ports = free_ports(1 + brokers * (2 if replicas else 1))
        self._containers: dict[str, DockerContainer] = {}
        self.name_server = ""
        self.brokers: dict[str, Node] = {}

    def start(self) -> None:
        """Start all containers. Return when the name server lists every broker."""
        own_port, *broker_ports = self._ports
        name_server = self._container("namesrv", NAME_SERVER_OPTIONS, {"listenPort": str(own_port)})
        with _quiet_imports():
            publish = _publishing(name_server)
        for port in self._ports:
            # Replicas also connect to their masters' VIP channel port and HA port.
            for each in (port - 2, port, port + 1) if self._replicas and port != own_port else (port,):
                name_server.ports[str(each)] = publish(each)
        name_server.start()
        host = _as_ip(name_server.get_container_host_ip())
        self.name_server = f"{host}:{own_port}"
        self._wait("namesrv", lambda: probe.name_server_serves(self.name_server))
        addresses = [f"{host}:{port}" for port in broker_ports]
        self.brokers = {node.name: node for node in nodes_at(addresses, replicas=self._replicas)}
        for names in starts(self.brokers.values()):
            for broker in names:
                identity = identity_settings(self.brokers[broker], f"127.0.0.1:{own_port}")
                settings = {**BROKER_SETTINGS, **identity, **self._settings}
                container = self._container("broker", BROKER_OPTIONS, settings, key=broker)
                container.with_kwargs(network_mode=f"container:{name_server.get_container_id()}").start()
            for broker in names:
                self._wait_for_broker(broker)

    def gateway(self) -> str:
        """Return the address under which containers see the outside."""
        return gateway_of(self._containers["namesrv"])

    def kill(self, broker: str, *, gently: bool = False) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.kill`."""
        container = self._containers[broker].get_wrapped_container()
        if gently:
            container.exec_run(["sh", "-c", _TERMINATE_JAVA])
            self._wait_for_end(container)
        else:
            container.kill()
            container.wait()

    def freeze(self, broker: str) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.freeze`."""
        with _quiet_imports():
            from docker.errors import APIError
        container = self._containers[broker].get_wrapped_container()
        for _ in range(ATTEMPTS - 1):
            with suppress(APIError):  # "unable to freeze" on a busy machine
                container.pause()
                return
            time.sleep(0.5)
        container.pause()

    def resume(self, broker: str) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.resume`."""
        self._containers[broker].get_wrapped_container().unpause()

    def restart(self, broker: str) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.restart`."""
        self._containers[broker].get_wrapped_container().restart(timeout=0)
        self._wait_for_broker(broker)

    def upgrade(self, broker: str, version: str) -> NoReturn:
        """Refuse, because the image of a container has one version."""
        raise ClusterUnavailableError(f"{broker} is a container, which cannot become RocketMQ {version}")

    def log(self, broker: str) -> str:
        """See :meth:`integration.clusters.cluster.Nodes.log`."""
        return b"\n".join(self._containers[broker].get_logs()).decode(errors="replace")

    def stored(self, broker: str, path: str) -> str:
        """See :meth:`integration.clusters.cluster.Nodes.stored`."""
        with _quiet_imports():
            from docker.errors import NotFound
        try:
            chunks, _ = self._containers[broker].get_wrapped_container().get_archive(f"{_STORE}/{path}")
        except NotFound as error:
            raise FileNotFoundError(f"{broker} has no {path}") from error
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            file = archive.extractfile(archive.getmembers()[0])
            assert file is not None
            return file.read().decode()

    def cpu_seconds(self, broker: str) -> float:
        """See :meth:`integration.clusters.cluster.Nodes.cpu_seconds`."""
        statistics = self._containers[broker].get_wrapped_container().stats(stream=False)
        return int(statistics["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9

    def stop(self) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.stop`."""
        # The brokers use the name server's network, so it stops last.
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

    def _wait_for_end(self, container: Any) -> None:
        with _quiet_imports():
            from requests.exceptions import ConnectionError as NoAnswerError
            from requests.exceptions import Timeout
        try:
            container.wait(timeout=STOP_TIMEOUT)
        except (Timeout, NoAnswerError):
            container.kill()
            container.wait()

    def _wait_for_broker(self, broker: str) -> None:
        node = self.brokers[broker]
        self._wait(broker, lambda: probe.registers(node, self.name_server, self._settings))

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        if not probe.wait_until(ready, START_TIMEOUT):
            node = self.brokers.get(name)
            seen = f" ({probe.seen(node, self.name_server)})" if node else ""
            raise ClusterStartError(
                f"{name} ({self._image}) does not serve after {START_TIMEOUT:g} s{seen}:\n"
                f"{self.log(name)[-3000:]}"
            )


@contextmanager
def _quiet_imports() -> Iterator[None]:
    """Import without warnings, which testcontainers' use of its dependencies would raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _publishing(container: DockerContainer) -> Callable[[int], Any]:
    """Return a function that maps a port to its binding: loopback only if the engine runs on this machine."""
    client = container.get_docker_client()
    is_here = (
        client.get_connection_mode().name == "docker_host"
        and ipaddress.ip_address(_as_ip(client.host())).is_loopback
    )
    return lambda port: ("127.0.0.1", port) if is_here else port


def gateway_of(container: DockerContainer) -> str:
    """Return the address under which a running container sees the outside."""
    return _in_networks(container, "Gateway")


def address_of(container: DockerContainer) -> str:
    """Return the address of a running container in the engine's network."""
    return _in_networks(container, "IPAddress")


def _in_networks(container: DockerContainer, field: str) -> str:
    running = container.get_wrapped_container()
    running.reload()
    return next(str(network[field]) for network in running.attrs["NetworkSettings"]["Networks"].values())


def engine_address() -> str:
    """Return the address of ports that the engine publishes."""
    with _quiet_imports():
        from testcontainers.core.docker_client import DockerClient
    return _as_ip(DockerClient().host())


def _as_ip(host: str) -> str:
    """Return ``host`` as an IPv4 address, because brokers do not resolve the address they announce."""
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        return socket.gethostbyname(host)
