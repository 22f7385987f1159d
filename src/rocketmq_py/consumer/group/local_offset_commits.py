"""Commit the offsets of a broadcasting consumer to a local file."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.errors import ConfigurationError, ProtocolError, RocketMQError, StoreError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ResetOffsets

logger: Final = LibraryLogger("rocketmq_py.consumer")

DEFAULT_INSTANCE = "DEFAULT"
"""The instance name of a client without ``instance_name``. Java: ``ClientConfig.instanceName``."""

# "=" introduces an escape, so it is escaped as well: different names give different paths.
_REFUSED_BY_WINDOWS: Final = re.compile(r'[<>:"/\\|?*=]|[. ]$')


def default_folder() -> Path:
    """Return the default folder of local offsets, which Java clients use too (localOffsetStoreDir)."""
    return Path.home() / ".rocketmq_offsets"


def offsets_path(folder: Path, client: ClientCore, group: str) -> Path:
    """Return the path of a group's offset file: ``folder/address@instance/group/offsets.json``.

    The path does not depend on the process, so that a restarted process finds the file again. Characters
    that Windows refuses in names, such as the colons of an IPv6 address, are escaped as ``=`` and two hex
    digits. The names in path and file are those on the wire, because Java clients use the file, too.
    """
    config = client.settings
    unit = f"@{config.unit_name}" if config.unit_name else ""
    owner = f"{client.host}@{config.instance_name or DEFAULT_INSTANCE}{unit}"
    return folder / _escaped(owner) / _escaped(client.namespace.wrap_group(group)) / "offsets.json"


def _escaped(name: str) -> str:
    return _REFUSED_BY_WINDOWS.sub(lambda match: f"={ord(match[0]):02X}", name)


@attrs.define(eq=False)
class _Ownership:
    """The OffsetFile that may write to a path.

    A cancelled consumer abandons the thread that writes its file. The ownership keeps such a late write from
    overwriting the file of the next consumer.
    """

    lock: threading.Lock = attrs.field(factory=threading.Lock)
    owner: OffsetFile | None = None


_ownerships: dict[Path, _Ownership] = {}

OLD_SECONDS = 3600.0
"""The age of a temporary file that no process writes any more."""


class OffsetFile:
    """A JSON file of offsets, in the format of Java's ``LocalFileOffsetStore``.

    A write is atomic. It syncs the offsets to a temporary file and then renames that file, so that a crash
    leaves either the previous or the new offsets. The previous file becomes the backup. Processes that share
    the file by mistake do not damage it, but overwrite each other's offsets, which is logged. The methods
    block, and are thread-safe.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._backup = path.with_name(f"{path.name}.bak")
        # Containers that share a volume may have the same process id.
        self._temporary = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
        self._ownership = _ownerships.setdefault(path, _Ownership())
        self._last_write = 0
        self._written: tuple[int, int] | None = None  # the identity of the file after the last write
        self._is_shared = False
        self._is_readable = True

    def open(self) -> dict[MessageQueue, int]:
        """Become the only writer of the path, and read the offsets as :meth:`read` does."""
        with self._ownership.lock:
            self._ownership.owner = self
            self._remove_old_temporary_files()
            return self.read()

    def _remove_old_temporary_files(self) -> None:
        """Remove the temporary files of killed processes."""
        for path in self.path.parent.glob(f"{self.path.name}.*.tmp"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > OLD_SECONDS:
                    path.unlink()

    def read(self) -> dict[MessageQueue, int]:
        """Return the offsets in the file, or in its backup. Empty if there is no file.

        Raises:
            StoreError: neither the file nor its backup can be read.
        """
        reasons: dict[Path, OSError | ProtocolError] = {}
        for path in (self.path, self._backup):
            try:
                offsets = ResetOffsets.decode(path.read_bytes()).offset_table
            except FileNotFoundError:
                continue
            except (OSError, ProtocolError) as error:
                reasons[path] = error
                self._is_readable = False
            else:
                if reasons:
                    logger.warning(
                        "could not read local offsets (%s); using the backup %s", _text(reasons), path
                    )
                return dict(offsets)
        if reasons:
            raise StoreError(
                f"local offsets cannot be read ({_text(reasons)}); repair or remove these files. Without "
                "them, the consumer starts at its consume_from"
            )
        return {}

    def write(self, offsets: Mapping[MessageQueue, int], number: int) -> None:
        """Replace the offsets in the file.

        Does nothing if a write with a higher ``number`` came first, or if another OffsetFile has opened the
        path. Raises OSError, and then the previous offsets are still readable.
        """
        data = ResetOffsets(offsets).encode()
        with self._ownership.lock:
            if number <= self._last_write or self._ownership.owner not in (self, None):
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with self._temporary.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                written = _identity(self._temporary)
            except OSError:
                with suppress(OSError):
                    self._temporary.unlink()  # a partial file could use the last free disk space
                raise
            self._check_sole_writer()
            if self._is_readable:  # an unreadable file must not replace a good backup
                with suppress(FileNotFoundError):
                    os.replace(self.path, self._backup)
            os.replace(self._temporary, self.path)
            self._written = written
            self._is_readable = True
            _sync_folder(self.path.parent)
            self._last_write = number

    def _check_sole_writer(self) -> None:
        """Warn once if another process has replaced the file since the last write."""
        if self._written is None or self._is_shared:
            return
        with suppress(FileNotFoundError):
            self._is_shared = _identity(self.path) != self._written
        if self._is_shared:
            logger.warning(
                "local offsets are overwritten by another process: path=%s; give each process its own "
                "instance_name",
                self.path,
            )


def _identity(path: Path) -> tuple[int, int]:
    """Return the inode and the time of the last change. A file that replaces another has others."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def _text(reasons: Mapping[Path, OSError | ProtocolError]) -> str:
    return "; ".join(f"{path}: {error}" for path, error in reasons.items())


def _sync_folder(folder: Path) -> None:
    """Sync a folder to the disk so that renames in it survive a crash. Not supported on Windows."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_open_paths: set[Path] = set()
"""The offset files of the open consumers of this process."""


class LocalOffsetStore:
    """Commits the offsets of a broadcasting consumer to a file. Java: ``LocalFileOffsetStore``.

    The file is read and written in worker threads. A failed commit is logged, and the next one repairs it.

    Args:
        client: provides the namespace of the topic names in the file.
        group: the consumer group.
        path: the offset file.
        interval: seconds between two commits, for log lines.
    """

    def __init__(self, client: ClientCore, group: str, path: Path, *, interval: float) -> None:
        self._interval = interval
        self._namespace = client.namespace
        self._group = group
        self._file = OffsetFile(path)
        self._offsets: dict[MessageQueue, int] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._commits = 0
        self._retry_log = RetryLog(logger, "local offset commit", group=group, path=path)

    async def open(self) -> None:
        """Read the file.

        Raises:
            ConfigurationError: another open consumer of this process uses the file.
            StoreError: neither the file nor its backup can be read.
        """
        path = self._file.path
        if path in _open_paths:
            raise ConfigurationError(
                f"offset file {path} is used by another consumer of group {self._group!r} in this process. "
                "Give each client its own instance_name, and keep it across restarts"
            )
        _open_paths.add(path)
        try:
            table = await trio.to_thread.run_sync(self._file.open, abandon_on_cancel=True)
        except BaseException:
            self.close()
            raise
        offsets = self._namespace.unwrap(table)
        self._offsets, self._committed = offsets, dict(offsets)

    def close(self) -> None:
        """Allow another consumer to open the file."""
        _open_paths.discard(self._file.path)

    async def read(self, queue: MessageQueue, *, zero_if_new: bool = True) -> int | None:
        """Return the offset to start from. None if the consumer has never consumed the queue."""
        return self._offsets.get(queue)

    async def query_committed(self, queue: MessageQueue) -> int | None:
        """Return the offset in the file. None if there is none."""
        return self.last_committed(queue)

    def last_committed(self, queue: MessageQueue) -> int | None:
        """Return the offset in the file. None if there is none."""
        return self._committed.get(queue)

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset that the next commit writes."""
        self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Do nothing: no other member takes over the queues of a broadcasting consumer."""

    def has_been_committed(self, queue: MessageQueue) -> bool:
        """Whether the queue has an offset, because only this consumer writes it."""
        return queue in self._offsets

    def may_commit_by_pull(self, queue: MessageQueue) -> bool:
        """Return False: brokers do not store the offsets of broadcasting consumers."""
        return False

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Write the offsets of all queues, including those not in ``queues``, if any has changed.

        Failures are logged.
        """
        if self._offsets == self._committed:
            return
        offsets = dict(self._offsets)
        table = self._namespace.wrap(offsets)
        self._commits += 1
        try:
            # A cancelled commit leaves the thread running. OffsetFile makes the next write wait for it.
            await trio.to_thread.run_sync(
                partial(self._file.write, table, self._commits), abandon_on_cancel=True
            )
        except OSError as error:
            self._retry_log.failed(error, retry_in=self._interval)
        else:
            self._committed = offsets
            self._retry_log.succeeded()

    async def commit_and_wait(
        self, queues: Iterable[MessageQueue] | None = None
    ) -> Mapping[MessageQueue, RocketMQError]:
        """Write the offsets as :meth:`commit` does. Failures are logged, so the result is empty."""
        await self.commit(queues)
        return {}
