"""One question to a name server or broker over a plain socket: is it there, and whom does it know?

This is for readiness only (to be told of it at once, too), and shares no code with the client under test.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from integration.clusters.layout import Node

_UPDATE_BROKER_CONFIG = 25
_GET_BROKER_CONFIG = 26
_GET_BROKER_CLUSTER_INFO = 106
_SUCCESS = 0

_ANSWER_TIMEOUT = 2.0
_POLL_INTERVAL = 0.1


class RefusedError(OSError):
    """Somebody is there, and answers with an error."""


def brokers_known_by(name_server: str, broker_id: int = 0) -> dict[str, str]:
    """Return the master's address of every broker name that ``name_server`` lists, or a replica's.

    Raises:
        OSError: nobody answers there (an answer that makes no sense counts as none).
    """
    body = _ask(name_server, _GET_BROKER_CLUSTER_INFO).decode()
    # The broker id is a bare number in fastjson's dialect and a quoted one in standard JSON.
    pattern = (
        rf'"brokerAddrs":\{{[^}}]*?"?\b{broker_id}"?:"([^"]+)"[^}}]*\}}(?:,"\w+":"[^"]*")*?,'
        r'"brokerName":"([^"]+)"'
    )
    return {name: address for address, name in re.findall(pattern, body)}


def name_server_serves(address: str) -> bool:
    """Say whether a name server at ``address`` answers."""
    # Of codes that it does not know, 4.9 says nothing at all.
    return _answers(address, _GET_BROKER_CLUSTER_INFO)


def broker_serves(address: str) -> bool:
    """Say whether a broker at ``address`` answers, if only that it would like to know who asks."""
    return _silence(address) is None


def broker_settings(address: str) -> dict[str, str]:
    """Return the settings of the broker at ``address``, as it understood them.

    Raises:
        OSError: nobody answers there.
    """
    text = _ask(address, _GET_BROKER_CONFIG).decode()
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def is_registered(node: Node, name_server: str) -> bool:
    """Say whether ``node`` answers and ``name_server`` tells clients where it is."""
    try:
        known = brokers_known_by(name_server, node.broker_id)
    except OSError:
        return False
    return known.get(node.broker) == node.address and broker_serves(node.address)


def ask_to_register(address: str, permission: str, timeout: float = _ANSWER_TIMEOUT) -> None:
    """Have the broker at ``address`` register with its name servers now.

    At its start 5.x registers with those that it has reached by then, which may be none, and does not try
    again for 10 s. A change of its permission is something that it tells at once.

    Args:
        address: the broker's.
        permission: its setting ``brokerPermission``, which stays so.
        timeout: seconds that its answer may take.

    Raises:
        OSError: nobody answers there, or the broker takes no settings from just anybody.
    """
    _ask(address, _UPDATE_BROKER_CONFIG, f"brokerPermission={permission}".encode(), timeout)


def registers(node: Node, name_server: str, settings: Mapping[str, str]) -> bool:
    """Say whether ``node``, a broker with ``settings``, is registered already; where it is not, ask it to."""
    if is_registered(node, name_server):
        return True
    with suppress(OSError):
        ask_to_register(node.address, settings.get("brokerPermission", "6"))
    return False


def seen(node: Node, name_server: str) -> str:
    """Return what those who wait for ``node`` see of it, in a line."""
    try:
        known = f"knows {brokers_known_by(name_server, node.broker_id) or 'no broker'}"
    except OSError as error:
        known = f"does not answer: {error}"
    silence = _silence(node.address)
    answer = "answers" if silence is None else f"does not answer: {silence}"
    return f"the name server at {name_server} {known}; the broker at {node.address} {answer}"


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Poll ``condition`` until it holds or ``timeout`` seconds are over; return whether it held."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL)
    return True


def _answers(address: str, code: int) -> bool:
    try:
        _ask(address, code)
    except OSError:
        return False
    return True


def _silence(address: str) -> OSError | None:
    """Return why the broker at ``address`` does not answer, if it does not."""
    try:
        _ask(address, _GET_BROKER_CONFIG)
    except RefusedError:
        return None
    except OSError as error:
        return error
    return None


def _ask(address: str, code: int, body: bytes = b"", timeout: float = _ANSWER_TIMEOUT) -> bytes:
    host, _, port = address.rpartition(":")
    header = json.dumps({"code": code, "language": "OTHER", "version": 0, "opaque": 1, "flag": 0}).encode()
    with socket.create_connection((host, int(port)), timeout) as connection:
        length = 4 + len(header) + len(body)
        connection.sendall(struct.pack(">ii", length, len(header)) + header + body)
        (length,) = struct.unpack(">i", _read(connection, 4))
        frame = _read(connection, length)
    header_length = int.from_bytes(frame[1:4], "big")
    try:
        answered = int(json.loads(frame[4 : 4 + header_length])["code"])
    except (ValueError, KeyError) as error:
        raise OSError(f"{address} does not speak RocketMQ's protocol") from error
    if answered != _SUCCESS:
        raise RefusedError(f"{address} answers request {code} with error {answered}")
    return frame[4 + header_length :]


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise ConnectionError("closed while an answer was read")
        data += chunk
    return data
