"""What a cluster looks like, whether processes or containers make it: names, ports, settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

CLUSTER_NAME = "DefaultCluster"
LOCALHOST = "127.0.0.1"

START_TIMEOUT = 90.0
"""Seconds until a name server or broker must serve: ten times what an idle machine needs."""
STOP_TIMEOUT = 60
"""Seconds that a broker asked to end gently may take before it is killed: in a container 5.5.0 needs 15."""
ATTEMPTS = 3
"""How often a cluster is started whose ports others take."""

# Else each makes a key and a certificate at each start, for clients that might want TLS: half of what a start
# costs. Clusters with TLS say so.
_WITHOUT_TLS = "-Dtls.server.mode=disabled"
NAME_SERVER_OPTIONS = ("-Xms64m", "-Xmx128m", "-Xmn32m", _WITHOUT_TLS)
BROKER_OPTIONS = (
    _WITHOUT_TLS,
    "-Xms512m",
    "-Xmx1g",
    "-Xmn256m",
    "-XX:MaxDirectMemorySize=1g",
    # A nearly full disk is the machine's matter: brokers would refuse messages from 90 % on.
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
    # Files are mapped whole when they are made: small ones start fast and cost little disk.
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(20_000 * 20),
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
    # 5.5.0 compares 38 MB of its timer wheel byte by byte at each flush, once a second: half a processor.
    # Wheels are made anew from their log after a start.
    "timerFlushIntervalMs": str(3600 * 1000),
    # It spins until this has passed for the first time: 10 s of a processor after each start.
    "transactionMetricFlushInterval": "500",
}
"""What every broker is told, unless the settings of one cluster differ."""


def broker_names(count: int) -> list[str]:
    """Return ``count`` broker names: ``broker-a``, ``broker-b`` and so on."""
    return [f"broker-{chr(ord('a') + index)}" for index in range(count)]


@attrs.frozen
class Node:
    """A master, or the replica of one.

    Attributes:
        broker: its broker name, which the two have in common.
        broker_id: 0 for a master, 1 for its replica.
        address: ``"host:port"``.
    """

    broker: str
    broker_id: int
    address: str

    @property
    def name(self) -> str:
        """What those who run it call it."""
        return replica_of(self.broker) if self.broker_id else self.broker


def replica_of(broker: str) -> str:
    """Return what a broker's replica is called: ``broker-a-1`` for that of ``broker-a``."""
    return f"{broker}-1"


def nodes_at(addresses: Sequence[str], *, replicas: bool) -> list[Node]:
    """Return a master for each address; or masters for the first half, and their replicas for the others."""
    masters = len(addresses) // 2 if replicas else len(addresses)
    names = broker_names(masters)
    return [
        Node(names[index % masters], index // masters, address) for index, address in enumerate(addresses)
    ]


def starts(nodes: Collection[Node]) -> list[list[str]]:
    """Return the names of those that start together: replicas ask where their masters are when they start."""
    return [[node.name for node in nodes if node.broker_id == broker_id] for broker_id in (0, 1)]


def addresses_of(nodes: Iterable[Node], broker_id: int) -> dict[str, str]:
    """Return the addresses of the nodes with this id, by broker name."""
    return {node.broker: node.address for node in nodes if node.broker_id == broker_id}


def identity_settings(node: Node, name_server: str) -> dict[str, str]:
    """Return the settings that say who a broker is, and the address that its clients are told."""
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
    """Return ``text`` with the servers' home where it says ``{home}``."""
    return text.replace("{home}", home)
