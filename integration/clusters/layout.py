"""What a cluster looks like, whether processes or containers make it: names, ports, settings."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping, Sequence

from integration.clusters.cluster import ClusterStartError

CLUSTER_NAME = "DefaultCluster"

START_TIMEOUT = 90.0
"""Seconds until a name server or broker must serve: ten times what an idle machine needs."""
STOP_TIMEOUT = 20
"""Seconds that a broker asked to end gently may take before it is killed."""

NAME_SERVER_HEAP = ("-Xms64m", "-Xmx128m", "-Xmn32m")
BROKER_OPTIONS = (
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
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
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
}
"""What every broker is told, unless the settings of one cluster differ."""

# Below the range from which operating systems take the ports of outgoing connections.
_PORTS = range(20_000, 30_000)


def broker_names(count: int) -> list[str]:
    """Return ``count`` broker names: ``broker-a``, ``broker-b`` and so on."""
    return [f"broker-{chr(ord('a') + index)}" for index in range(count)]


def identity_settings(broker: str, address: str, name_server: str) -> dict[str, str]:
    """Return the settings that say who a broker is, and the address that its clients are told."""
    host, _, port = address.rpartition(":")
    return {
        "brokerName": broker,
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


def free_ports(count: int) -> list[int]:
    """Return ``count`` ports; of each, the port two below (VIP channel) and the next (HA) are free too.

    Raises:
        ClusterStartError: there are not so many.
    """
    found: list[int] = []
    for port in random.sample(range(_PORTS.start, _PORTS.stop, 4), k=len(_PORTS) // 4):
        if _are_free((port - 2, port, port + 1)):
            found.append(port)
        if len(found) == count:
            return found
    raise ClusterStartError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop}")


def _are_free(ports: Sequence[int]) -> bool:
    for port in ports:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("", port))
            except OSError:
                return False
    return True
