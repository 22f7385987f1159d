"""A worker's machine with a network of its own, whose firewall drops packets to chosen ports."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from integration.clusters.cluster import ClusterUnavailableError
from integration.spark_clusters.standalone import Machine

HOST_NAME = "behind-the-firewall"
"""The name of the machine, which errors show."""
_TABLE = "100"
_NOBODY = "02:00:00:00:00:09"


class FirewalledNetwork:
    """A network namespace that a pair of interfaces joins to this machine. Linux only, as root.

    As a context manager, it creates both and removes them on exit.

    Attributes:
        address: the address of this machine in the network.
        firewalled: the address of the machine behind the firewall.

    Raises:
        ClusterUnavailableError: this machine cannot make one.
    """

    def __init__(self) -> None:
        # One of the networks that RFC 2544 reserves for tests.
        network = f"198.18.{os.getpid() % 256}"
        self.address: Final = f"{network}.1"
        self.firewalled: Final = f"{network}.2"
        self._nowhere = f"{network}.3"
        self._name = f"rocketmq-{os.getpid()}"
        self._outer, self._inner = f"rmq{os.getpid()}a", f"rmq{os.getpid()}b"
        self._cleaning = ExitStack()

    def __enter__(self) -> Self:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise ClusterUnavailableError("a network of its own needs root and the program ip (iproute2)")
        try:
            with ExitStack() as stack:
                self._create(stack)
                self._cleaning = stack.pop_all()
        except subprocess.CalledProcessError as error:
            raise ClusterUnavailableError(f"no network of its own: {error.stderr.strip()}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cleaning.close()

    def machine(self) -> Machine:
        """Return the machine behind the firewall."""
        enter = ("ip", "netns", "exec", self._name, "unshare", "--uts")
        return Machine(
            self.firewalled, command=(*enter, "sh", "-c", f'hostname {HOST_NAME}; exec "$@"', "worker")
        )

    def drop(self, port: int) -> None:
        """Silently drop all packets from the machine behind the firewall to a port of this machine."""
        self._ip_inside("rule", "add", "ipproto", "tcp", "dport", str(port), "lookup", _TABLE)

    def _create(self, stack: ExitStack) -> None:
        _ip("netns", "add", self._name)
        stack.callback(_ip, "netns", "delete", self._name)
        _ip("link", "add", self._outer, "type", "veth", "peer", "name", self._inner, "netns", self._name)
        stack.callback(_ip, "link", "delete", self._outer)
        _ip("address", "add", f"{self.address}/24", "dev", self._outer)
        _ip("link", "set", self._outer, "up")
        for name, address in ((self._inner, f"{self.firewalled}/24"), ("lo", "")):
            if address:
                self._ip_inside("address", "add", address, "dev", name)
            self._ip_inside("link", "set", name, "up")
        # Packets to dropped ports go to an address that no machine has.
        self._ip_inside("neighbour", "add", self._nowhere, "lladdr", _NOBODY, "dev", self._inner)
        self._ip_inside("route", "add", "default", "via", self._nowhere, "dev", self._inner, "table", _TABLE)

    def _ip_inside(self, *arguments: str) -> None:
        _ip("-netns", self._name, *arguments)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
