"""Ports reserved for clusters: other runs on this machine avoid them, even while a broker is down."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from integration.clusters.cluster import ClusterStartError, ClusterUnavailableError

# Below the range from which operating systems take the ports of outgoing connections.
_PORTS = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Return ``count`` free ports. The port two below each (VIP channel) and the next (HA) are free as well.

    They stay reserved while this process lives. No other caller of this function gets them.

    Raises:
        ClusterStartError: too few ports are free.
    """
    found: list[int] = []
    while len(found) < count:
        port = next(_candidates(), None)
        if port is None:
            raise ClusterStartError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop}")
        if _lock(port) and all(_is_free(each) for each in (port - 2, port, port + 1)):
            found.append(port)
    return found


def check_host(host: str) -> None:
    """Raise ClusterUnavailableError if this machine cannot listen on the IP address ``host``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as listener:
            listener.bind((host, 0))
    except OSError as error:
        lacking = "this machine has no IPv6" if family == socket.AF_INET6 else "no such address here"
        raise ClusterUnavailableError(f"cannot listen on {host} ({error}): {lacking}") from error


@cache
def _candidates() -> Iterator[int]:
    """Return the ports that this process has not tried yet, in random order."""
    return iter(random.sample(range(_PORTS.start, _PORTS.stop, 4), k=len(_PORTS) // 4))


def _lock(port: int) -> bool:
    # Each byte of an empty file stands for a port. The system releases the locks when the process ends.
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return True


@cache
def _locks() -> int:
    path = Path(tempfile.gettempdir()) / f"rocketmq-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True
