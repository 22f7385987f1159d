"""LocalOffsetStore commits the offsets of a broadcasting consumer to a file, which OffsetFile writes."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.consumer.group import local_offset_commits
from rocketmq_py.consumer.group.local_offset_commits import (
    LocalOffsetStore,
    OffsetFile,
    default_folder,
    offsets_path,
)
from rocketmq_py.errors import ConfigurationError, StoreError
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
"""A file written by a Java client."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "127.0.0.1@DEFAULT" / "g" / "offsets.json"


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


# OffsetFile


def test_written_offsets_are_read_by_the_next_process(path: Path) -> None:
    file = OffsetFile(path)
    assert file.read() == {}
    file.write(OLD, 1)
    file.write(NEW, 2)
    assert OffsetFile(path).read() == NEW
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]


def test_the_format_is_that_of_java_clients(path: Path) -> None:
    write(path, JAVA)
    file = OffsetFile(path)
    assert file.read() == {QUEUE: 5, OTHER: 1 << 40}
    file.write(OLD, 1)
    assert path.read_bytes() == b'{"offsetTable":{{"topic":"T","brokerName":"broker-a","queueId":0}:5}}'


def test_a_write_with_a_lower_number_is_ignored(path: Path) -> None:
    file = OffsetFile(path)
    file.write(NEW, 2)
    file.write(OLD, 1)
    assert file.read() == NEW


def of_another_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> OffsetFile:
    monkeypatch.setattr(local_offset_commits, "_ownerships", {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 12345)
        return OffsetFile(path)


def test_two_processes_that_write_at_once_leave_a_readable_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = OffsetFile(path)
    second = of_another_process(path, monkeypatch)
    sync = os.fsync

    def write_both(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        sync(descriptor)
        second.write(NEW, 1)

    monkeypatch.setattr(os, "fsync", write_both)
    first.write(OLD, 1)
    assert OffsetFile(path).read() == OLD
    path.unlink()
    assert OffsetFile(path).read() == NEW


def test_temporary_files_of_killed_processes_are_removed(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    old, recent = (path.with_name(f"offsets.json.{host}.7.tmp") for host in ("orders-1", "orders-2"))
    for file in (old, recent):
        file.write_text("{")
    os.utime(old, (0, 0))
    assert OffsetFile(path).open() == {}
    assert list(path.parent.iterdir()) == [recent]


def test_a_file_that_another_process_writes_is_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = OffsetFile(path)
    for number in range(1, 4):
        first.write({QUEUE: number}, number)
    path.unlink()
    first.write(OLD, 4)
    assert not caplog.records
    second = of_another_process(path, monkeypatch)
    for number in range(5, 8):
        first.write(OLD, number)
        second.write(NEW, number)
    assert [record.message for record in caplog.records] == [
        f"local offsets are overwritten by another process: path={path}; give each process its own "
        "instance_name"
    ] * 2, "once for each process"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"offsetTable":{"a":1}}', b"\xff" * 10, b"[]"])
def test_the_backup_is_read_if_the_file_is_damaged(
    path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = OffsetFile(path)
    file.write(OLD, 1)
    file.write(NEW, 2)
    path.write_bytes(damage)
    reopened = OffsetFile(path)
    assert reopened.read() == OLD
    assert "offsets.json.bak" in caplog.text
    reopened.write(NEW, 1)
    assert OffsetFile(path).read() == NEW
    path.unlink()
    assert OffsetFile(path).read() == OLD, "the damaged file must not replace the good backup"


def test_the_backup_is_read_after_a_crash_between_the_two_renames(path: Path) -> None:
    OffsetFile(path).write(OLD, 1)
    path.rename(path.with_name("offsets.json.bak"))
    assert OffsetFile(path).read() == OLD


def test_the_error_names_both_damaged_files(path: Path) -> None:
    write(path, b"{")
    write(path.with_name("offsets.json.bak"), b"}")
    with pytest.raises(StoreError) as caught:
        OffsetFile(path).read()
    text = str(caught.value)
    assert str(path) in text
    assert "offsets.json.bak" in text
    assert "repair or remove these files" in text


def test_an_unreadable_file_does_not_count_as_missing(path: Path) -> None:
    path.mkdir(parents=True)  # root could read a file whatever its mode, but not a folder
    with pytest.raises(StoreError, match="Is a directory"):
        OffsetFile(path).read()


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


STEPS: list[tuple[object, str]] = [(Path, "open"), (os, "fsync"), (os, "replace"), (os, "open")]


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize(("module", "name"), STEPS, ids=[name for _, name in STEPS])
def test_a_failed_write_leaves_the_old_or_the_new_offsets(
    path: Path, module: object, name: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OffsetFile(path)
    file.write({}, 1)
    file.write(OLD, 2)
    original: Callable[..., Any] = getattr(module, name)
    calls = itertools.count(1)

    def fail_nth_call(*arguments: Any, **options: Any) -> Any:
        return no_space() if next(calls) == nth else original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, fail_nth_call)
        try:
            file.write(NEW, 3)
            expected = [NEW]
        except OSError:
            expected = [OLD, NEW]
    assert OffsetFile(path).read() in expected
    file.write(NEW, 4)
    assert OffsetFile(path).read() == NEW


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_leaves_the_old_offsets(path: Path) -> None:
    file = OffsetFile(path)
    file.write(OLD, 1)
    temporary = path.with_name(f"offsets.json.{socket.gethostname()}.{os.getpid()}.tmp")
    temporary.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        file.write(NEW, 2)
    assert not temporary.is_symlink(), "the partial file is removed"
    assert OffsetFile(path).read() == OLD


# LocalOffsetStore


@pytest.fixture
def client() -> Client:
    return Client("127.0.0.1:9876")


@pytest.fixture
def offsets(client: Client, path: Path) -> Iterator[LocalOffsetStore]:
    offsets = LocalOffsetStore(core_of(client), "g", path, interval=5)
    yield offsets
    offsets.close()


async def test_the_path_of_the_file_depends_on_address_instance_unit_and_namespace() -> None:
    folder = Path("/x")

    def path_of(**options: Any) -> str:
        client = Client("127.0.0.1:9876", **options)
        return str(offsets_path(folder, core_of(client), "g"))

    assert path_of() == "/x/127.0.0.1@DEFAULT/g/offsets.json"
    assert path_of(instance_name="one") == "/x/127.0.0.1@one/g/offsets.json"
    assert path_of(unit_name="u") == "/x/127.0.0.1@DEFAULT@u/g/offsets.json"
    assert path_of(namespace="ns") == "/x/127.0.0.1@DEFAULT/ns%g/offsets.json"
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
async def test_characters_that_windows_refuses_are_escaped(
    host: str, instance_name: str, group: str, names: tuple[str, str]
) -> None:
    client = Client("127.0.0.1:9876", instance_name=instance_name)
    core_of(client).host = host
    assert offsets_path(Path("/x"), core_of(client), group) == Path("/x", *names, "offsets.json")


async def test_a_reopened_store_has_the_committed_offsets(
    offsets: LocalOffsetStore, client: Client, path: Path
) -> None:
    await offsets.open()
    assert await offsets.read(QUEUE) is None
    assert not offsets.has_been_committed(QUEUE)
    offsets.update(QUEUE, 7)
    assert offsets.has_been_committed(QUEUE)
    await offsets.commit()
    offsets.forget(QUEUE)
    offsets.update(OTHER, 1)
    await offsets.commit_and_wait([OTHER])
    offsets.close()
    reopened = LocalOffsetStore(core_of(client), "g", path, interval=5)
    await reopened.open()
    assert (await reopened.read(QUEUE), await reopened.read(OTHER)) == (7, 1)
    assert not reopened.may_commit_by_pull(QUEUE)
    reopened.close()


async def test_topics_in_the_file_have_their_namespace(path: Path) -> None:
    client = Client("127.0.0.1:9876", namespace="ns")
    offsets = LocalOffsetStore(core_of(client), "g", path, interval=5)
    await offsets.open()
    offsets.update(QUEUE, 7)
    await offsets.commit()
    offsets.close()
    assert b'"topic":"ns%T"' in path.read_bytes()
    await offsets.open()
    assert await offsets.read(QUEUE) == 7
    offsets.close()


async def test_unchanged_offsets_are_not_written(offsets: LocalOffsetStore, path: Path) -> None:
    await offsets.open()
    await offsets.commit()
    assert not path.exists()
    offsets.update(QUEUE, 7)
    await offsets.commit()
    path.unlink()
    offsets.update(QUEUE, 7)
    await offsets.commit()
    assert not path.exists()


async def test_two_open_stores_cannot_share_a_file(
    offsets: LocalOffsetStore, client: Client, path: Path
) -> None:
    await offsets.open()
    second = LocalOffsetStore(core_of(client), "g", path, interval=5)
    with pytest.raises(ConfigurationError, match="Give each client its own instance_name"):
        await second.open()
    offsets.close()
    await second.open()
    second.close()


async def test_open_can_be_retried_after_an_unreadable_file(offsets: LocalOffsetStore, path: Path) -> None:
    write(path, b"{")
    with pytest.raises(StoreError):
        await offsets.open()
    write(path, b"{}")
    await offsets.open()


async def test_a_full_disk_is_logged_once_and_repaired_by_a_later_commit(
    offsets: LocalOffsetStore,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    await offsets.open()
    offsets.update(QUEUE, 5)
    await offsets.commit()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        for offset in (6, 7):
            offsets.update(QUEUE, offset)
            await offsets.commit()
    assert OffsetFile(path).read() == {QUEUE: 5}
    await offsets.commit()
    assert OffsetFile(path).read() == {QUEUE: 7}
    fields = f"group=g path={path}"
    assert [record.message for record in caplog.records] == [
        f"local offset commit failed, retrying: {fields} retry_in=5 error=[Errno 28] No space left on device",
        f"local offset commit succeeded again: {fields} failures=2 seconds=0",
    ]


async def test_a_commit_to_a_hanging_disk_can_be_cancelled(
    offsets: LocalOffsetStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await offsets.open()
    resume, is_hanging, sync = threading.Event(), threading.Event(), os.fsync

    def hang(descriptor: int) -> None:
        is_hanging.set()
        resume.wait()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", hang)
    offsets.update(QUEUE, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offsets.commit)
        while not is_hanging.is_set():
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    # The next commit waits for the abandoned write and replaces it.
    offsets.update(QUEUE, 6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offsets.commit)
        await trio.sleep(0.01)
        resume.set()
    assert OffsetFile(path).read() == {QUEUE: 6}


async def test_an_abandoned_write_does_not_overwrite_the_file_of_the_next_store(
    offsets: LocalOffsetStore, client: Client, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await offsets.open()
    resume, is_hanging, sync = threading.Event(), threading.Event(), os.fsync

    def hang(descriptor: int) -> None:
        is_hanging.set()
        resume.wait()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", hang)
    offsets.update(QUEUE, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offsets.commit)
        while not is_hanging.is_set():
            await trio.sleep(0.001)
        nursery.start_soon(offsets.commit)  # waits for the first one
        await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    offsets.close()
    second = LocalOffsetStore(core_of(client), "g", path, interval=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.open)
        await trio.sleep(0.01)
        resume.set()
    second.update(OTHER, 9)
    await second.commit()
    second.close()
    assert OffsetFile(path).read()[OTHER] == 9
    assert await second.read(QUEUE) in (5, None)


def test_only_the_last_file_that_opened_a_path_can_write_it(path: Path) -> None:
    first, second = OffsetFile(path), OffsetFile(path)
    first.open()
    first.write(OLD, 1)
    assert second.open() == OLD
    first.write({}, 2)
    assert second.read() == OLD
    second.write(NEW, 1)
    assert OffsetFile(path).read() == NEW


async def test_open_and_commit_can_be_cancelled_at_each_await(client: Client, path: Path) -> None:
    numbers = itertools.count(1)

    async def open_and_write() -> None:
        offsets = LocalOffsetStore(core_of(client), "g", path, interval=5)
        await offsets.open()
        try:
            offsets.update(QUEUE, next(numbers))
            await offsets.commit()
        finally:
            offsets.close()

    async def check() -> None:
        # An abandoned write may still be running.
        with trio.fail_after(60):
            while list(path.parent.glob("*.tmp")):
                await trio.sleep(0.001)
        OffsetFile(path).read()

    assert await cancel_at_each_await(open_and_write, check) >= 2
