"""The stores of claims and marks."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rocketmq_py.deduplication import (
    ClaimLostError,
    ClaimState,
    DeduplicationStore,
    RedisStore,
    SQLiteStore,
    sqlite_store,
)
from rocketmq_py.deduplication.handler import Claims, current_claims
from rocketmq_py.errors import ConfigurationError, StoreError

SHORT = 0.001
"""Seconds of a claim that has expired as soon as another one is tried."""


def claim_when_expired(store: DeduplicationStore, key: str, token: str) -> ClaimState:
    state = ClaimState.HELD
    while state is ClaimState.HELD:
        state = store.claim(key, token, 60)
    return state


def test_claim_excludes_others_until_it_is_settled(store: DeduplicationStore) -> None:
    assert store.claim("k", "first", 60) is ClaimState.CLAIMED
    assert store.claim("k", "second", 60) is ClaimState.HELD
    assert store.claim("other", "second", 60) is ClaimState.CLAIMED
    assert store.settle("k", "first", 0)
    assert store.claim("k", "second", 60) is ClaimState.CLAIMED


def test_mark_excludes_everybody(store: DeduplicationStore) -> None:
    store.claim("k", "first", 60)
    assert store.settle("k", "first", 60)
    assert store.claim("k", "first", 60) is ClaimState.DONE
    assert store.claim("k", "second", 60) is ClaimState.DONE


def test_mark_is_renewed_but_not_removed(store: DeduplicationStore) -> None:
    store.claim("k", "first", 60)
    assert store.settle("k", "first", 60)
    assert store.settle("k", "first", 60)
    assert not store.settle("k", "first", 0)
    assert store.claim("k", "second", 60) is ClaimState.DONE


def test_expired_claim_and_mark_are_free(store: DeduplicationStore) -> None:
    store.claim("k", "first", SHORT)
    assert claim_when_expired(store, "k", "second") is ClaimState.CLAIMED
    assert store.settle("k", "second", SHORT)
    state = ClaimState.DONE
    while state is ClaimState.DONE:
        state = store.claim("k", "third", 60)
    assert state is ClaimState.CLAIMED


@pytest.mark.parametrize("seconds", [0, 60])
def test_lost_claim_cannot_be_settled(store: DeduplicationStore, seconds: float) -> None:
    store.claim("k", "first", SHORT)
    claim_when_expired(store, "k", "second")
    assert not store.settle("k", "first", seconds)
    assert store.claim("k", "third", 60) is ClaimState.HELD
    assert store.settle("k", "second", 60)
    assert not store.settle("unknown", "first", seconds)


def test_one_of_many_threads_gets_the_claim(store: DeduplicationStore) -> None:
    states: list[ClaimState] = []
    barrier = threading.Barrier(8)

    def claim(number: int) -> None:
        barrier.wait()
        states.extend([store.claim(str(key), str(number), 60) for key in range(20)])

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert states.count(ClaimState.CLAIMED) == 20
    assert states.count(ClaimState.HELD) == 140


# SQLite


@contextmanager
def claims_of(store: SQLiteStore, *keys: str, token: str = "first") -> Iterator[None]:
    reset = current_claims.set(Claims(store=store, ttl=60, token=token, keys=keys))
    try:
        yield
    finally:
        current_claims.reset(reset)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "handled.sqlite")
    with sqlite3.connect(store.path) as connection:
        connection.execute("CREATE TABLE effects (name TEXT)")
    connection.close()
    yield store
    store.close()


def effects(store: SQLiteStore) -> list[str]:
    connection = sqlite3.connect(store.path)
    rows = connection.execute("SELECT name FROM effects").fetchall()
    connection.close()
    return [name for (name,) in rows]


def test_transaction_commits_marks_and_effects(sqlite: SQLiteStore) -> None:
    sqlite.claim("a", "first", 60)
    sqlite.claim("b", "first", 60)
    with claims_of(sqlite, "a", "b"), sqlite.transaction() as connection:
        connection.execute("INSERT INTO effects VALUES ('x')")
    assert effects(sqlite) == ["x"]
    assert sqlite.claim("a", "second", 60) is ClaimState.DONE
    assert sqlite.claim("b", "second", 60) is ClaimState.DONE
    assert not sqlite.settle("a", "first", 0), "a handler that fails after the commit is not called again"


def test_failed_transaction_commits_nothing(sqlite: SQLiteStore) -> None:
    sqlite.claim("a", "first", 60)

    def handle() -> None:
        with sqlite.transaction() as connection:
            connection.execute("INSERT INTO effects VALUES ('x')")
            raise KeyError

    with claims_of(sqlite, "a"), pytest.raises(KeyError):
        handle()
    assert effects(sqlite) == []
    assert sqlite.claim("a", "second", 60) is ClaimState.HELD


def test_closing_the_store_in_its_transaction_rolls_back_and_keeps_the_error_of_the_handler(
    sqlite: SQLiteStore,
) -> None:
    sqlite.claim("a", "first", 60)

    def handle() -> None:
        with sqlite.transaction() as connection:
            connection.execute("INSERT INTO effects VALUES ('x')")
            sqlite.close()
            raise KeyError

    with claims_of(sqlite, "a"), pytest.raises(KeyError):
        handle()
    assert effects(sqlite) == []


def test_transaction_in_which_the_store_was_closed_fails(sqlite: SQLiteStore) -> None:
    sqlite.claim("a", "first", 60)

    def handle() -> None:
        with sqlite.transaction() as connection:
            connection.execute("INSERT INTO effects VALUES ('x')")
            sqlite.close()

    with claims_of(sqlite, "a"), pytest.raises(sqlite3.ProgrammingError, match=r"the store .* is closed"):
        handle()
    assert effects(sqlite) == []


def test_transaction_without_the_claim_commits_nothing(sqlite: SQLiteStore) -> None:
    sqlite.claim("a", "first", SHORT)
    claim_when_expired(sqlite, "a", "second")
    with (
        claims_of(sqlite, "a"),
        pytest.raises(ClaimLostError, match="nothing was stored"),
        sqlite.transaction() as connection,
    ):
        connection.execute("INSERT INTO effects VALUES ('x')")
    assert effects(sqlite) == []


def test_second_transaction_of_a_call_is_refused(sqlite: SQLiteStore) -> None:
    sqlite.claim("a", "first", 60)
    with claims_of(sqlite, "a"):
        with sqlite.transaction():
            pass
        with pytest.raises(ClaimLostError, match="an earlier transaction of this call"), sqlite.transaction():
            pass


def test_transaction_outside_of_a_handler_is_refused(sqlite: SQLiteStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="in a handler"), sqlite.transaction():
        pass
    other = SQLiteStore(tmp_path / "other.sqlite")
    with claims_of(other), pytest.raises(ConfigurationError, match="with this store"), sqlite.transaction():
        pass
    other.close()


def test_expired_rows_are_removed(sqlite: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_PURGE_EVERY", 2)
    sqlite.claim("a", "first", SHORT)
    monkeypatch.setattr("time.time", lambda: 4e9)
    sqlite.claim("b", "first", 60)
    connection = sqlite3.connect(sqlite.path)
    assert connection.execute("SELECT key FROM rocketmq_deduplication").fetchall() == [("b",)]
    connection.close()


def test_wait_for_other_writers_does_not_shorten_a_claim(
    sqlite: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])

    def wait(statement: str) -> None:
        if now == [1000.0]:
            now[0] = 1020.0

    connection = sqlite._connection
    assert connection is not None
    connection.set_trace_callback(wait)  # called before the first statement, which takes the write lock
    sqlite.claim("a", "first", 60)
    rows = connection.execute("SELECT expires FROM rocketmq_deduplication").fetchall()
    assert rows == [(1080.0,)]


FORKS: Any = multiprocessing.get_context("fork") if sys.platform != "win32" else None
Test = TypeVar("Test", bound=Callable[..., Any])
before_fork: list[Callable[[], object]] = []
"""Called before each fork."""
if FORKS is not None:
    os.register_at_fork(before=lambda: [call() for call in before_fork])


def needs_fork(test: Test) -> Test:
    """Skip a test where processes cannot fork, and allow forks while other threads run."""
    allowed = pytest.mark.filterwarnings("ignore:.* is multi-threaded, use of fork:DeprecationWarning")
    return pytest.mark.skipif(FORKS is None, reason="Windows cannot fork")(allowed(test))  # type: ignore[no-any-return]


@contextmanager
def forked(call: Callable[[], object]) -> Iterator[Callable[[], object]]:
    """Call a function in a forked child. Yields a function that waits for its result or error."""
    results, sender = FORKS.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send(call())
        except sqlite3.Error as error:
            sender.send(f"{type(error).__name__}: {error}")

    def result() -> object:
        assert results.poll(30), "the child does not end"
        return results.recv()

    child = FORKS.Process(target=run)
    child.start()
    try:
        yield result
    finally:
        child.kill()
        child.join()


@needs_fork
def test_forked_child_shares_the_claims(sqlite: SQLiteStore) -> None:
    sqlite.claim("a", "first", 60)
    with forked(lambda: sqlite.claim("a", "child", 60)) as result:
        assert result() is ClaimState.HELD
    assert sqlite.settle("a", "first", 0)


@needs_fork
def test_forked_child_with_another_working_directory_shares_the_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("handled.sqlite")
    store.claim("a", "first", 60)

    def claim_elsewhere() -> ClaimState:
        os.chdir(other)
        return store.claim("a", "child", 60)

    with forked(claim_elsewhere) as result:
        assert result() is ClaimState.HELD
    os.chdir(other)
    assert store.claim("a", "second", 60) is ClaimState.HELD
    assert list(other.iterdir()) == []
    store.close()


@needs_fork
def test_mark_of_a_forked_child_outlasts_the_store_of_its_parent(sqlite: SQLiteStore) -> None:
    def mark_both() -> bool:
        sqlite.claim("a", "child", 60)
        claimed.set()
        closed.wait(30)
        return sqlite.settle("a", "child", 60)

    claimed, closed = FORKS.Event(), FORKS.Event()
    with forked(mark_both) as result:
        assert claimed.wait(30)
        sqlite.close()
        SQLiteStore(sqlite.path).close()
        closed.set()
        assert result() is True
    other = SQLiteStore(sqlite.path)
    assert other.claim("a", "other", 60) is ClaimState.DONE
    other.close()


@needs_fork
def test_fork_waits_for_the_transaction_of_another_thread(sqlite: SQLiteStore) -> None:
    sqlite.claim("a", "first", 60)
    is_open, is_forking = threading.Event(), threading.Event()

    def handle() -> None:
        with claims_of(sqlite, "a"), sqlite.transaction() as connection:
            is_open.set()
            is_forking.wait(30)
            connection.execute("INSERT INTO effects VALUES ('x')")

    thread = threading.Thread(target=handle)
    thread.start()
    assert is_open.wait(30)
    before_fork.append(is_forking.set)
    try:
        with forked(lambda: sqlite.claim("a", "child", 60)) as result:
            assert result() is ClaimState.DONE
    finally:
        before_fork.clear()
        thread.join()
    assert effects(sqlite) == ["x"]


@needs_fork
def test_child_forked_in_a_transaction_cannot_use_the_store(sqlite: SQLiteStore) -> None:
    sqlite.claim("a", "first", 60)

    def use_and_close() -> object:
        try:
            return sqlite.claim("a", "child", 60)
        finally:
            sqlite.close()

    with claims_of(sqlite, "a"), sqlite.transaction() as connection:
        with forked(use_and_close) as result:
            assert str(result()).startswith("OperationalError: this process was forked during a transaction")
        connection.execute("INSERT INTO effects VALUES ('x')")
    assert effects(sqlite) == ["x"]
    assert sqlite.claim("a", "second", 60) is ClaimState.DONE


@needs_fork
@pytest.mark.parametrize("fails", [False, True])
def test_child_does_not_end_the_transaction_of_its_parent(sqlite: SQLiteStore, fails: bool) -> None:
    statements: list[str] = []
    child = -1

    def handle() -> None:
        nonlocal child
        with claims_of(sqlite, "a"), sqlite.transaction() as connection:
            connection.execute("INSERT INTO effects VALUES ('x')")
            child = os.fork()
            if child == 0:
                connection.set_trace_callback(statements.append)
                if fails:
                    raise KeyError

    sqlite.claim("a", "first", 60)
    try:
        handle()
    except (KeyError, sqlite3.OperationalError):
        pass
    finally:
        if child == 0:
            os._exit(len(statements))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert effects(sqlite) == ["x"]


@needs_fork
def test_closed_store_stays_closed_after_a_fork(sqlite: SQLiteStore) -> None:
    sqlite.close()
    with forked(lambda: sqlite.claim("a", "child", 60)) as result:
        assert str(result()).startswith(f"ProgrammingError: the store {sqlite.path} is closed")
    with pytest.raises(sqlite3.ProgrammingError):
        sqlite.claim("a", "first", 60)


# Redis


def test_redis_keys_have_the_prefix_and_expire(redis_client: Any) -> None:
    store = RedisStore(redis_client, prefix="shop:")
    store.claim("k", "first", 60)
    assert redis_client.keys() == [b"shop:k"]
    assert 0 < redis_client.pttl("shop:k") <= 60_000


def test_redis_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigurationError, match=r"install rocketmq-py\[redis\]"):
        RedisStore("redis://127.0.0.1")


def test_redis_client_is_checked() -> None:
    redis: Any = pytest.importorskip("redis")
    asyncio_client = redis.asyncio.Redis()
    with pytest.raises(ConfigurationError, match=r"must be a URL or a redis.Redis, not redis.asyncio"):
        RedisStore(asyncio_client)
    RedisStore("redis://127.0.0.1:6379/1").close()


def test_redis_cluster_without_transactions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    redis: Any = pytest.importorskip("redis")
    monkeypatch.delattr(redis.RedisCluster, "transaction", raising=False)  # as in redis-py before 6.1
    cluster = redis.RedisCluster.__new__(redis.RedisCluster)
    with pytest.raises(
        ConfigurationError, match=r"a RedisCluster needs redis-py 6\.1: pip install 'redis>=6\.1'"
    ):
        RedisStore(cluster)


def test_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    other = tmp_path / "no database"
    other.write_text("not of SQLite" * 100)
    for path, cause in (
        (tmp_path / "missing" / "d.sqlite", "unable to open database file"),
        (other, "file is not a database"),
    ):
        with pytest.raises(StoreError) as caught:
            SQLiteStore(path)
        assert str(caught.value) == (
            f"cannot open the SQLite database {path}: {cause}. Its directory must exist and be writable, and "
            "the file must be missing, or an SQLite database"
        )
        assert isinstance(caught.value.__cause__, sqlite3.Error)
