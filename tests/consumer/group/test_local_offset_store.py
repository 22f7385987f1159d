from __future__ import annotations

import errno
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.consumer.group.local_offset_store import (
    LocalOffsetStore,
    OffsetFile,
    default_folder,
    offsets_path,
)
from rocketmq_py.errors import ConfigurationError, LocalOffsetsError
from rocketmq_py.message import MessageQueue
from tests.cancelling import cancel_at_each_await

QUEUE = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("T", "broker-b", 3)
OLD, NEW = {QUEUE: 5}, {QUEUE: 7, OTHER: 1 << 40}

JAVA = b"""{
\t"offsetTable":{{
\t\t"brokerName":"broker-a",
\t\t"queueId":0,
\t\t"topic":"T"
\t}:5,{
\t\t"brokerName":"broker-b",
\t\t"queueId":3,
\t\t"topic":"T"
\t}:1099511627776
\t}
}"""
"""What Java's client writes."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "127.0.0.1@DEFAULT" / "g" / "offsets.json"


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


# The file


def test_what_is_written_is_read_by_the_next(path: Path) -> None:
    file = OffsetFile(path)
    assert file.read() == {}
    file.write(OLD, 1)
    file.write(NEW, 2)
    assert OffsetFile(path).read() == NEW
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]


def test_it_is_the_file_of_javas_clients(path: Path) -> None:
    write(path, JAVA)
    file = OffsetFile(path)
    assert file.read() == {QUEUE: 5, OTHER: 1 << 40}
    file.write(OLD, 1)
    assert path.read_bytes() == b'{"offsetTable":{{"topic":"T","brokerName":"broker-a","queueId":0}:5}}'


def test_the_number_decides_which_of_two_writes_is_the_newer(path: Path) -> None:
    file = OffsetFile(path)
    file.write(NEW, 2)
    file.write(OLD, 1)
    assert file.read() == NEW


@pytest.mark.parametrize("damage", [b"", b"{", b'{"offsetTable":{"a":1}}', b"\xff" * 10, b"[]"])
def test_a_damaged_file_is_replaced_by_its_backup(
    path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = OffsetFile(path)
    file.write(OLD, 1)
    file.write(NEW, 2)
    path.write_bytes(damage)
    again = OffsetFile(path)
    assert again.read() == OLD
    assert "offsets.json.bak" in caplog.text
    again.write(NEW, 1)
    assert OffsetFile(path).read() == NEW
    path.unlink()
    assert OffsetFile(path).read() == OLD, "the good backup was not replaced by the damaged file"


def test_a_crash_between_the_two_names_leaves_the_backup(path: Path) -> None:
    OffsetFile(path).write(OLD, 1)
    path.rename(path.with_name("offsets.json.bak"))
    assert OffsetFile(path).read() == OLD


def test_if_both_are_damaged_the_error_says_what_to_do(path: Path) -> None:
    write(path, b"{")
    write(path.with_name("offsets.json.bak"), b"}")
    with pytest.raises(LocalOffsetsError) as caught:
        OffsetFile(path).read()
    text = str(caught.value)
    assert str(path) in text
    assert "offsets.json.bak" in text
    assert "repair or remove these files" in text


def test_a_file_that_may_not_be_read_is_not_taken_for_none(path: Path) -> None:
    path.mkdir(parents=True)  # a folder of that name: even root cannot read it as a file
    with pytest.raises(LocalOffsetsError, match="Is a directory"):
        OffsetFile(path).read()


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


STEPS: list[tuple[object, str]] = [(Path, "open"), (os, "fsync"), (os, "replace"), (os, "open")]


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize(("module", "name"), STEPS, ids=[name for _, name in STEPS])
def test_wherever_a_write_is_cut_off_the_old_or_the_new_offsets_are_there(
    path: Path, module: object, name: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OffsetFile(path)
    file.write({}, 1)
    file.write(OLD, 2)
    original: Callable[..., Any] = getattr(module, name)
    calls = itertools.count(1)

    def fail_at_the_nth(*arguments: Any, **options: Any) -> Any:
        return no_space() if next(calls) == nth else original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, fail_at_the_nth)
        try:
            file.write(NEW, 3)
            expected = [NEW]
        except OSError:
            expected = [OLD, NEW]
    assert OffsetFile(path).read() in expected
    file.write(NEW, 4)
    assert OffsetFile(path).read() == NEW


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk(path: Path) -> None:
    file = OffsetFile(path)
    file.write(OLD, 1)
    new = path.with_name("offsets.json.tmp")
    new.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        file.write(NEW, 2)
    assert not new.is_symlink(), "nothing is left of it"
    assert OffsetFile(path).read() == OLD


# The store


@pytest.fixture
def client() -> Client:
    return Client("127.0.0.1:9876")


@pytest.fixture
def offsets(client: Client, path: Path) -> Iterator[LocalOffsetStore]:
    offsets = LocalOffsetStore(client, "g", path, interval=5)
    yield offsets
    offsets.close()


async def test_where_the_file_is() -> None:
    folder = Path("/x")

    def of(**options: Any) -> str:
        client = Client("127.0.0.1:9876", **options)
        return str(offsets_path(folder, client, "g"))

    assert of() == "/x/127.0.0.1@DEFAULT/g/offsets.json"
    assert of(instance_name="one") == "/x/127.0.0.1@one/g/offsets.json"
    assert of(unit_name="u") == "/x/127.0.0.1@DEFAULT@u/g/offsets.json"
    assert of(namespace="ns") == "/x/127.0.0.1@DEFAULT/ns%g/offsets.json"
    assert default_folder() == Path.home() / ".rocketmq_offsets"


@pytest.mark.parametrize(
    ("host", "instance_name", "group", "names"),
    [
        ("::1", "one", "g", ("=3A=3A1@one", "g")),
        (
            "10.0.0.1",
            r'a/../<b>:"\c|d?e*f=3A',
            "g",
            ("10.0.0.1@a=2F..=2F=3Cb=3E=3A=22=5Cc=7Cd=3Fe=2Af=3D3A", "g"),
        ),
        ("10.0.0.1", "ends in a dot.", "g", ("10.0.0.1@ends in a dot=2E", "g")),
        ("10.0.0.1", "one", "a|b", ("10.0.0.1@one", "a=7Cb")),
    ],
)
async def test_folder_names_hold_nothing_that_windows_refuses(
    host: str, instance_name: str, group: str, names: tuple[str, str]
) -> None:
    client = Client("127.0.0.1:9876", instance_name=instance_name)
    client.host = host
    assert offsets_path(Path("/x"), client, group) == Path("/x", *names, "offsets.json")


async def test_the_consumer_goes_on_where_it_was(
    offsets: LocalOffsetStore, client: Client, path: Path
) -> None:
    await offsets.open()
    assert await offsets.read(QUEUE) is None
    offsets.update(QUEUE, 7)
    await offsets.write()
    offsets.forget(QUEUE)
    offsets.update(OTHER, 1)
    await offsets.confirm([OTHER])
    offsets.close()
    again = LocalOffsetStore(client, "g", path, interval=5)
    await again.open()
    assert (await again.read(QUEUE), await again.read(OTHER)) == (7, 1)
    assert not again.has_entry(QUEUE)
    again.close()


async def test_names_in_the_file_are_those_on_the_wire(path: Path) -> None:
    client = Client("127.0.0.1:9876", namespace="ns")
    offsets = LocalOffsetStore(client, "g", path, interval=5)
    await offsets.open()
    offsets.update(QUEUE, 7)
    await offsets.write()
    offsets.close()
    assert b'"topic":"ns%T"' in path.read_bytes()
    await offsets.open()
    assert await offsets.read(QUEUE) == 7
    offsets.close()


async def test_what_has_not_changed_is_not_written(offsets: LocalOffsetStore, path: Path) -> None:
    await offsets.open()
    await offsets.write()
    assert not path.exists()
    offsets.update(QUEUE, 7)
    await offsets.write()
    path.unlink()
    offsets.update(QUEUE, 7)
    await offsets.write()
    assert not path.exists()


async def test_one_consumer_a_file(offsets: LocalOffsetStore, client: Client, path: Path) -> None:
    await offsets.open()
    second = LocalOffsetStore(client, "g", path, interval=5)
    with pytest.raises(ConfigurationError, match="give each client an instance_name"):
        await second.open()
    offsets.close()
    await second.open()
    second.close()


async def test_a_file_that_cannot_be_read_can_be_tried_again(offsets: LocalOffsetStore, path: Path) -> None:
    write(path, b"{")
    with pytest.raises(LocalOffsetsError):
        await offsets.open()
    write(path, b"{}")
    await offsets.open()


async def test_a_full_disk_is_said_once_and_made_up_for(
    offsets: LocalOffsetStore,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    await offsets.open()
    offsets.update(QUEUE, 5)
    await offsets.write()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        for offset in (6, 7):
            offsets.update(QUEUE, offset)
            await offsets.write()
    assert OffsetFile(path).read() == {QUEUE: 5}
    await offsets.write()
    assert OffsetFile(path).read() == {QUEUE: 7}
    where = f"group=g path={path}"
    assert [record.message for record in caplog.records] == [
        f"local offset write failed, retrying: {where} retry_in=5 error=[Errno 28] No space left on device",
        f"local offset write succeeded again: {where} failures=2 seconds=0",
    ]


async def test_a_disk_that_hangs_does_not_hold_up_the_end(
    offsets: LocalOffsetStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await offsets.open()
    go, hangs, sync = threading.Event(), threading.Event(), os.fsync

    def hang(descriptor: int) -> None:
        hangs.set()
        go.wait()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", hang)
    offsets.update(QUEUE, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offsets.write)
        while not hangs.is_set():
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    # The next one waits for it, and comes after it.
    offsets.update(QUEUE, 6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offsets.write)
        await trio.sleep(0.01)
        go.set()
    assert OffsetFile(path).read() == {QUEUE: 6}


async def test_a_write_that_outlasts_its_consumer_does_not_replace_what_the_next_one_writes(
    offsets: LocalOffsetStore, client: Client, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await offsets.open()
    go, hangs, sync = threading.Event(), threading.Event(), os.fsync

    def hang(descriptor: int) -> None:
        hangs.set()
        go.wait()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", hang)
    offsets.update(QUEUE, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offsets.write)
        while not hangs.is_set():
            await trio.sleep(0.001)
        nursery.start_soon(offsets.write)  # waits for the first
        await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    offsets.close()
    second = LocalOffsetStore(client, "g", path, interval=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.open)
        await trio.sleep(0.01)
        go.set()
    second.update(OTHER, 9)
    await second.write()
    second.close()
    assert OffsetFile(path).read()[OTHER] == 9
    assert await second.read(QUEUE) in (5, None)


def test_who_had_it_open_before_writes_no_more(path: Path) -> None:
    first, second = OffsetFile(path), OffsetFile(path)
    first.open()
    first.write(OLD, 1)
    assert second.open() == OLD
    first.write({}, 2)
    assert second.read() == OLD
    second.write(NEW, 1)
    assert OffsetFile(path).read() == NEW


async def test_cancelled_at_any_of_its_awaits(client: Client, path: Path) -> None:
    numbers = itertools.count(1)

    async def open_and_write() -> None:
        offsets = LocalOffsetStore(client, "g", path, interval=5)
        await offsets.open()
        try:
            offsets.update(QUEUE, next(numbers))
            await offsets.write()
        finally:
            offsets.close()

    async def check() -> None:
        # A write that was abandoned may be under way still.
        with trio.fail_after(10):
            while path.with_name("offsets.json.tmp").exists():
                await trio.sleep(0.001)
        OffsetFile(path).read()

    assert await cancel_at_each_await(open_and_write, check) >= 2
