"""The RocksDB database of a relay's store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rocketmq_py.errors import ConfigurationError, StoreError

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
