"""Batches over a plain socket: the limit of every sink that sends the same request bodies.

The request bodies are prepared beforehand. Several requests are in flight on one blocking socket, and only
the code of each answer is read. There is no event loop, no task, no timeout, no second broker and no retry.
"""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Sequence

from rocketmq_py.address import split_address
from rocketmq_py.codes import RequestCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.sends import SendRequestBuilder, batch_properties

MAX_IN_FLIGHT = 32
READ_SIZE = 256 * 1024


def send_plainly(address: str, queues: Sequence[MessageQueue], bodies: Sequence[bytes], group: str) -> None:
    """Send bodies of batches to queues of one broker, in turn, and wait for all answers.

    Raises RuntimeError if the broker refuses a batch or closes the connection.
    """
    form = SendRequestBuilder(RequestCode.SEND_BATCH_MESSAGE, group, queues[0].topic)
    templates = [form.template(queue.queue_id, queue.broker_name) for queue in queues]
    turn = itertools.cycle(templates)
    properties, answered = batch_properties(True), 0
    with socket.create_connection(split_address(address)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = bytearray()
        for opaque, body in enumerate(bodies):
            while opaque - answered >= MAX_IN_FLIGHT:
                answered += _read_answers(connection, received)
            template = next(turn)
            assert template is not None
            now_ms = time.time_ns() // 1_000_000
            connection.sendall(template.frame(opaque, now_ms, properties, 0, 0, body))
        while answered < len(bodies):
            answered += _read_answers(connection, received)


def _read_answers(connection: socket.socket, received: bytearray) -> int:
    """Wait for more bytes, and return the number of complete answers in them."""
    data = connection.recv(READ_SIZE)
    if not data:
        raise RuntimeError("the broker closed the connection")
    received += data
    index = count = 0
    while len(received) - index >= 4:
        end = index + 4 + int.from_bytes(received[index : index + 4], "big")
        if end > len(received):
            break
        header_size = int.from_bytes(received[index + 5 : index + 8], "big")
        header = json.loads(received[index + 8 : index + 8 + header_size])
        if header["code"] != 0:
            raise RuntimeError(f"the broker refused a batch: {header}")
        index, count = end, count + 1
    del received[:index]
    return count
