"""Clusters of Java processes on this machine, from the official artifacts."""

from __future__ import annotations

import atexit
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from integration.clusters import archives, maven, probe
from integration.clusters.cluster import NAME_SERVER, Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.folders import OwnedFolder
from integration.clusters.layout import (
    ATTEMPTS,
    BROKER_OPTIONS,
    BROKER_SETTINGS,
    LOCALHOST,
    NAME_SERVER_OPTIONS,
    START_TIMEOUT,
    STOP_TIMEOUT,
    addresses_of,
    as_properties,
    identity_settings,
    nodes_at,
    starts,
    with_home,
)
from integration.clusters.ports import check_host, free_ports
from integration.clusters.processes import OPEN_MODULES, Process

_BIND_ERROR = "Address already in use"

_JVM = ("-XX:-UsePerfData", *OPEN_MODULES)
_IPV4_ONLY = "-Djava.net.preferIPv4Stack=true"
_QUICK = "-XX:TieredStopAtLevel=1"
_NAME_SERVER_JVM = (*NAME_SERVER_OPTIONS, "-XX:+UseSerialGC", _QUICK)


def start_local_cluster(
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
    """Start one name server and ``brokers`` masters of RocketMQ ``version``. Return when all are registered.

    Args:
        version: ``"4.9.7"`` or ``"5.5.0"``.
        brokers: the number of masters: ``broker-a``, ``broker-b`` and so on.
        replicas: whether each master has a replica: ``broker-a-1`` and so on.
        settings: broker settings that extend
            or override :data:`~integration.clusters.layout.BROKER_SETTINGS`.
        files: texts by path relative to the servers' home. ``{home}`` in a text is replaced by that home.
        jvm: JVM options of the servers, with ``{home}`` as in ``files``.
        host: the IP address of this machine that the servers listen on and announce.
        name_server_settings: settings of the name server.
        versions: the versions of nodes that differ from ``version``, by name. NAME_SERVER names the name
            server.

    Raises:
        ClusterUnavailableError: Java or the artifacts are missing, or ``host`` cannot be bound.
        ClusterStartError: a process ended early or did not serve in ``START_TIMEOUT`` seconds.
    """
    if missing := maven.missing_program("java"):
        raise ClusterUnavailableError(f"{missing} is not on the PATH")
    check_host(host)

    def start() -> Cluster:
        return _started(
            LocalNodes(
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
        )

    for _ in range(ATTEMPTS - 1):
        with suppress(_PortTakenError):
            return start()
    return start()


def _class_options(version: str) -> list[str]:
    """Return the JVM options for the class path, and for a broker's class archive.

    The archive also covers most of a name server.
    """
    classes = archives.class_path(maven.server_jars(version))

    def make(option: str) -> None:
        nodes = LocalNodes(version, class_options=[option, "-cp", classes], jvm=[_QUICK])
        with _started(nodes):
            nodes.kill("broker-a", gently=True)
            nodes.check_that_it_ended("broker-a")

    return [*archives.use(f"server-{version}", classes, make), "-cp", classes]


class _PortTakenError(ClusterStartError):
    """Another process took a port between the check and the broker's bind. Other ports may work."""


class LocalNodes:
    """The processes of one cluster, and the folder of their files.

    Args:
        class_options: the JVM options for the classes of all nodes, instead of those of each node's version.

    Attributes:
        version: the version of RocketMQ.
        folder: the folder.
        host: the IP address that the servers listen on.
        name_server: the name server's address.
        brokers: the masters and their replicas, by name.
    """

    def __init__(
        self,
        version: str,
        *,
        class_options: Sequence[str] | None = None,
        brokers: int = 1,
        replicas: bool = False,
        settings: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
        host: str = LOCALHOST,
        name_server_settings: Mapping[str, str] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version
        self._versions = dict(versions or {})
        self._class_options = {
            one: class_options or _class_options(one) for one in {version, *self._versions.values()}
        }
        self._settings = settings or {}
        self._name_server_settings = name_server_settings or {}
        self._owned = OwnedFolder()
        self.folder = self._owned.path
        home = str(self.folder)
        self._files = {path: with_home(text, home) for path, text in (files or {}).items()}
        self._jvm = [with_home(option, home) for option in jvm]
        ports = free_ports(1 + brokers * (2 if replicas else 1))
        self.host = host
        # An IPv6 host has no brackets, because brokers announce it without.
        self.name_server = f"{host}:{ports[0]}"
        addresses = [f"{host}:{port}" for port in ports[1:]]
        self.brokers = {node.name: node for node in nodes_at(addresses, replicas=replicas)}
        self._processes: dict[str, Process] = {}
        atexit.register(self.stop)

    def start(self) -> None:
        """Start all processes. Return when the name server lists every broker."""
        write_logback(self.folder)
        for path, text in self._files.items():
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self._start_name_server()
        for names in starts(self.brokers.values()):
            for broker in names:
                self._start_broker(broker)
            for broker in names:
                self._wait_for_broker(broker)

    def kill(self, broker: str, *, gently: bool = False) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.kill`."""
        process = self._processes[broker]
        if gently:
            process.terminate(STOP_TIMEOUT)
        else:
            process.kill()

    def freeze(self, broker: str) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.freeze`."""
        self._processes[broker].signal(signal.SIGSTOP)

    def resume(self, broker: str) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.resume`."""
        self._processes[broker].signal(signal.SIGCONT)

    def restart(self, broker: str) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.restart`."""
        self._processes[broker].kill()
        if broker == NAME_SERVER:
            self._start_name_server()
            return
        self._start_broker(broker)
        self._wait_for_broker(broker)

    def upgrade(self, broker: str, version: str) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.upgrade`."""
        self._class_options.setdefault(version, _class_options(version))
        self._processes[broker].terminate(STOP_TIMEOUT)
        self._versions[broker] = version
        self.restart(broker)

    def log(self, broker: str) -> str:
        """See :meth:`integration.clusters.cluster.Nodes.log`."""
        return self._processes[broker].log_tail()

    def stored(self, broker: str, path: str) -> str:
        """See :meth:`integration.clusters.cluster.Nodes.stored`."""
        return (self.folder / broker / path).read_text(encoding="utf-8")

    def cpu_seconds(self, broker: str) -> float | None:
        """See :meth:`integration.clusters.cluster.Nodes.cpu_seconds`."""
        return self._processes[broker].cpu_seconds()

    def stop(self) -> None:
        """See :meth:`integration.clusters.cluster.Nodes.stop`."""
        for process in self._processes.values():
            process.kill()
        self._owned.remove()
        atexit.unregister(self.stop)

    def check_that_it_ended(self, broker: str) -> None:
        """Raise ClusterStartError if ``broker`` had to be killed after SIGTERM."""
        if self._processes[broker].was_killed:
            raise ClusterStartError(f"{broker} of RocketMQ {self.version} did not end in {STOP_TIMEOUT} s")

    def _start_name_server(self) -> None:
        port = self.name_server.rpartition(":")[2]
        settings = {"listenPort": port, "bindAddress": self.host, **self._name_server_settings}
        config = self._write_config(NAME_SERVER, settings)
        self._run(NAME_SERVER, _NAME_SERVER_JVM, "namesrv.NamesrvStartup", config)
        self._wait(NAME_SERVER, lambda: probe.name_server_serves(self.name_server))

    def _start_broker(self, broker: str) -> None:
        settings = {
            **BROKER_SETTINGS,
            **identity_settings(self.brokers[broker], self.name_server),
            "bindAddress": self.host,
            "storePathRootDir": str(self.folder / broker),
            "storePathCommitLog": str(self.folder / broker / "commitlog"),
            **self._settings,
        }
        self._run(broker, BROKER_OPTIONS, "broker.BrokerStartup", self._write_config(broker, settings))

    def _wait_for_broker(self, broker: str) -> None:
        node = self.brokers[broker]
        self._wait(broker, lambda: probe.registers(node, self.name_server, self._settings))

    def _run(self, name: str, options: tuple[str, ...], main: str, config: Path) -> None:
        home = self.folder / f"{name}-home"
        home.mkdir(exist_ok=True)
        argv = [
            "java",
            *_JVM,
            *([] if ":" in self.host else [_IPV4_ONLY]),
            *options,
            *self._class_options[self._versions.get(name, self.version)],
            *self._jvm,
            f"-Duser.home={home}",
            f"-Drmq.logback.configurationFile={self.folder / 'conf' / 'rmq.logback.xml'}",
            f"org.apache.rocketmq.{main}",
            "-c",
            str(config),
        ]
        self._processes[name] = Process(argv, log=self.folder / f"{name}.log", folder=self.folder)

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        process = self._processes[name]
        served = probe.wait_until(lambda: not process.is_running or ready(), START_TIMEOUT)
        if served and process.is_running:
            return
        log = process.log_tail()
        state = f"does not serve after {START_TIMEOUT:g} s" if process.is_running else "has ended"
        error = _PortTakenError if process.has_printed(_BIND_ERROR) else ClusterStartError
        raise error(f"{name} of RocketMQ {self.version} {state}:\n{log}")

    def _write_config(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.folder / f"{name}.conf"
        path.write_text(as_properties(settings), encoding="utf-8")
        return path


def _started(nodes: LocalNodes) -> Cluster:
    try:
        nodes.start()
    except BaseException:
        nodes.stop()
        raise
    masters, replicas = (addresses_of(nodes.brokers.values(), broker_id) for broker_id in (0, 1))
    version = nodes.version
    return Cluster(
        version, version, nodes.name_server, masters, nodes, "maven", replicas, sees_clients_at=nodes.host
    )


def write_logback(folder: Path) -> None:
    """Write logging settings to ``conf`` in ``folder``: warnings, to standard output.

    4.9 reads them from its home, the proxy from the class path, and 5.x from a JVM option.
    """
    conf = folder / "conf"
    conf.mkdir()
    text = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
    names = ("logback_namesrv.xml", "logback_broker.xml", "logback_tools.xml", "rmq.logback.xml")
    for name in (*names, "rmq.proxy.logback.xml"):
        (conf / name).write_text(text, encoding="utf-8")
