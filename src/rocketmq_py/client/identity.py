"""The id of a client, which distinguishes the members of a group."""

from __future__ import annotations

import itertools
import os
import random
import socket
from contextlib import suppress

from rocketmq_py.address import split_address

_counter = itertools.count()


def outgoing_address(towards: str) -> str:
    """Return this machine's IP address on the route to ``towards`` (host:port). Nothing is sent.

    If the host is a name, or has no route, return the address of the default route: of IPv4, else of IPv6. If
    there is none, return 127.0.0.1.
    """
    host, port = split_address(towards)
    # Addresses for documentation (RFC 5737, RFC 3849). The kernel only looks up the route.
    for destination in (host, "192.0.2.1", "2001:db8::1"):
        family = socket.AF_INET6 if ":" in destination else socket.AF_INET
        with (
            suppress(OSError),  # a name, no route, or a machine without IPv6
            socket.socket(family, socket.SOCK_DGRAM) as probe,
        ):
            numeric = socket.getaddrinfo(destination, port, family, flags=socket.AI_NUMERICHOST)
            probe.connect(numeric[0][4])
            return str(probe.getsockname()[0])
    return "127.0.0.1"


def new_client_id(address: str, instance_name: str | None, rng: random.Random, unit_name: str = "") -> str:
    """Return a unique id: ``address@process#counter#random``, followed by ``@unit`` if there is a unit.

    Two members of a group with the same id would be assigned the same queues. Containers often share process
    ids and addresses, so these are not enough.
    """
    instance = instance_name or str(os.getpid())
    unit = f"@{unit_name}" if unit_name else ""
    return f"{address}@{instance}#{next(_counter)}#{rng.getrandbits(32):08x}{unit}"
