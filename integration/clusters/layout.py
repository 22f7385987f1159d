"""Names, ports and settings shared by clusters of processes and of containers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

CLUSTER_NAME = "DefaultCluster"
LOCALHOST = "127.0.0.1"

START_TIMEOUT = 90.0
"""Seconds until a name server or broker must serve: ten times the time on an idle machine."""
STOP_TIMEOUT = 60
"""Seconds until a broker that received SIGTERM is killed. In a container, 5.5.0 needs 15."""
ATTEMPTS = 3
"""Attempts to start a cluster whose ports were taken by other processes."""

# By default each server generates a key and a certificate, which takes half of its start. Clusters with TLS
# override this.
_WITHOUT_TLS = "-Dtls.server.mode=disabled"
NAME_SERVER_OPTIONS = ("-Xms64m", "-Xmx128m", "-Xmn32m", _WITHOUT_TLS)
BROKER_OPTIONS = (
    _WITHOUT_TLS,
    "-Xms512m",
    "-Xmx1g",
    "-Xmn256m",
    "-XX:MaxDirectMemorySize=1g",
    # By default brokers reject messages when the disk is 90 % full.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97",
)

BROKER_SETTINGS: Mapping[str, str] = {
    "brokerClusterName": CLUSTER_NAME,
    "flushDiskType": "ASYNC_FLUSH",
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "diskMaxUsedSpaceRatio": "95",
    "deleteWhen": "04",
    "fileReservedTime": "48",
    # Files are mapped in full on creation. Small ones start fast and take little disk.
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(20_000 * 20),
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
    # 5.5.0 compares 38 MB of its timer wheel byte by byte at each flush, once a second, which takes half a
    # core. Without flushes, a wheel is rebuilt from its log after a restart.
    "timerFlushIntervalMs": str(3600 * 1000),
    # 5.x spins until this interval has first passed, for 10 s by default.
    "transactionMetricFlushInterval": "500",
}
"""Settings of every broker, unless a cluster overrides them."""


def broker_names(count: int) -> list[str]:
    """Return ``count`` broker names: ``broker-a``, ``broker-b`` and so on."""
    return [f"broker-{chr(ord('a') + index)}" for index in range(count)]


@attrs.frozen
class Node:
    """A master or a replica.

    Attributes:
        broker: the broker name, which a master shares with its replica.
        broker_id: 0 for a master, 1 for its replica.
        address: ``"host:port"``.
    """

    broker: str
    broker_id: int
    address: str

    @property
    def name(self) -> str:
        """The name of the process or container."""
        return replica_of(self.broker) if self.broker_id else self.broker


def replica_of(broker: str) -> str:
    """Return the name of a broker's replica: ``broker-a-1`` for ``broker-a``."""
    return f"{broker}-1"


def nodes_at(addresses: Sequence[str], *, replicas: bool) -> list[Node]:
    """Return a master per address. With replicas, the second half are the replicas of the first half."""
    masters = len(addresses) // 2 if replicas else len(addresses)
    names = broker_names(masters)
    return [
        Node(names[index % masters], index // masters, address) for index, address in enumerate(addresses)
    ]


def starts(nodes: Collection[Node]) -> list[list[str]]:
    """Return the names to start together: masters first, because replicas look them up when they start."""
    return [[node.name for node in nodes if node.broker_id == broker_id] for broker_id in (0, 1)]


def addresses_of(nodes: Iterable[Node], broker_id: int) -> dict[str, str]:
    """Return the addresses of the nodes with this id, by broker name."""
    return {node.broker: node.address for node in nodes if node.broker_id == broker_id}


def identity_settings(node: Node, name_server: str) -> dict[str, str]:
    """Return the settings for a broker's identity, and the address that it announces to clients."""
    host, _, port = node.address.rpartition(":")
    return {
        "brokerName": node.broker,
        "brokerId": str(node.broker_id),
        "brokerRole": "SLAVE" if node.broker_id else "ASYNC_MASTER",
        "listenPort": port,
        "haListenPort": str(int(port) + 1),
        "brokerIP1": host,
        "brokerIP2": host,
        "namesrvAddr": name_server,
    }


def as_properties(settings: Mapping[str, str]) -> str:
    """Return ``settings`` as a Java properties file."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def with_home(text: str, home: str) -> str:
    """Return ``text`` with ``{home}`` replaced by the servers' home."""
    return text.replace("{home}", home)
