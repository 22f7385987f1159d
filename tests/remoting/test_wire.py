from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from rocketmq_py.remoting.wire import (
    Wire,
    Writer,
    WriteTogether,
)

LARGE = 16 * 1024 * 1024
"""More bytes than a socket accepts in one write."""


@asynccontextmanager
async def streams() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Yield both ends of a connection over real sockets."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        ours = await trio.open_tcp_stream(*listener.socket.getsockname())
        async with ours, await listener.accept() as peer:
            yield ours, peer


async def received(stream: trio.SocketStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        some = await stream.receive_some()
        assert some, "the other end closed it"
        data += some
    return bytes(data)


async def test_bytes_the_socket_did_not_accept_are_written_next() -> None:
    async with streams() as (ours, peer), trio.open_nursery() as nursery:
        writer = Writer(Wire(ours), LARGE)
        writer.put(b"first ")
        writer.put(b"x" * LARGE)
        nursery.start_soon(writer.run)
        await trio.testing.wait_all_tasks_blocked()
        assert not writer.is_flushed
        writer.put(b" last")
        data = await received(peer, LARGE + len("first  last"))
        await writer.flush()
        nursery.cancel_scope.cancel()
    assert data.startswith(b"first x")
    assert data.endswith(b"x last")
    assert data.count(b"x") == LARGE


async def test_partial_write_of_a_single_frame_is_completed() -> None:
    async with streams() as (ours, peer), trio.open_nursery() as nursery:
        writer = Writer(Wire(ours), LARGE)
        nursery.start_soon(writer.run)
        await trio.testing.wait_all_tasks_blocked()  # idle
        writer.put_alone(b"x" * LARGE + b"!")
        data = await received(peer, LARGE + 1)
        await writer.flush()
        nursery.cancel_scope.cancel()
    assert data == b"x" * LARGE + b"!"


@pytest.mark.parametrize("size", [1, LARGE])
async def test_block_writes_at_its_end_up_to_the_socket_buffer(
    size: int,
) -> None:
    async with streams() as (ours, peer), trio.open_nursery() as nursery:
        writer = Writer(Wire(ours), LARGE)
        nursery.start_soon(writer.run)
        await trio.testing.wait_all_tasks_blocked()  # idle
        with WriteTogether():
            writer.put(b"first ")
            writer.put(b"x" * size)
            assert writer.buffer_number == 0
        assert writer.buffer_number == 1
        assert writer.is_flushed == (size == 1)
        writer.put(b" last")
        data = await received(peer, size + len("first  last"))
        await writer.flush()
        nursery.cancel_scope.cancel()
    assert data == b"first " + b"x" * size + b" last"


async def test_block_skips_withdrawn_frames_and_closed_writers() -> None:
    async with streams() as (ours, peer), trio.open_nursery() as nursery:
        writer = Writer(Wire(ours), LARGE)
        nursery.start_soon(writer.run)
        await trio.testing.wait_all_tasks_blocked()  # idle
        with WriteTogether():
            writer.take_back(writer.buffer_number, writer.put(b"taken back"))
        assert writer.is_flushed
        with WriteTogether():
            writer.put(b"closed")
            writer.close()
        writer.put_alone(b"after")
        await ours.send_eof()
        assert not await peer.receive_some()
        nursery.cancel_scope.cancel()


async def test_other_tasks_run_between_writes() -> None:
    async with streams() as (ours, _), trio.open_nursery() as nursery:
        writer = Writer(Wire(ours), LARGE)
        nursery.start_soon(writer.run)
        buffer_numbers = set()
        for _ in range(20):
            writer.put(b"x")
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            buffer_numbers.add(writer.buffer_number)
        nursery.cancel_scope.cancel()
    assert len(buffer_numbers) == 20


@pytest.mark.parametrize("closed_here", [True, False])
async def test_closed_socket_raises_the_errors_of_trio_streams(closed_here: bool) -> None:
    async with streams() as (ours, peer):
        wire = Wire(ours)
        writer = Writer(wire, LARGE)
        if closed_here:
            await wire.aclose()
        else:
            peer.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await peer.aclose()  # with a reset
            await trio.lowlevel.wait_readable(ours.socket)
        writer.put(b"x")
        with pytest.raises(trio.ClosedResourceError if closed_here else trio.BrokenResourceError):
            await writer.run()
