"""The store of a relay on disk, a RocksDB database: delayed messages, sorted by due time.

All of it can be read again from the buffer topic, as long as the messages there have not expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Self

import attrs

from rocketmq_py.errors import ConfigurationError, StoreError
from rocketmq_py.message import MessageQueue
from rocketmq_py.relay.buffer_entries import BufferEntry, Cancellation, DelayedMessage, Progress

if TYPE_CHECKING:
    from rocksdict import Rdict, WriteBatch

WRITE_BUFFER = 8 * 1024 * 1024
"""Bytes of each of RocksDB's two write buffers in memory."""


class Database:
    """A folder of records, sorted by their keys.

    Its methods block for as long as the disk takes, and raise StoreError.

    Args:
        folder: the folder. Created if it is missing. One process at a time can open it for writing.
        read_only: open the folder for reading. Another process may have it open for writing.

    Raises:
        ConfigurationError: ``rocksdict`` is not installed, another relay has opened the folder, or there is
            no database to read in it.
    """

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self._records = _open(folder, read_only=read_only)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a record, None if there is none."""
        # Fast path: no context manager, saves 10 % of the CPU of writing a message.
        try:
            value: bytes | None = self._records.get(key)
        except Exception as error:  # noqa: BLE001  # RocksDB's errors have no class of their own
            raise _store_error(error) from None
        return value

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the records whose keys begin with ``prefix``, from the key ``start`` on."""
        with _translate_errors():
            records = self._records.iter()  # items() would end at a read error, without raising it
            records.seek(start or prefix)
            while records.valid():
                key: bytes = records.key()
                if not key.startswith(prefix):
                    return
                yield key, records.value()
                records.next()
            records.status()  # raises the error if one has ended the iteration

    def put(self, key: bytes, value: bytes) -> None:
        """Write a record, without syncing it to the disk."""
        with _translate_errors():
            self._records.put(key, value)

    @staticmethod
    def new_batch() -> WriteBatch:
        """Return an empty batch of changes for :meth:`write`."""
        from rocksdict import WriteBatch

        return WriteBatch(raw_mode=True)

    def write(self, batch: WriteBatch, *, synced: bool) -> None:
        """Apply all changes of a batch or none. ``synced`` waits until they are on the disk."""
        from rocksdict import WriteOptions

        options = WriteOptions()
        options.sync = synced
        with _translate_errors():
            self._records.write(batch, options)

    def close(self) -> None:
        """Close the database. All changes are on the disk then."""
        with _translate_errors():
            self._records.close()


def _open(folder: Path, *, read_only: bool) -> Rdict:
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError:
        raise ConfigurationError("a relay needs RocksDB: install rocketmq-py[relay]") from None
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
        raise ConfigurationError(f"the store {folder} cannot be created: {error}") from None
    except Exception as error:  # noqa: BLE001  # RocksDB's errors have no class of their own
        if "lock" in str(error).lower():
            raise ConfigurationError(f"the store {folder} is in use by another relay") from None
        raise ConfigurationError(f"the store {folder} cannot be opened: {error}") from None


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise the errors of RocksDB as StoreError."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # RocksDB's errors have no class of their own
        raise _store_error(error) from None


def _store_error(error: Exception) -> StoreError:
    return StoreError(f"the store cannot be used: {error}")


NEVER_MS = 2**63 - 1
"""A time after all others."""

# The kinds of records. A key consists of the kind, the number of the buffer queue, and the part given here.
_QUEUE = b"q"  # the queue's name, without a number -> its number, and the offset to read next if it was read
_WAITING = b"w"  # due time, offset -> a message that has not been deferred
_DEFERRED = b"h"  # (held) target topic, a zero byte, due time, offset -> a message that could not be sent
_ID = b"i"  # message id -> the key of the only message that has had this id
_SHARED_ID = b"s"  # message id of several different messages, a zero byte, key of a message -> unused


@attrs.frozen
class StoreRecord:
    """A message in the store and its key."""

    key: bytes
    message: DelayedMessage


class Store:
    """A folder with the delayed messages of all buffer queues that this relay has owned.

    Its methods block for as long as the disk takes, and raise StoreError.

    Args:
        folder: the folder. Created if it is missing. One process at a time can open it for writing.
        read_only: open the folder for reading. Another process may have it open for writing.

    Raises:
        ConfigurationError: ``rocksdict`` is not installed, another relay has opened the folder, or there is
            no store to read in it.
    """

    def __init__(self, folder: Path | str, *, read_only: bool = False) -> None:
        self.folder: Path = Path(folder)
        self._database = Database(self.folder, read_only=read_only)
        self._write_lock = Lock()

    def open_queue(self, queue: MessageQueue) -> QueueStore:
        """Return the store of a buffer queue. Creates its record if it is missing."""
        record_key = _QUEUE + f"{queue.topic}\0{queue.broker_name}\0{queue.queue_id}".encode()
        record = self._database.get(record_key)
        if record is None:
            numbers = [_decode_int(value[:4]) for _, value in self._database.scan(_QUEUE)]
            record = (1 + max(numbers, default=0)).to_bytes(4, "big")
            self._database.put(record_key, record)
        next_offset = _decode_int(record[4:]) if len(record) > 4 else None
        return QueueStore(self._database, self._write_lock, record_key, record[:4], next_offset)

    def queues(self) -> list[MessageQueue]:
        """Return the buffer queues that the folder has a store of."""
        found = []
        for key, _ in self._database.scan(_QUEUE):
            topic, broker_name, queue_id = key[1:].decode().split("\0")
            found.append(MessageQueue(topic, broker_name, int(queue_id)))
        return sorted(found)

    def close(self) -> None:
        """Close the store. All writes are on the disk then."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class QueueStore:
    """The delayed messages of a buffer queue.

    Attributes:
        next_offset: the offset to read next, as on the disk; None if no message was ever read.
    """

    def __init__(
        self,
        database: Database,
        write_lock: Lock,
        record_key: bytes,
        queue_number: bytes,
        next_offset: int | None,
    ) -> None:
        self._database = database
        # Deferring a message must not restore one that another thread cancels at the same time.
        self._write_lock = write_lock
        self._record_key = record_key
        self._queue_number = queue_number
        self._waiting_prefix = _WAITING + self._queue_number
        self._deferred_prefix = _DEFERRED + self._queue_number
        self._id_prefix = _ID + self._queue_number
        # There are no waiting records before this key. It saves the iteration over many deleted records that
        # RocksDB has not compacted yet, for each record of progress. Only writes change it.
        self._floor = self._waiting_prefix
        # Ids that several different messages have, or had. A Java producer that changes a Message object and
        # sends it again keeps its id. In memory, so that removing other messages needs no lookup.
        self._shared_ids = {_text(key) for key, _ in database.scan(_SHARED_ID + queue_number)}
        self.next_offset = next_offset

    def write(self, entries: Iterable[tuple[int, BufferEntry]], next_offset: int) -> int:
        """Write entries of the buffer queue, and sync them to the disk.

        Args:
            entries: offsets and entries, in the order of the offsets. Messages that the store has already are
                ignored: a producer's retry after a timeout may be in the queue twice.
            next_offset: the offset to read next.

        Returns:
            When the first of the new messages is due; NEVER_MS if there are none.
        """
        with self._write_lock:
            return self._write_entries(entries, next_offset)

    def _write_entries(self, entries: Iterable[tuple[int, BufferEntry]], next_offset: int) -> int:
        earliest = NEVER_MS
        batch = self._database.new_batch()
        batch_ids: set[str] = set()
        for offset, entry in entries:
            if not isinstance(entry, DelayedMessage) or entry.message_id in batch_ids:
                # The entry refers to earlier messages, which must be in the database to be found.
                self._database.write(batch, synced=False)
                batch, batch_ids = self._database.new_batch(), set()
            if isinstance(entry, DelayedMessage):
                batch_ids.add(entry.message_id)
                if self._add(offset, entry, batch):
                    earliest = min(earliest, entry.due_ms)
            elif isinstance(entry, Cancellation):
                self._cancel(entry)
            else:
                self._apply_progress(entry)
        batch.put(self._record_key, self._queue_number + _encode_int64(next_offset))
        self._database.write(batch, synced=True)
        self.next_offset = next_offset
        return earliest

    def _add(self, offset: int, message: DelayedMessage, batch: WriteBatch) -> bool:
        """Add a message. Returns False if the database has it already."""
        value = message.encode()
        if same_id := self._keys_of(message.message_id):
            if any(self._database.get(key) == value for key in same_id):
                return False
            self._share_id(message.message_id, same_id, batch)
        key = self._waiting_prefix + _encode_int64(message.due_ms) + _encode_int64(offset)
        batch.put(key, value)
        batch.put(self._id_key(message.message_id, key), key)
        self._floor = min(self._floor, key)
        return True

    # Messages

    def due(self, after: bytes, now_ms: int, limit: int) -> list[StoreRecord]:
        """Return the messages that are due, in the order of their due times.

        Args:
            after: return messages after this key only; empty for all.
            now_ms: the current time, epoch milliseconds.
            limit: the maximum number of messages.
        """
        found: list[StoreRecord] = []
        end = self._waiting_prefix + _encode_int64(now_ms + 1)
        for key, value in self._records_after(self._waiting_prefix, after):
            if key >= end or len(found) == limit:
                break
            found.append(StoreRecord(key, DelayedMessage.decode(value)))
        return found

    def next_due_ms(self, after: bytes = b"") -> int:
        """Return when the next message after a key is due; NEVER_MS if there is none."""
        for key, _ in self._records_after(self._waiting_prefix, after):
            return _due_ms(key)
        return NEVER_MS

    def key_before(self, due_ms: int) -> bytes:
        """Return a key that precedes the keys of all messages that are due at ``due_ms`` or later."""
        return self._waiting_prefix + _encode_int64(due_ms)

    def remove(self, records: Iterable[StoreRecord]) -> None:
        """Remove messages that a broker has acknowledged."""
        batch = self._database.new_batch()
        for record in records:
            self._delete(record.key, record.message.message_id, batch)
        # Not synced: messages that a crash restores are delivered again, with the same id.
        self._database.write(batch, synced=False)

    def messages(self) -> Iterator[DelayedMessage]:
        """Return all messages of the queue, deferred ones first."""
        for prefix in (self._deferred_prefix, self._waiting_prefix):
            for _, value in self._database.scan(prefix):
                yield DelayedMessage.decode(value)

    def earliest_due_ms(self, after: bytes = b"") -> int:
        """Return the earliest due time of the deferred messages and of the messages after a key.

        NEVER_MS if there are none.
        """
        due_ms = self.next_due_ms(after)
        for topic in self.deferred_topics():
            due_ms = min(due_ms, *(record.message.due_ms for record in self.deferred(topic, b"", 1)))
        return due_ms

    # Deferred messages

    def defer(self, records: Iterable[StoreRecord]) -> None:
        """Defer messages that could not be sent. Messages that have been cancelled are ignored."""
        batch = self._database.new_batch()
        with self._write_lock:
            for record in records:
                message = record.message
                if self._database.get(record.key) is None:
                    continue
                key = self._deferred_prefix + message.topic.encode() + b"\0" + record.key[-16:]
                self._delete(record.key, message.message_id, batch)
                batch.put(key, message.encode())
                batch.put(self._id_key(message.message_id, key), key)
            self._database.write(batch, synced=True)

    def deferred_topics(self) -> list[str]:
        """Return the target topics of the deferred messages."""
        topics: list[str] = []
        start = self._deferred_prefix
        while True:
            key = next((key for key, _ in self._database.scan(self._deferred_prefix, start)), None)
            if key is None:
                return topics
            topics.append(_text(key))
            # Skip from topic to topic: one lookup for each.
            start = self._deferred_prefix + topics[-1].encode() + b"\x01"

    def deferred(self, topic: str, after: bytes, limit: int) -> list[StoreRecord]:
        """Return the deferred messages for a topic. :meth:`due` documents the other arguments."""
        prefix = self._deferred_prefix + topic.encode() + b"\0"
        found: list[StoreRecord] = []
        for key, value in self._records_after(prefix, after):
            if len(found) == limit:
                break
            found.append(StoreRecord(key, DelayedMessage.decode(value)))
        return found

    def deferred_key_before(self, topic: str, due_ms: int) -> bytes:
        """Return a key that precedes those of a topic's deferred messages due at ``due_ms`` or later."""
        return self._deferred_prefix + topic.encode() + b"\0" + _encode_int64(due_ms)

    # Cancellations and progress

    def _cancel(self, cancellation: Cancellation) -> None:
        batch = self._database.new_batch()
        for key in self._keys_of(cancellation.message_id):
            self._delete(key, cancellation.message_id, batch)
        self._database.write(batch, synced=False)

    def _apply_progress(self, progress: Progress) -> None:
        """Remove the messages that another owner of the queue has delivered.

        The records of this store's own progress remove nothing.
        """
        batch = self._database.new_batch()
        floor = end = self._waiting_prefix + _encode_int64(progress.due_ms)
        for key, value in self._database.scan(self._waiting_prefix, self._floor):
            if key >= end:
                break
            if _offset(key) < progress.offset:
                self._delete(key, DelayedMessage.decode(value).message_id, batch)
            else:
                floor = min(floor, key)
        self._floor = max(self._floor, floor)
        for key, value in self._database.scan(self._deferred_prefix):
            if _due_ms(key) < progress.due_ms and _offset(key) < progress.offset:
                self._delete(key, DelayedMessage.decode(value).message_id, batch)
        self._database.write(batch, synced=False)

    def _records_after(self, prefix: bytes, after: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._database.scan(prefix, after and after + b"\0")

    # The index of message ids

    def _keys_of(self, message_id: str) -> list[bytes]:
        """Return the keys of the messages with an id."""
        if message_id in self._shared_ids:
            prefix = self._id_key(message_id, b"")
            return [key[len(prefix) :] for key, _ in self._database.scan(prefix)]
        key = self._database.get(self._id_key(message_id, b""))
        return [] if key is None else [key]

    def _id_key(self, message_id: str, key: bytes) -> bytes:
        """Return the key of the index record for the message with this id and ``key``."""
        if message_id in self._shared_ids:
            return _SHARED_ID + self._queue_number + message_id.encode() + b"\0" + key
        return self._id_prefix + message_id.encode()

    def _share_id(self, message_id: str, keys: Iterable[bytes], batch: WriteBatch) -> None:
        """Index the messages with these keys so that others can have the same id. Repeatable."""
        batch.delete(self._id_prefix + message_id.encode())
        self._shared_ids.add(message_id)
        for key in keys:
            batch.put(self._id_key(message_id, key), b"")

    def _delete(self, key: bytes, message_id: str, batch: WriteBatch) -> None:
        """Delete a message and its record in the index."""
        batch.delete(key)
        batch.delete(self._id_key(message_id, key))


def _text(key: bytes) -> str:
    """Return the target topic, or the message id, in a key: the text after the kind and queue number."""
    return key[5 : key.index(b"\0", 5)].decode()


def _due_ms(key: bytes) -> int:
    return _decode_int(key[-16:-8])


def _offset(key: bytes) -> int:
    return _decode_int(key[-8:])


def _encode_int64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _decode_int(data: bytes) -> int:
    return int.from_bytes(data, "big")
