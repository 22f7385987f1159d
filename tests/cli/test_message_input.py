from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import pytest
import trio

from rocketmq_py.cli.message_input import MAX_LINE_SIZE, LineBodies, RepeatedBody
from rocketmq_py.cli.runner import CommandError


def reads(chunks: Iterable[bytes]) -> Callable[[], bytes]:
    rest = iter(chunks)
    return lambda: next(rest, b"")


async def all_of(lines: LineBodies) -> list[bytes]:
    found = []
    while batch := await lines.next_batch():
        found += batch
    assert await lines.next_batch() == []  # further calls return the end too
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
async def test_lines_are_split_independently_of_chunks(size: int) -> None:
    data = b"one\ntwo\r\n\n\xff\x00three\n\n\nfour"
    lines = LineBodies(reads(data[at : at + size] for at in range(0, len(data), size)))
    assert await all_of(lines) == [b"one", b"two\r", b"\xff\x00three", b"four"]
    assert lines.empty == 3


async def test_an_empty_stream_has_no_lines() -> None:
    assert await all_of(LineBodies(reads([]))) == []
    lines = LineBodies(reads([b"\n"]))
    assert await all_of(lines) == []
    assert lines.empty == 1


async def test_count_limits_the_lines() -> None:
    lines = LineBodies(reads([b"a\n\nb\nc\nd\n"]), count=2)
    assert lines.fraction == 0
    assert await lines.next_batch() == [b"a", b"b"]
    assert lines.fraction == 1
    assert await lines.next_batch() == []


async def test_a_line_is_returned_as_soon_as_it_is_complete() -> None:
    lines = LineBodies(reads([b"a\nb", b"\nc\n"]))
    assert await lines.next_batch() == [b"a"]
    assert await lines.next_batch() == [b"b", b"c"]


async def test_too_long_lines_are_skipped() -> None:
    piece = b"x" * (MAX_LINE_SIZE // 4)
    lines = LineBodies(reads([b"a\n", *[piece] * 4, b"\n", *[piece] * 40, b"x\nb\n", *[piece] * 4, b"x"]))
    assert await all_of(lines) == [b"a", piece * 4, b"b"]
    assert lines.too_long == 2


async def test_the_fraction_of_a_file() -> None:
    lines = LineBodies(reads([b"a\n", b"b\nc\n"]), size=6)
    assert lines.fraction == 0
    await lines.next_batch()
    assert lines.fraction == pytest.approx(1 / 3)
    await all_of(lines)
    assert lines.fraction == 1
    assert LineBodies(reads([])).fraction is None


async def test_a_failing_stream_raises_a_command_error() -> None:
    def fail() -> bytes:
        raise OSError(9, "Bad file descriptor")

    with pytest.raises(CommandError, match="cannot read the messages: Bad file descriptor"):
        await LineBodies(fail).next_batch()


async def test_waiting_for_a_line_can_be_cancelled() -> None:
    reading, end = threading.Event(), threading.Event()

    def block() -> bytes:
        reading.set()
        end.wait()
        return b""

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(LineBodies(block).next_batch)
            await trio.to_thread.run_sync(reading.wait)
            scope.cancel()
    assert scope.cancelled_caught
    end.set()


async def test_a_repeated_body_is_returned_count_times() -> None:
    bodies = RepeatedBody(b"x", 2500)
    total = 0
    while batch := await bodies.next_batch():
        assert set(batch) == {b"x"}
        total += len(batch)
        assert bodies.fraction == pytest.approx(total / 2500)
    assert total == 2500
