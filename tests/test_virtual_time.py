"""The jumping clock and the in-memory network that other tests use."""

from __future__ import annotations

import threading
import time

import pytest
import trio
import trio.testing

from rocketmq_py import Message, Producer
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.testing.network import BUFFER_BYTES

pytestmark = pytest.mark.usefixtures("jumping_clock")


async def connected() -> tuple[trio.SocketStream, trio.SocketStream]:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host, port = listener.socket.getsockname()
    near = await trio.open_tcp_stream(host, port)
    far = await listener.accept()
    await listener.aclose()
    return near, far


async def test_an_hour_passes_at_once_for_all_clocks() -> None:
    began, began_ns, started = time.time(), time.time_ns(), trio.current_time()
    await trio.sleep(3600)
    assert trio.current_time() - started == 3600
    assert time.time() - began == pytest.approx(3600)
    assert time.time_ns() - began_ns == 3600 * 10**9


async def test_clock_does_not_jump_while_data_is_in_flight() -> None:
    async with EmbeddedBroker() as broker, Producer(broker.name_server_address, group="p") as producer:
        began = trio.current_time()
        for _ in range(100):
            await producer.send(Message("T", b"x"), timeout=1e-9)
        assert trio.current_time() == began


async def test_clock_runs_in_real_time_while_a_thread_works() -> None:
    released = threading.Event()
    with trio.move_on_after(30) as scope:
        await trio.to_thread.run_sync(lambda: released.wait(0.001))
    assert not scope.cancelled_caught
    with trio.move_on_after(0.01) as scope:
        await trio.to_thread.run_sync(released.wait, abandon_on_cancel=True)
    assert scope.cancelled_caught
    released.set()
    began = trio.current_time()
    await trio.sleep(3600)
    assert trio.current_time() - began == 3600


async def test_calls_from_the_run_of_another_thread_do_not_change_the_clock() -> None:
    started, released = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        released.wait()

    other = threading.Thread(target=trio.run, args=(trio.to_thread.run_sync, wait))
    other.start()
    try:
        started.wait()
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        assert clock.autojump_threshold == 0
    finally:
        released.set()
        other.join()


async def test_bytes_written_before_close_are_read() -> None:
    near, far = await connected()
    assert near.socket.getpeername() == far.socket.getsockname()
    assert far.socket.getpeername() == near.socket.getsockname()
    await near.send_all(b"last words")
    await near.aclose()
    assert await far.receive_some(4) == b"last"
    assert await far.receive_some() == b" words"
    assert await far.receive_some() == b""
    with pytest.raises(trio.BrokenResourceError):
        await far.send_all(b"too late")
    with pytest.raises(trio.ClosedResourceError):
        await near.receive_some()


async def test_half_a_connection_may_end() -> None:
    near, far = await connected()
    await near.send_eof()
    assert await far.receive_some() == b""
    await far.send_all(b"still here")
    assert await near.receive_some() == b"still here"


async def test_an_end_that_did_not_read_all_breaks_the_connection() -> None:
    near, far = await connected()
    await near.send_all(b"unread")
    await far.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await near.receive_some()


async def test_a_full_connection_holds_its_writer_up() -> None:
    near, far = await connected()
    with trio.move_on_after(1) as scope:
        await near.send_all(bytes(BUFFER_BYTES + 1))
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(near.send_all, b"more")
        read = 0
        while read < BUFFER_BYTES + 4:
            read += len(await far.receive_some())


async def test_connection_without_listener_is_refused() -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host, port = listener.socket.getsockname()
    with pytest.raises(OSError, match="in use"):
        await trio.open_tcp_listeners(port, host=host)
    await listener.aclose()
    with pytest.raises(OSError, match="failed") as failed:
        await trio.open_tcp_stream(host, port)
    assert isinstance(failed.value.__cause__, ExceptionGroup)
    assert isinstance(failed.value.__cause__.exceptions[0], ConnectionRefusedError)
