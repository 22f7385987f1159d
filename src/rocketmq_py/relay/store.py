"""What a relay keeps on disk: the messages that wait, in the order in which they are due.

All of it can be read again from the buffer topic, as long as that has not expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Self

import attrs

from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.relay.entries import Cancellation, Entry, Progress, Waiting

if TYPE_CHECKING:
    from rocksdict import Rdict, WriteBatch, WriteOptions

NEVER_MS = 2**63 - 1
"""A time after all others."""

WRITE_BUFFER = 8 * 1024 * 1024
"""Bytes that RocksDB gathers in memory before it writes a file; it has two of these."""

# The kinds of records. A key is the kind, the number of the buffer queue, and what is said here.
_QUEUE = b"q"  # the queue's name (and no number) -> its number, and the offset to read next if any was read
_WAITING = b"w"  # due time, offset -> the message
_HELD = b"h"  # target topic, a zero byte, due time, offset -> a message that is due and could not be sent
_ID = b"i"  # message id -> the key under which the message is


class StoreError(RocketMQError):
    """The store could not be written, for want of space for example. What was in it before is still there."""


@attrs.frozen
class Stored:
    """A message in the store, and the key under which it is."""

    key: bytes
    message: Waiting


class Store:
    """A folder with the messages that wait, of all buffer queues that this process has had.

    Its methods block, for as long as the disk does, and raise StoreError.

    Args:
        folder: made if it is missing. One process at a time may have it open to write.
        read_only: only look; another process may have it open to write at the same time.

    Raises:
        ConfigurationError: ``rocksdict`` is not installed, another relay has the folder open, or there is
            no store in it to read.
    """

    def __init__(self, folder: Path | str, *, read_only: bool = False) -> None:
        self.folder: Path = Path(folder)
        self._database = _open(self.folder, read_only=read_only)
        self._moving = Lock()

    def queue(self, queue: MessageQueue) -> QueueStore:
        """Return what is kept of one buffer queue."""
        name = _QUEUE + f"{queue.topic}\0{queue.broker_name}\0{queue.queue_id}".encode()
        record = self._database.get(name)
        if record is None:
            taken = [_number(value[:4]) for _, value in self._records(_QUEUE)]
            record = (1 + max(taken, default=0)).to_bytes(4, "big")
            self._database.put(name, record)
        next_offset = _number(record[4:]) if len(record) > 4 else None
        return QueueStore(self._database, self._moving, name, record[:4], next_offset)

    def queues(self) -> list[MessageQueue]:
        """Return the buffer queues of which anything is kept."""
        found = []
        for key, _ in self._records(_QUEUE):
            topic, broker_name, queue_id = key[1:].decode().split("\0")
            found.append(MessageQueue(topic, broker_name, int(queue_id)))
        return sorted(found)

    def close(self) -> None:
        """Close it; what was written is on the disk."""
        with _errors():
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _records(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return _records(self._database, prefix, prefix)


class QueueStore:
    """What is kept of one buffer queue.

    Attributes:
        next_offset: the offset to read next, as it is on the disk; None if nothing was ever read.
    """

    def __init__(
        self, database: Rdict, moving: Lock, name: bytes, number: bytes, next_offset: int | None
    ) -> None:
        self._database = database
        # Whoever puts messages aside must not bring back one that another thread cancels.
        self._moving = moving
        self._name = name
        self._number = number
        self._waiting = _WAITING + self._number
        self._held = _HELD + self._number
        # Nothing waits before this key: to go over very many that RocksDB has not cleared away yet, for each
        # record of progress, would take long. Whoever writes changes it.
        self._floor = self._waiting
        self.next_offset = next_offset

    def write(self, entries: Iterable[tuple[int, Entry]], next_offset: int) -> int:
        """Keep what was read of the buffer queue, and have it on the disk before this returns.

        Args:
            entries: each with its offset, in the order of these. What is kept already does no harm.
            next_offset: the offset to read next.

        Returns:
            The earliest time at which one of the new messages is due; NEVER_MS if there are none.
        """
        with self._moving:
            return self._write_entries(entries, next_offset)

    def _write_entries(self, entries: Iterable[tuple[int, Entry]], next_offset: int) -> int:
        earliest = NEVER_MS
        batch = _batch()
        for offset, entry in entries:
            if isinstance(entry, Waiting):
                key = self._waiting + _number_bytes(entry.due_ms) + _number_bytes(offset)
                batch.put(key, entry.encode())
                batch.put(self._id_key(entry.message_id), key)
                self._floor = min(self._floor, key)
                earliest = min(earliest, entry.due_ms)
                continue
            # Both speak of messages that came before: those have to be found.
            self._write(batch, synced=False)
            batch = _batch()
            if isinstance(entry, Cancellation):
                self._cancel(entry, batch)
            else:
                self._pass_over(entry, batch)
        batch.put(self._name, self._number + _number_bytes(next_offset))
        self._write(batch, synced=True)
        self.next_offset = next_offset
        return earliest

    def due(self, after: bytes, now_ms: int, limit: int) -> list[Stored]:
        """Return the messages that are due, ``limit`` at the most, in the order of their times.

        Args:
            after: only what comes after this key; empty for all.
            now_ms: the present, epoch milliseconds.
            limit: how many at the most.
        """
        found: list[Stored] = []
        end = self._waiting + _number_bytes(now_ms + 1)
        for key, value in _records(self._database, self._waiting, after + b"\0" if after else self._waiting):
            if key >= end or len(found) == limit:
                break
            found.append(Stored(key, Waiting.decode(value)))
        return found

    def next_due_ms(self, after: bytes = b"") -> int:
        """Return when the next message after a key is due; NEVER_MS if none waits."""
        for key, _ in _records(self._database, self._waiting, after + b"\0" if after else self._waiting):
            return _number(key[5:13])
        return NEVER_MS

    def held_topics(self) -> list[str]:
        """Return the target topics of the messages that are due and could not be sent."""
        topics: list[str] = []
        start = self._held
        while True:
            key = next((key for key, _ in _records(self._database, self._held, start)), None)
            if key is None:
                return topics
            topics.append(_target_of(key))
            start = self._held + topics[-1].encode() + b"\x01"

    def before(self, due_ms: int) -> bytes:
        """Return a key after which all that is due at ``due_ms`` or later comes."""
        return self._waiting + _number_bytes(due_ms)

    def held(self, topic: str, after: bytes, limit: int) -> list[Stored]:
        """Return the messages for a topic that are due and could not be sent; see :meth:`due`."""
        prefix = self._held + topic.encode() + b"\0"
        found: list[Stored] = []
        for key, value in _records(self._database, prefix, after + b"\0" if after else prefix):
            if len(found) == limit:
                break
            found.append(Stored(key, Waiting.decode(value)))
        return found

    def hold(self, messages: Iterable[Stored]) -> None:
        """Put messages aside that could not be sent, so that those for other topics need not wait.

        One that has been cancelled since it was read stays so.
        """
        batch = _batch()
        with self._moving:
            for stored in messages:
                message = stored.message
                if stored.key not in self._database:
                    continue
                key = self._held + message.topic.encode() + b"\0" + stored.key[-16:]
                batch.delete(stored.key)
                batch.put(key, message.encode())
                batch.put(self._id_key(message.message_id), key)
            self._write(batch, synced=True)

    def remove(self, messages: Iterable[Stored]) -> None:
        """Forget messages that a broker has acknowledged."""
        batch = _batch()
        for stored in messages:
            batch.delete(stored.key)
            batch.delete(self._id_key(stored.message.message_id))
        # Not synced: what a crash brings back is delivered again, with the same id.
        self._write(batch, synced=False)

    def earliest_ms(self, after: bytes = b"") -> int:
        """Return when the first of the messages is due that wait after a key, or could not be sent."""
        due_ms = self.next_due_ms(after)
        for topic in self.held_topics():
            due_ms = min(due_ms, *(stored.message.due_ms for stored in self.held(topic, b"", 1)))
        return due_ms

    def waiting(self) -> Iterator[Waiting]:
        """Return all messages that wait, those that could not be sent first."""
        for prefix in (self._held, self._waiting):
            for _, value in _records(self._database, prefix, prefix):
                yield Waiting.decode(value)

    def _write(self, batch: WriteBatch, *, synced: bool) -> None:
        with _errors():
            self._database.write(batch, _write_options(synced))

    def _cancel(self, cancellation: Cancellation, batch: WriteBatch) -> None:
        id_key = self._id_key(cancellation.message_id)
        key = self._database.get(id_key)
        if key is not None:
            batch.delete(key)
            batch.delete(id_key)

    def _pass_over(self, progress: Progress, batch: WriteBatch) -> None:
        """Forget what another owner of the queue has delivered."""
        for key, value in self._delivered(progress):
            batch.delete(key)
            batch.delete(self._id_key(Waiting.decode(value).message_id))

    def _delivered(self, progress: Progress) -> Iterator[tuple[bytes, bytes]]:
        floor = end = self._waiting + _number_bytes(progress.due_ms)
        for key, value in _records(self._database, self._waiting, self._floor):
            if key >= end:
                break
            if _number(key[-8:]) < progress.offset:
                yield key, value
            else:
                floor = min(floor, key)
        self._floor = max(self._floor, floor)
        for key, value in _records(self._database, self._held, self._held):
            if _number(key[-16:-8]) < progress.due_ms and _number(key[-8:]) < progress.offset:
                yield key, value

    def _id_key(self, message_id: str) -> bytes:
        return _ID + self._number + message_id.encode()


def _records(database: Rdict, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Return the records from ``start`` on whose keys begin with ``prefix``."""
    for key, value in database.items(from_key=start):
        assert isinstance(key, bytes)  # what else it could be goes with modes that are not used
        if not key.startswith(prefix):
            return
        yield key, value


def _target_of(key: bytes) -> str:
    return key[5 : key.index(b"\0", 5)].decode()


def _number_bytes(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _open(folder: Path, *, read_only: bool) -> Rdict:
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError:
        raise ConfigurationError("a relay needs RocksDB: pip install 'rocketmq-py[relay]'") from None
    options = Options(raw_mode=True)
    options.create_if_missing(not read_only)
    options.set_write_buffer_size(WRITE_BUFFER)
    options.set_max_write_buffer_number(2)
    options.set_keep_log_file_num(2)
    try:
        if read_only:
            return Rdict(str(folder), options, access_type=AccessType.read_only(False))
        folder.mkdir(parents=True, exist_ok=True)
        return Rdict(str(folder), options)
    except OSError as error:
        raise ConfigurationError(f"the store {folder} cannot be made: {error}") from None
    except Exception as error:  # noqa: BLE001  # RocksDB's have no class of their own
        if "lock" in str(error).lower():
            raise ConfigurationError(f"the store {folder} is in use by another relay") from None
        raise ConfigurationError(f"the store {folder} cannot be opened: {error}") from None


def _batch() -> WriteBatch:
    from rocksdict import WriteBatch

    return WriteBatch(raw_mode=True)


def _write_options(synced: bool) -> WriteOptions:
    from rocksdict import WriteOptions

    options = WriteOptions()
    options.sync = synced
    return options


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  # RocksDB has no class of its own for them
        raise StoreError(f"the store cannot be written: {error}") from None
