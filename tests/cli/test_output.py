from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from rocketmq_py.cli.output import MOST_BUFFERED, Output, OutputClosedError
from rocketmq_py.cli.running import CommandError


class SlowReader:
    """Takes one write each time that it is told to."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.begun = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)

    def write(self, parts: Sequence[bytes]) -> None:
        self.begun.release()
        self.allowed.acquire()
        self.writes.append(b"".join(parts))

    async def wait_for_write(self) -> None:
        await trio.to_thread.run_sync(self.begun.acquire)


async def test_what_comes_during_a_write_is_written_in_one_go(nursery: trio.Nursery) -> None:
    reader = SlowReader()
    output = Output(reader.write)
    nursery.start_soon(output.run)
    await output.print([b"a"])
    await reader.wait_for_write()
    for piece in (b"b", b"c", b"d"):
        await output.print([piece])
    reader.allowed.release()
    await reader.wait_for_write()
    reader.allowed.release()
    await output.flush()
    assert reader.writes == [b"a", b"bcd"]


async def test_whoever_prints_waits_for_a_slow_reader(nursery: trio.Nursery) -> None:
    reader = SlowReader()
    output = Output(reader.write)
    nursery.start_soon(output.run)
    await output.print([b"a"])
    await reader.wait_for_write()
    await output.print([b"x" * MOST_BUFFERED])  # just fits
    printed = trio.Event()

    async def print_one_more() -> None:
        await output.print([b"y"])
        printed.set()

    nursery.start_soon(print_one_more)
    await trio.testing.wait_all_tasks_blocked()
    assert not printed.is_set()
    reader.allowed.release()
    await reader.wait_for_write()  # of the next piece: there is room again
    await trio.testing.wait_all_tasks_blocked()
    assert printed.is_set()
    reader.allowed.release()
    await output.flush()


async def test_print_now_returns_when_it_is_written(nursery: trio.Nursery) -> None:
    writes: list[Sequence[bytes]] = []
    output = Output(writes.append)
    nursery.start_soon(output.run)
    await output.flush()  # nothing to wait for
    await output.print_now([b"a"])
    assert writes == [[b"a"]]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (BrokenPipeError(32, "Broken pipe"), OutputClosedError),
        (OSError(28, "No space left on device"), CommandError),
    ],
)
async def test_a_write_that_fails(fault: OSError, error: type[Exception]) -> None:
    def write(_: Sequence[bytes]) -> None:
        raise fault

    output = Output(write)
    await output.print([b"a"])
    with pytest.raises(error):
        await output.run()


async def test_the_end_of_reading_waits_for_what_is_being_written() -> None:
    """As ``grep -q`` does, who reads goes when the last bytes have come: they are printed nevertheless."""
    reader = SlowReader()
    output = Output(reader.write)
    was_printed = False

    async def print_it() -> None:
        nonlocal was_printed
        await output.print_now([b"a"])
        was_printed = True

    async with trio.open_nursery() as nursery:

        async def end() -> None:
            with pytest.raises(OutputClosedError):
                await output.end()
            nursery.cancel_scope.cancel()

        nursery.start_soon(output.run)
        nursery.start_soon(print_it)
        await reader.wait_for_write()
        nursery.start_soon(end)
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.cancel_scope.cancel_called
        reader.allowed.release()
    assert was_printed
