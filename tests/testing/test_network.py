"""Sockets of the network in memory behave as real ones."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from rocketmq_py.testing.network import BUFFER_BYTES, MemoryNetwork


async def test_closing_a_socket_ends_a_blocked_write(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(random.Random(1), latency=(0.1, 0.1))
    trio.socket.set_custom_socket_factory(network)
    [listener] = await trio.open_tcp_listeners(80, host="127.0.0.1")
    stream = await trio.open_tcp_stream("127.0.0.1", 80)
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            await listener.accept()

            async def write() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await stream.send_all(bytes(2 * BUFFER_BYTES))

            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            await stream.aclose()
