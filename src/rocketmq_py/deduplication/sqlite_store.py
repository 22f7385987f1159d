"""Claims and marks in an SQLite database."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketmq_py.arguments import check_above_zero
from rocketmq_py.deduplication.claims import ClaimLostError, ClaimState, current_claims
from rocketmq_py.errors import ConfigurationError

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
    connection.

    Args:
        path: the file of the database. Created if it is missing.
        timeout: seconds to wait for other writers.

    Raises:
        ConfigurationError: ``timeout`` is not above 0.
        sqlite3.Error: the database cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        self.path: Path = Path(path)
        self._timeout = check_above_zero(timeout, "timeout")
        self._lock = threading.RLock()
        self._claims = 0
        self._process = os.getpid()
        self._connection = self._connect()

    def claim(self, key: str, token: str, seconds: float) -> ClaimState:
        """Claim a key. See DeduplicationStore."""
        now = time.time()
        with self._lock:
            connection = self._own_connection()
            while True:
                if connection.execute(_CLAIM, (key, token, now + seconds, now)).rowcount:
                    self._purge(connection, now)
                    return ClaimState.CLAIMED
                row = connection.execute(
                    "SELECT done FROM rocketmq_deduplication WHERE key = ?", (key,)
                ).fetchone()
                if row is not None:  # else another process has just removed its claim
                    return ClaimState.DONE if row[0] else ClaimState.HELD

    def settle(self, key: str, token: str, seconds: float) -> bool:
        """Mark a claimed key, or remove its claim. See DeduplicationStore."""
        with self._lock:
            connection = self._own_connection()
            if seconds:
                return connection.execute(_MARK, (time.time() + seconds, key, token)).rowcount == 1
            removed = connection.execute(
                "DELETE FROM rocketmq_deduplication WHERE key = ? AND token = ? AND NOT done", (key, token)
            )
            return removed.rowcount == 1

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction that marks the messages of the running handler call, and has its effects.

        ::

            def handle(order: Order) -> None:
                with store.transaction() as connection:
                    connection.execute("INSERT INTO orders VALUES (?)", (order.number,))

        Effects and marks are committed together, or not at all, so that each effect happens exactly once,
        even if a process is killed or a claim expires. Use it once in a call. It blocks: call it in a thread.

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
        with self._lock:
            connection = self._own_connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                expires = time.time() + claims.ttl
                for key in claims.keys:
                    marked = connection.execute(f"{_MARK} AND NOT done", (expires, key, claims.token))
                    if not marked.rowcount:
                        raise ClaimLostError(
                            f"the claim of {key!r} has expired, or is used up: nothing was stored. Choose a "
                            "claim_timeout that is longer than the handler takes"
                        )
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the connection. Later calls raise sqlite3.ProgrammingError."""
        with self._lock:
            self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._timeout, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_SCHEMA)
        return connection

    def _own_connection(self) -> sqlite3.Connection:
        if self._process != os.getpid():  # forked: SQLite allows no connection of the parent
            self._process = os.getpid()
            self._connection = self._connect()
        return self._connection

    def _purge(self, connection: sqlite3.Connection, now: float) -> None:
        self._claims += 1
        if self._claims % _PURGE_EVERY == 0:
            connection.execute("DELETE FROM rocketmq_deduplication WHERE expires <= ?", (now,))
