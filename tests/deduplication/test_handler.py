"""Deduplicate around handlers of every kind."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.to_thread

from rocketmq_py import CommitOffset, ConsumeLater, ReceivedMessage, Suspend
from rocketmq_py.consumer.group.handler_results import SplitResult
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.deduplication import ClaimState, Deduplicate, SQLiteStore
from rocketmq_py.errors import ConfigurationError
from tests.consumer.received import received

ONE = PushConsumerSettings(group="G")
LISTS = PushConsumerSettings(group="G", batch_size=8)
ORDERLY = PushConsumerSettings(group="G", orderly=True)
ORDERLY_LISTS = PushConsumerSettings(group="G", orderly=True, batch_size=8)


@attrs.frozen
class Order:
    number: int


class Memory:
    """A store in memory, which records calls and can fail."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.fails_on: set[str] = set()

    def claim(self, key: str, token: str, expires_in: float) -> ClaimState:
        self._check("claim", key)
        if key in self.values:
            return ClaimState.DONE if self.values[key] == "done" else ClaimState.HELD
        self.values[key] = token
        return ClaimState.CLAIMED

    def settle(self, key: str, token: str, expires_in: float) -> bool:
        self._check("settle", key)
        if self.values.get(key) != token:
            return False
        if expires_in:
            self.values[key] = "done"
        else:
            del self.values[key]
        return True

    def _check(self, method: str, key: str) -> None:
        if {method, f"{method} {key}"} & self.fails_on:
            raise OSError("the store is down")


@pytest.fixture
def store() -> Memory:
    return Memory()


def message(name: str, body: bytes = b"body") -> ReceivedMessage:
    return received(0, body, UNIQ_KEY=name)


Run = Callable[[Callable[[], Any]], Awaitable[Any]]


async def in_trio(call: Callable[[], Any]) -> Any:
    result = call()
    return await result if hasattr(result, "__await__") else result


async def in_thread(call: Callable[[], Any]) -> Any:
    return await trio.to_thread.run_sync(call)


async def on_asyncio(call: Callable[[], Any]) -> Any:
    async def main() -> Any:
        result = call()
        return await result if hasattr(result, "__await__") else result

    return await trio.to_thread.run_sync(asyncio.run, main())


class Handler:
    """Builds plain and async handlers that record messages and return a result, or raise it."""

    def __init__(self, result: Any = None) -> None:
        self.got: list[Any] = []
        self.result = result

    def plain(self, item: Any) -> Any:
        self.got.append(item)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    async def asynchronous(self, item: Any) -> Any:
        return self.plain(item)

    def returns_awaitable(self, item: Any) -> Any:
        return self.asynchronous(item)


KINDS: dict[str, tuple[str, Run]] = {
    "trio": ("asynchronous", in_trio),
    "threads": ("plain", in_thread),
    "asyncio": ("asynchronous", on_asyncio),
    "asyncio_plain": ("plain", on_asyncio),
    "awaitable": ("returns_awaitable", in_trio),
}


@pytest.fixture(params=KINDS)
def call(request: pytest.FixtureRequest, store: Memory) -> Callable[..., Awaitable[Any]]:
    """Calls a deduplicated handler as the consumers of an API do."""
    method, run = KINDS[request.param]

    async def call(handler: Handler, item: Any, config: PushConsumerSettings = ONE, **options: Any) -> Any:
        prepared: Any = prepare_handler(Deduplicate(store, **options)(getattr(handler, method)), config)
        return await run(lambda: prepared(item))

    return call


Call = Callable[..., Awaitable[Any]]


async def test_message_is_handled_once(call: Call, store: Memory) -> None:
    handler = Handler()
    assert await call(handler, message("a")) is None
    assert store.values == {"G:a": "done"}
    assert await call(handler, message("a")) is None
    await call(handler, message("b"))
    assert [one.message_id for one in handler.got] == ["a", "b"]


async def test_failed_message_is_handled_again(call: Call, store: Memory) -> None:
    handler = Handler(ValueError("failed"))
    for _ in range(2):
        with pytest.raises(ValueError, match="failed"):
            await call(handler, message("a"))
        assert store.values == {}
    handler.result = None
    await call(handler, message("a"))
    assert len(handler.got) == 3


@pytest.mark.parametrize("result", [ConsumeLater(4), ConsumeLater(-1), Suspend(1), "wrong"])
async def test_result_other_than_none_releases_the_claim(call: Call, store: Memory, result: object) -> None:
    assert await call(Handler(result), message("a")) == result
    assert store.values == {}


@pytest.mark.parametrize("result", [CommitOffset(), ConsumeLater(done=1)])
async def test_acknowledging_result_marks_the_message(call: Call, store: Memory, result: object) -> None:
    assert await call(Handler(result), message("a")) is None
    assert store.values == {"G:a": "done"}


async def test_message_that_is_handled_elsewhere_comes_again_later(call: Call, store: Memory) -> None:
    store.claim("G:a", "other", 60)
    handler = Handler()
    assert await call(handler, message("a"), claim_timeout=60) == ConsumeLater(5), "1 minute"
    assert await call(handler, message("a"), claim_timeout=1e6) == ConsumeLater(18), "2 hours"
    assert await call(handler, message("a"), ORDERLY, claim_timeout=7) == Suspend(7)
    assert handler.got == []


async def test_list_has_only_messages_that_are_new(call: Call, store: Memory) -> None:
    store.values = {"G:done": "done", "G:held": "other"}
    handler = Handler()
    messages = [message(name) for name in ("done", "a", "held", "b", "a")]
    result = await call(handler, messages, LISTS)
    assert [one.message_id for one in handler.got[0]] == ["a", "b"]
    assert result == SplitResult(done={0, 1, 3}, result=ConsumeLater(5))
    assert store.values == {"G:done": "done", "G:held": "other", "G:a": "done", "G:b": "done"}


async def test_list_of_new_messages_needs_no_special_result(call: Call) -> None:
    messages = [message("a"), message("b")]
    assert await call(Handler(), messages, LISTS) is None
    assert await call(Handler(), messages, LISTS) is None, "all are done"


async def test_done_counts_only_messages_that_the_handler_got(call: Call, store: Memory) -> None:
    store.values = {"G:done": "done"}
    messages = [message(name) for name in ("a", "done", "b", "c")]
    result = await call(Handler(ConsumeLater(-1, done=2)), messages, LISTS)
    assert result == SplitResult(done={0, 1, 2}, result=ConsumeLater(-1))
    assert store.values == {"G:done": "done", "G:a": "done", "G:b": "done"}


async def test_dead_letters_do_not_include_messages_that_are_held(call: Call, store: Memory) -> None:
    store.values = {"G:held": "other"}
    messages = [message(name) for name in ("a", "held", "b")]
    result = await call(Handler(ConsumeLater(-1, done=1)), messages, LISTS)
    reason = "the handler returned ConsumeLater(-1)"
    assert result == SplitResult({2: reason}, done={0}, result=ConsumeLater(5))


async def test_ordered_list_ends_before_a_message_that_is_held(call: Call, store: Memory) -> None:
    store.values = {"G:held": "other"}
    handler = Handler()
    result = await call(handler, [message(name) for name in ("a", "held", "b")], ORDERLY_LISTS)
    assert [one.message_id for one in handler.got[0]] == ["a"]
    assert result == SplitResult(done={0}, result=Suspend(60))


async def test_failure_of_the_store_fails_the_call(call: Call, store: Memory) -> None:
    store.fails_on = {"claim G:b"}
    handler = Handler()
    with pytest.raises(OSError, match="the store is down"):
        await call(handler, [message("a"), message("b")], LISTS)
    assert store.values == {}
    assert handler.got == []


async def test_failure_to_mark_is_logged(call: Call, store: Memory, caplog: pytest.LogCaptureFixture) -> None:
    store.fails_on = {"settle"}
    assert await call(Handler(), message("a")) is None, "the effect has happened"
    assert "could not settle the claim of a message: group=G key=G:a" in caplog.text


async def test_lost_claim_is_logged(call: Call, store: Memory, caplog: pytest.LogCaptureFixture) -> None:
    class Loses(Handler):
        def plain(self, item: Any) -> Any:
            store.values["G:a"] = "another"

    assert await call(Loses(), message("a")) is None
    assert "a claim expired before the handler returned" in caplog.text


# Typed bodies


async def test_handler_gets_decoded_bodies(store: Memory) -> None:
    got: list[Order] = []

    async def handle(orders: list[Order]) -> None:
        got.extend(orders)

    prepared: Any = prepare_handler(Deduplicate(store)(handle), LISTS)
    messages = [message("a", b'{"number":1}'), message("bad"), message("c", b'{"number":3}')]
    result = await prepared(messages)
    assert got == [Order(1), Order(3)]
    assert result.done == {0, 2}
    assert "cannot be decoded as Order" in result.dead_letters[1]
    assert store.values == {"G:a": "done", "G:c": "done"}, "a dead letter that cannot be sent comes again"


# Cancelling


async def test_cancelled_handler_releases_its_claim(store: Memory) -> None:
    async def handle(item: ReceivedMessage) -> None:
        scope.cancel()
        await trio.sleep_forever()

    prepared: Any = prepare_handler(Deduplicate(store)(handle), ONE)
    with trio.CancelScope() as scope:
        await prepared(message("a"))
    assert scope.cancelled_caught
    assert store.values == {}


async def test_cancelled_asyncio_handler_releases_its_claim(store: Memory) -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def handle(item: ReceivedMessage) -> None:
            started.set()
            await asyncio.Event().wait()

        prepared: Any = prepare_handler(Deduplicate(store)(handle), ONE)
        task = asyncio.ensure_future(prepared(message("a")))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await trio.to_thread.run_sync(asyncio.run, main())
    assert store.values == {}


async def test_asyncio_task_cancelled_during_the_claim_releases_it(store: Memory) -> None:
    async def main() -> None:
        task: asyncio.Future[Any]

        class Cancels(Memory):
            def claim(self, key: str, token: str, expires_in: float) -> ClaimState:
                loop.call_soon_threadsafe(task.cancel)
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
                return store.claim(key, token, expires_in)

            def settle(self, key: str, token: str, expires_in: float) -> bool:
                return store.settle(key, token, expires_in)

        loop = asyncio.get_running_loop()
        prepared: Any = prepare_handler(Deduplicate(Cancels())(Handler().asynchronous), ONE)
        task = asyncio.ensure_future(prepared(message("a")))
        with pytest.raises(asyncio.CancelledError):
            await task

    await trio.to_thread.run_sync(asyncio.run, main())
    assert store.values == {}


@pytest.mark.parametrize("method", ["asynchronous", "returns_awaitable"])
async def test_closed_coroutine_leaves_the_claim_to_expire(store: Memory, method: str) -> None:
    class Waits(Handler):
        async def asynchronous(self, item: Any) -> Any:
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        prepared: Any = prepare_handler(Deduplicate(store)(getattr(Waits(), method)), ONE)
        if method == "asynchronous":
            coroutine = prepared(message("a"))
            claiming = coroutine.send(None)  # in a thread
            claiming._asyncio_future_blocking = False  # this task awaits it instead
            await claiming
        else:  # a worker thread calls the plain handler, which claims there
            coroutine = await asyncio.to_thread(prepared, message("a"))
        coroutine.send(None)  # the handler waits
        contextvars.copy_context().run(coroutine.close)

    await trio.to_thread.run_sync(asyncio.run, main())
    assert [*store.values] == ["G:a"]


async def test_closed_result_of_a_plain_handler_leaves_the_claim_to_expire(store: Memory) -> None:
    class Waits(Handler):
        async def asynchronous(self, item: Any) -> Any:
            await trio.sleep_forever()

    prepared: Any = prepare_handler(Deduplicate(store)(Waits().returns_awaitable), ONE)
    coroutine = prepared(message("a"))
    coroutine.send(None)
    contextvars.copy_context().run(coroutine.close)
    assert [*store.values] == ["G:a"]


# Transactions


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "handled.sqlite")
    yield store
    store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_handlers_can_use_the_transaction_of_the_store(sqlite: SQLiteStore, kind: str) -> None:
    method, run = KINDS[kind]

    class Stores(Handler):
        def plain(self, item: Any) -> Any:
            with sqlite.transaction() as connection:
                connection.execute("CREATE TABLE once (name TEXT)")
            raise ValueError("after the commit")

    prepared: Any = prepare_handler(Deduplicate(sqlite)(getattr(Stores(), method)), ONE)
    with pytest.raises(ValueError, match="after the commit"):
        await run(lambda: prepared(message("a")))
    assert await run(lambda: prepared(message("a"))) is None, "it is done"


# Keys and arguments


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("message_id", "G:id"),
        ("keys", "G:T:k1 k2"),
        (lambda message: message.properties["order"], "G:T:7"),
    ],
)
def test_key_identifies_the_message(store: Memory, key: Any, expected: str) -> None:
    deduplicate = Deduplicate(store, key=key)
    assert deduplicate._key_of(received(0, UNIQ_KEY="id", KEYS="k1 k2", order="7"), "G") == expected


def test_message_without_keys_is_identified_by_its_id(store: Memory) -> None:
    assert Deduplicate(store, key="keys")._key_of(message("id"), "G") == "G:id"


def test_key_function_must_return_a_text(store: Memory) -> None:
    function: Any = lambda message: None  # noqa: E731
    with pytest.raises(
        ConfigurationError, match="returned None for message a; it must return a str that is not empty"
    ):
        Deduplicate(store, key=function)._key_of(message("a"), "G")


class AsyncStore(Memory):
    async def claim(self, *_: Any) -> Any:  # type: ignore[override]
        """Claim nothing."""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"store": object()}, "store must be an object with the methods of DeduplicationStore"),
        ({"store": AsyncStore()}, "store.claim must be a plain function, not an async one"),
        ({"key": "id"}, "key is 'id'; it must be 'message_id', 'keys', or a function"),
        ({"key": lambda: None}, "key is called with"),
        ({"ttl": 0}, "ttl is 0"),
        ({"claim_timeout": -1}, "claim_timeout is -1"),
    ],
)
def test_wrong_arguments_are_refused(store: Memory, options: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Deduplicate(**{"store": store, **options})


def test_wrong_handlers_are_refused(store: Memory) -> None:
    deduplicate, nothing = Deduplicate(store), Handler(None)
    wrong: Any = 5
    with pytest.raises(ConfigurationError, match="handle must be a function, not int"):
        deduplicate(wrong)
    with pytest.raises(ConfigurationError, match="called by the run"):
        deduplicate(nothing.plain)(message("a"))
    no_parameter: Any = lambda: None  # noqa: E731
    with pytest.raises(ConfigurationError, match="handle is called with"):
        prepare_handler(deduplicate(no_parameter), ONE)
    manual = attrs.evolve(ORDERLY, auto_commit=False)
    with pytest.raises(ConfigurationError, match="does not support auto_commit=False"):
        prepare_handler(deduplicate(nothing.plain), manual)
