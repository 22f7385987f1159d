"""Claims and marks in an SQLite database."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from weakref import WeakSet

from rocketmq_py.arguments import Duration, check_above_zero, seconds
from rocketmq_py.deduplication.handler import ClaimLostError, ClaimState, current_claims
from rocketmq_py.errors import ConfigurationError, StoreError

_PURGE_EVERY = 1000
"""Claims between removals of expired rows."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS rocketmq_deduplication (
    key TEXT PRIMARY KEY, token TEXT NOT NULL, done INTEGER NOT NULL, expires REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rocketmq_deduplication_expires ON rocketmq_deduplication (expires);
"""
_CLAIM = """
INSERT INTO rocketmq_deduplication (key, token, done, expires) VALUES (?, ?, 0, ?)
ON CONFLICT (key) DO UPDATE SET token = excluded.token, done = 0, expires = excluded.expires
WHERE expires <= ?
"""
_MARK = "UPDATE rocketmq_deduplication SET done = 1, expires = ? WHERE key = ? AND token = ?"


class SQLiteStore:
    """Claims and marks in the table ``rocketmq_deduplication`` of an SQLite database.

    Processes of one machine may share the database, also with tables of the program. All threads share one
    connection. Forked children open their own: a fork waits for a running transaction, and closes the
    connection, because SQLite allows none in a child.

    Args:
        path: the file of the database. Created if it is missing.
        timeout: seconds to wait for other writers.

    Raises:
        ConfigurationError: ``timeout`` is not above 0.
        StoreError: the database cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: Duration = 30.0) -> None:
        # Absolute: it is opened again after a fork, and daemons change their directory.
        self.path: Path = Path(path) if str(path) == ":memory:" else Path(path).absolute()
        self._timeout = check_above_zero(seconds(timeout), "timeout")
        self._lock = threading.RLock()
        self._claim_count = 0
        self._is_closed = False
        self._forking_thread: int | None = None
        # In a forked child, the parent's connection. Kept, because the child must not close it.
        self._inherited: sqlite3.Connection | None = None
        self._connection: sqlite3.Connection | None = self._connect()
        _stores.add(self)

    def claim(self, key: str, token: str, expires_in: float) -> ClaimState:
        """Claim a key. See DeduplicationStore."""
        with self._write() as connection:
            now = time.time()
            if connection.execute(_CLAIM, (key, token, now + expires_in, now)).rowcount:
                self._purge(connection, now)
                return ClaimState.CLAIMED
            (done,) = connection.execute(
                "SELECT done FROM rocketmq_deduplication WHERE key = ?", (key,)
            ).fetchone()
            return ClaimState.DONE if done else ClaimState.HELD

    def settle(self, key: str, token: str, expires_in: float) -> bool:
        """Mark a claimed key, or remove its claim. See DeduplicationStore."""
        with self._write() as connection:
            if expires_in:
                return connection.execute(_MARK, (time.time() + expires_in, key, token)).rowcount == 1
            removed = connection.execute(
                "DELETE FROM rocketmq_deduplication WHERE key = ? AND token = ? AND NOT done", (key, token)
            )
            return removed.rowcount == 1

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction for the effects of the running handler call. It also marks the call's messages.

        ::

            def handle(order: Order) -> None:
                with store.transaction() as connection:
                    connection.execute("INSERT INTO orders VALUES (?)", (order.number,))

        Effects and marks are committed together, or not at all, so that each effect happens exactly once,
        even if a process is killed or a claim expires. Use it once in a call. It blocks: call it in a thread.
        Other threads wait for the store meanwhile.

        Raises:
            ClaimLostError: a claim has expired, and the message may be handled elsewhere.
            ConfigurationError: no handler call that was deduplicated with this store is running.
            sqlite3.Error: the transaction failed.
        """
        claims = current_claims.get()
        if claims is None or claims.store is not self:
            raise ConfigurationError(
                "transaction() must be called in a handler that was passed to Deduplicate with this store"
            )
        with self._write() as connection:
            expires = time.time() + claims.ttl
            for key in claims.keys:
                marked = connection.execute(f"{_MARK} AND NOT done", (expires, key, claims.token))
                if not marked.rowcount:
                    raise ClaimLostError(
                        f"the claim of {key!r} has expired, or an earlier transaction of this call has used "
                        "it: nothing was stored. Choose a claim_timeout that is longer than the handler takes"
                    )
            yield connection

    def close(self) -> None:
        """Close the connection. Later calls raise sqlite3.ProgrammingError.

        Waits for the transactions of other threads. One of the calling thread is rolled back, and fails.
        """
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction. It waits for other writers when it begins, and not later."""
        with self._lock:
            connection = self._open_connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self._open_connection()  # raises in a child that was forked in the transaction
                connection.execute("COMMIT")
            except BaseException:
                # Not if it was closed meanwhile, which rolls back, nor in a child that inherited it.
                if connection is self._connection and connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _open_connection(self) -> sqlite3.Connection:
        if self._is_closed:
            raise sqlite3.ProgrammingError(f"the store {self.path} is closed")
        if self._inherited is not None:
            raise sqlite3.OperationalError(
                "this process was forked during a transaction, and SQLite does not let it use the database "
                f"{self.path}. Fork between transactions"
            )
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self.path, timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(_SCHEMA)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise StoreError(
                f"cannot open the SQLite database {self.path}: {error}. Its directory must exist and be "
                "writable, and the file must be missing, or an SQLite database"
            ) from error
        return connection

    def _purge(self, connection: sqlite3.Connection, now: float) -> None:
        self._claim_count += 1
        if self._claim_count % _PURGE_EVERY == 0:
            connection.execute("DELETE FROM rocketmq_deduplication WHERE expires <= ?", (now,))

    # Forks. SQLite allows no connection that is open at the fork in the child, not even to close it.

    def _before_fork(self) -> None:
        """Close the connection, unless a transaction is running. Other threads wait for the fork."""
        if not self._lock.acquire(timeout=min(self._timeout, threading.TIMEOUT_MAX)):
            return  # another thread's transaction takes longer than that
        if self._connection is not None:
            if self._connection.in_transaction:  # of this thread
                self._lock.release()
                return
            self._connection.close()
            self._connection = None
        self._forking_thread = threading.get_ident()

    def _after_fork_in_parent(self) -> None:
        """Release the lock, so that other threads can use the store."""
        if self._forking_thread == threading.get_ident():
            self._forking_thread = None
            self._lock.release()

    def _after_fork_in_child(self) -> None:
        """Take a new lock, because no other thread is left to release the old one."""
        self._lock = threading.RLock()
        self._forking_thread = None
        self._inherited, self._connection = self._connection or self._inherited, None


_stores: Final[WeakSet[SQLiteStore]] = WeakSet()


def _for_each_store(call: Callable[[SQLiteStore], None]) -> None:
    for store in list(_stores):
        call(store)


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(
        before=lambda: _for_each_store(SQLiteStore._before_fork),
        after_in_parent=lambda: _for_each_store(SQLiteStore._after_fork_in_parent),
        after_in_child=lambda: _for_each_store(SQLiteStore._after_fork_in_child),
    )
