"""Where a broadcasting consumer goes on in each queue, kept in a file of its own."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.errors import ConfigurationError, LocalOffsetsError, ProtocolError, RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ResetOffsets

logger: Final = logging.getLogger("rocketmq_py.consumer")

DEFAULT_INSTANCE = "DEFAULT"
"""The name of an instance that was given none. Java: ``ClientConfig.instanceName``."""

# The "=" of the escapes is escaped as well, so that different names stay different.
_REFUSED_BY_WINDOWS: Final = re.compile(r'[<>:"/\\|?*=]|[. ]$')


def default_folder() -> Path:
    """Return where Java's clients keep local offsets too (rocketmq.client.localOffsetStoreDir)."""
    return Path.home() / ".rocketmq_offsets"


def offsets_path(folder: Path, client: Client, group: str) -> Path:
    """Return the file for a group's offsets: ``folder/address@instance/group/offsets.json``.

    The path does not depend on the process, so that a restarted process finds the file again. Characters
    that Windows refuses in names, such as the colons of an IPv6 address, are written as ``=`` and two hex
    digits.
    """
    config = client.config
    unit = f"@{config.unit_name}" if config.unit_name else ""
    owner = f"{client.host}@{config.instance_name or DEFAULT_INSTANCE}{unit}"
    return folder / _escaped(owner) / _escaped(client.namespace.wrap_group(group)) / "offsets.json"


def _escaped(name: str) -> str:
    return _REFUSED_BY_WINDOWS.sub(lambda match: f"={ord(match[0]):02X}", name)


@attrs.define(eq=False)
class _Turn:
    """Who may write to a path. A write that was abandoned may outlast the consumer that it was for."""

    lock: threading.Lock = attrs.field(factory=threading.Lock)
    owner: OffsetFile | None = None


_turns: dict[Path, _Turn] = {}


class OffsetFile:
    """Offsets in a file, in the form of Java's ``LocalFileOffsetStore``.

    At each moment of a write the offsets of this one or of the last one can be read: they are written to a
    file of their own, which is on the disk before it takes the name; what had the name becomes the backup.
    The methods block; threads may call them at the same time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._backup = path.with_name(f"{path.name}.bak")
        self._new = path.with_name(f"{path.name}.tmp")
        self._turn = _turns.setdefault(path, _Turn())
        self._newest = 0
        self._is_sound = True

    def open(self) -> dict[MessageQueue, int]:
        """Read, as :meth:`read` does, when no write is under way; those who had it open write no more."""
        with self._turn.lock:
            self._turn.owner = self
            return self.read()

    def read(self) -> dict[MessageQueue, int]:
        """Return the offsets; none if there is no file.

        Raises:
            LocalOffsetsError: neither the file nor its backup can be read.
        """
        reasons = []
        for path in (self.path, self._backup):
            try:
                offsets = ResetOffsets.decode(path.read_bytes()).offset_table
            except FileNotFoundError:
                continue
            except (OSError, ProtocolError) as error:
                reasons.append(f"{path}: {error}")
                self._is_sound = False
            else:
                if reasons:
                    logger.warning("local offsets cannot be read (%s); using %s", reasons[0], path)
                return dict(offsets)
        if reasons:
            raise LocalOffsetsError("; ".join(reasons))
        return {}

    def write(self, offsets: Mapping[MessageQueue, int], number: int) -> None:
        """Have the file hold these offsets. One that comes after a later one, by its number, writes nothing.

        Raises OSError; the offsets that were there before are there still.
        """
        data = ResetOffsets(offsets).encode()
        with self._turn.lock:
            if number <= self._newest or self._turn.owner not in (self, None):
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with self._new.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    self._new.unlink()  # what is left of it may take the last space on the disk
                raise
            if self._is_sound:  # else the backup is better than what it would be replaced with
                with suppress(FileNotFoundError):
                    os.replace(self.path, self._backup)
            os.replace(self._new, self.path)
            self._is_sound = True
            _sync_folder(self.path.parent)
            self._newest = number


def _sync_folder(folder: Path) -> None:
    """Have the names of a folder's files on the disk, where a system can do that."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_in_use: set[Path] = set()  # by consumers of this process


class LocalOffsetStore:
    """The offsets of one broadcasting consumer, written now and then. Java: ``LocalFileOffsetStore``.

    The file is read and written in threads. A write that fails is logged, and made up for by the next.

    Args:
        client: whose namespace the names in the file have.
        group: the consumer's group.
        path: the file.
        interval: seconds between two writes, for the log.
    """

    def __init__(self, client: Client, group: str, path: Path, *, interval: float) -> None:
        self._interval = interval
        self._namespace = client.namespace
        self._group = group
        self._file = OffsetFile(path)
        self._offsets: dict[MessageQueue, int] = {}
        self._written: dict[MessageQueue, int] = {}
        self._writes = 0
        self._retry_log = RetryLog(logger, "local offset write", group=group, path=path)

    async def open(self) -> None:
        """Read the file.

        Raises:
            ConfigurationError: another consumer of this process uses it.
            LocalOffsetsError: it cannot be read, nor its backup.
        """
        path = self._file.path
        if path in _in_use:
            raise ConfigurationError(
                f"another consumer of group {self._group!r} in this process keeps its offsets in {path}: "
                "give each client an instance_name, which stays the same when it is started anew"
            )
        _in_use.add(path)
        try:
            table = await trio.to_thread.run_sync(self._file.open, abandon_on_cancel=True)
        except BaseException:
            self.close()
            raise
        unwrap = self._namespace.unwrap_topic
        offsets = {attrs.evolve(queue, topic=unwrap(queue.topic)): offset for queue, offset in table.items()}
        self._offsets, self._written = offsets, dict(offsets)

    def close(self) -> None:
        """Let another consumer use the file."""
        _in_use.discard(self._file.path)

    async def read(self, queue: MessageQueue, *, zero_if_new: bool = True) -> int | None:
        """Return where the consumer goes on; None if it has never been in the queue."""
        return self._offsets.get(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return what the file says of the queue; None if nothing."""
        return self.written(queue)

    def written(self, queue: MessageQueue) -> int | None:
        """Return the offset that is in the file; None if there is none."""
        return self._written.get(queue)

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Note where the consumer goes on; it is written at the next occasion."""
        self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Do nothing: nobody else goes on in this consumer's place."""

    def has_entry(self, queue: MessageQueue) -> bool:
        """Return False: the broker need not know how far a broadcasting consumer has come."""
        return False

    async def write(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Write all offsets if any has changed, whichever queues are named. Failures are logged."""
        if self._offsets == self._written:
            return
        offsets = dict(self._offsets)
        wrap = self._namespace.wrap_topic
        table = {attrs.evolve(queue, topic=wrap(queue.topic)): offset for queue, offset in offsets.items()}
        self._writes += 1
        try:
            # Abandoned, it may still come to its end: the next one then waits for it.
            await trio.to_thread.run_sync(
                partial(self._file.write, table, self._writes), abandon_on_cancel=True
            )
        except OSError as error:
            self._retry_log.failed(error, retry_in=self._interval)
        else:
            self._written = offsets
            self._retry_log.succeeded()

    async def confirm(
        self, queues: Iterable[MessageQueue] | None = None
    ) -> Mapping[MessageQueue, RocketMQError]:
        """Write as :meth:`write` does; there is no failure to return."""
        await self.write(queues)
        return {}
