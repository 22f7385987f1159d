"""Readiness probes of name servers and brokers, and registration, over plain sockets.

They share no code with the client under test.
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
    """The server responded with an error."""


def brokers_known_by(name_server: str, broker_id: int = 0) -> dict[str, str]:
    """Return the master's address of every broker name that ``name_server`` lists, or a replica's.

    Raises:
        OSError: there is no response, or an invalid one.
    """
    body = _ask(name_server, _GET_BROKER_CLUSTER_INFO).decode()
    # The broker id is a bare number in fastjson's dialect and a quoted one in standard JSON.
    pattern = (
        rf'"brokerAddrs":\{{[^}}]*?"?\b{broker_id}"?:"([^"]+)"[^}}]*\}}(?:,"\w+":"[^"]*")*?,'
        r'"brokerName":"([^"]+)"'
    )
    return {name: address for address, name in re.findall(pattern, body)}


def name_server_serves(address: str) -> bool:
    """Return whether a name server at ``address`` responds."""
    # 4.9 does not respond to unknown request codes.
    return _answers(address, _GET_BROKER_CLUSTER_INFO)


def broker_serves(address: str) -> bool:
    """Return whether a broker at ``address`` responds, even if it denies access."""
    return _request_error(address) is None


def broker_settings(address: str) -> dict[str, str]:
    """Return the effective settings of the broker at ``address``.

    Raises:
        OSError: there is no response.
    """
    text = _ask(address, _GET_BROKER_CONFIG).decode()
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def is_registered(node: Node, name_server: str) -> bool:
    """Return whether ``node`` responds and is registered at ``name_server``.

    A replica may have another id than in ``node``, because controllers choose the ids.
    """
    ids = (node.broker_id, node.broker_id + 1) if node.broker_id else (node.broker_id,)
    try:
        addresses = [brokers_known_by(name_server, broker_id).get(node.broker) for broker_id in ids]
    except OSError:
        return False
    return node.address in addresses and broker_serves(node.address)


def ask_to_register(address: str, permission: str, timeout: float = _ANSWER_TIMEOUT) -> None:
    """Make the broker at ``address`` register with its name servers now.

    When 5.x starts, it registers with the name servers that it has reached by then, maybe none, and retries
    only after 10 s. A change of its permission triggers a registration.

    Args:
        address: the broker's address.
        permission: its setting ``brokerPermission``, which does not change.
        timeout: seconds to wait for the response.

    Raises:
        OSError: there is no response, or the broker denies the change.
    """
    _ask(address, _UPDATE_BROKER_CONFIG, f"brokerPermission={permission}".encode(), timeout)


def registers(node: Node, name_server: str, settings: Mapping[str, str]) -> bool:
    """Return whether ``node``, a broker with ``settings``, is registered. If not, ask it to register."""
    if is_registered(node, name_server):
        return True
    with suppress(OSError):
        ask_to_register(node.address, settings.get("brokerPermission", "6"))
    return False


def seen(node: Node, name_server: str) -> str:
    """Describe the state of ``node`` for the error of a failed start."""
    try:
        known = f"knows {brokers_known_by(name_server, node.broker_id) or 'no broker'}"
    except OSError as error:
        known = f"does not answer: {error}"
    failure = _request_error(node.address)
    answer = "answers" if failure is None else f"does not answer: {failure}"
    return f"the name server at {name_server} {known}; the broker at {node.address} {answer}"


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Poll ``condition`` until it holds or ``timeout`` seconds have passed. Return whether it held."""
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


def _request_error(address: str) -> OSError | None:
    """Return the error of a request to the broker at ``address``, or None if it responds."""
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
