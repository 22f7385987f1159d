"""A client's id: what tells the members of a group apart."""

from __future__ import annotations

import itertools
import os
import random
import socket

from rocketmq_py.remoting.address import split_address

_counter = itertools.count()


def outgoing_address(towards: str) -> str:
    """Return this machine's IP address as a peer at ``towards`` (host:port) would see it.

    Nothing is sent. Where the host has a name that only a resolver knows, it is this machine's own
    first address, else 127.0.0.1.
    """
    host, port = split_address(towards)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            numeric = socket.getaddrinfo(host, port, family, flags=socket.AI_NUMERICHOST)
            probe.connect(numeric[0][4])
        except OSError:
            return _first_address()
        return str(probe.getsockname()[0])


def _first_address() -> str:
    # A documentation address (RFC 5737): the kernel only looks up the way there.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def new_client_id(address: str, instance_name: str | None, rng: random.Random, unit_name: str = "") -> str:
    """Return an id that no other client has: ``address@process#counter#random``, with a unit ``@unit`` too.

    Two members of a group under one id would each take the other's queues for its own. The process id
    alone does not prevent that: containers share process ids, and often addresses.
    """
    instance = instance_name or str(os.getpid())
    unit = f"@{unit_name}" if unit_name else ""
    return f"{address}@{instance}#{next(_counter)}#{rng.getrandbits(32):08x}{unit}"
