from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketmq_py.cli.runner import CommandError
from rocketmq_py.cli.sinks import MAX_BUFFERED, BufferedWriter, FileSink, OutputClosedError
from tests.cli.test_message_formats import received


class SlowReader:
    """A blocking ``write`` that returns when the test allows it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.started = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)

    def write(self, parts: Sequence[bytes]) -> None:
        self.started.release()
        self.allowed.acquire()
        self.writes.append(b"".join(parts))

    async def wait_for_write(self) -> None:
        await trio.to_thread.run_sync(self.started.acquire)


async def test_output_during_a_write_is_written_at_once(nursery: trio.Nursery) -> None:
    reader = SlowReader()
    writer = BufferedWriter(reader.write)
    nursery.start_soon(writer.run)
    await writer.write([b"a"])
    await reader.wait_for_write()
    for piece in (b"b", b"c", b"d"):
        await writer.write([piece])
    reader.allowed.release()
    await reader.wait_for_write()
    reader.allowed.release()
    await writer.flush()
    assert reader.writes == [b"a", b"bcd"]


async def test_write_waits_for_a_slow_reader(nursery: trio.Nursery) -> None:
    reader = SlowReader()
    writer = BufferedWriter(reader.write)
    nursery.start_soon(writer.run)
    await writer.write([b"a"])
    await reader.wait_for_write()
    await writer.write([b"x" * MAX_BUFFERED])  # exactly at the limit
    printed = trio.Event()

    async def print_one_more() -> None:
        await writer.write([b"y"])
        printed.set()

    nursery.start_soon(print_one_more)
    await trio.testing.wait_all_tasks_blocked()
    assert not printed.is_set()
    reader.allowed.release()
    await reader.wait_for_write()  # of the next part, so the buffer has space again
    await trio.testing.wait_all_tasks_blocked()
    assert printed.is_set()
    reader.allowed.release()
    await writer.flush()


async def test_write_now_returns_after_the_write(nursery: trio.Nursery) -> None:
    writes: list[Sequence[bytes]] = []
    writer = BufferedWriter(writes.append)
    nursery.start_soon(writer.run)
    await writer.flush()  # nothing to wait for
    await writer.write_now([b"a"])
    assert writes == [[b"a"]]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (BrokenPipeError(32, "Broken pipe"), OutputClosedError),
        (OSError(28, "No space left on device"), CommandError),
    ],
)
async def test_a_failed_write_ends_the_writer(fault: OSError, error: type[Exception]) -> None:
    def write(_: Sequence[bytes]) -> None:
        raise fault

    writer = BufferedWriter(write)
    await writer.write([b"a"])
    with pytest.raises(error):
        await writer.run()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
async def test_a_message_that_does_not_fit_a_file_is_an_error(tmp_path: Path) -> None:
    import resource

    limit = 64 * 1024
    file = tmp_path / "messages"
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.RaisesGroup(pytest.RaisesExc(CommandError, match=f"cannot write {file}: File too large")):
        async with trio.open_nursery() as nursery:
            sink = FileSink(lambda _: str(file), nursery)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
            try:
                await sink.put_now(received(), [b"x" * (limit + 1)])
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, old)
            nursery.cancel_scope.cancel()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
async def test_a_named_pipe_without_a_reader_does_not_block_other_tasks(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    other_tasks_run = threading.Event()

    def read() -> tuple[bool, bytes]:
        in_time = other_tasks_run.wait(10)
        with pipe.open("rb") as reader:
            return in_time, reader.read(5)

    sink = FileSink(lambda _: str(pipe), nursery)
    with ThreadPoolExecutor(1) as executor:
        reading = executor.submit(read)
        nursery.start_soon(sink.put_now, received(), [b"hello"])
        await trio.testing.wait_all_tasks_blocked()
        other_tasks_run.set()
        assert await trio.to_thread.run_sync(reading.result) == (True, b"hello")


async def test_raise_closed_waits_for_the_write_in_progress() -> None:
    """A reader such as ``grep -q`` exits right after the last bytes. They count as written."""
    reader = SlowReader()
    writer = BufferedWriter(reader.write)
    was_printed = False

    async def print_it() -> None:
        nonlocal was_printed
        await writer.write_now([b"a"])
        was_printed = True

    async with trio.open_nursery() as nursery:

        async def end() -> None:
            with pytest.raises(OutputClosedError):
                await writer.raise_closed()
            nursery.cancel_scope.cancel()

        nursery.start_soon(writer.run)
        nursery.start_soon(print_it)
        await reader.wait_for_write()
        nursery.start_soon(end)
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.cancel_scope.cancel_called
        reader.allowed.release()
    assert was_printed
