"""The handler that skips messages that were handled before, and the protocol of the stores of claims."""

from __future__ import annotations

import asyncio
import enum
import inspect
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final, Literal, Protocol

import attrs
import trio

from rocketmq_py.arguments import Duration, check_above_zero, seconds
from rocketmq_py.callables import check_callable, check_methods, is_async
from rocketmq_py.consumer.group.handler_results import (
    DEAD_LETTER,
    DELAY_SECONDS,
    CommitOffset,
    ConsumeLater,
    ConsumeResult,
    SplitResult,
    Suspend,
)
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.typed_handlers import HandlerSettings, HandlerWrapper
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")


class ClaimState(enum.Enum):
    """The result of an attempt to claim a key."""

    CLAIMED = "claimed"
    """The caller has the claim and handles the message."""
    HELD = "held"
    """Another process or task has the claim."""
    DONE = "done"
    """The message was handled."""


class ClaimLostError(RocketMQError):
    """The claim of a message expired while its handler ran, or was already turned into a mark.

    If it expired, another delivery may be handling the message.
    """


class DeduplicationStore(Protocol):
    """Holds claims and marks of handled messages. Both methods are atomic for all processes that share it.

    Methods may block: they are called in the thread of a plain handler, and in a worker thread for an async
    one. An error of :meth:`claim` counts as a failure of the handler. One of :meth:`settle` is logged.
    """

    def claim(self, key: str, token: str, expires_in: float) -> ClaimState:
        """Claim a key, unless it is done or has a claim that has not expired.

        Args:
            key: the group and the message's id or key.
            token: a random string that identifies the claim.
            expires_in: seconds until the claim expires.
        """

    def settle(self, key: str, token: str, expires_in: float) -> bool:
        """Turn a claim into a mark "done", or remove the claim.

        Args:
            key: the key.
            token: the token of the claim. Claims and marks of other tokens are not changed.
            expires_in: seconds until the mark expires. A mark of the same token is extended. 0 removes the
                claim, but never a mark.

        Returns:
            True if there was a claim or mark to change. False if there was none, and nothing was changed. An
            expired claim that no other token has taken may count as either.
        """


@attrs.define(kw_only=True)
class Claims:
    """The claims of one handler call.

    Attributes:
        store: holds the claims.
        ttl: seconds that the marks will be kept.
        token: identifies the claims.
        keys: the claimed keys.
    """

    store: DeduplicationStore
    ttl: float
    token: str = attrs.field(factory=lambda: uuid.uuid4().hex)
    keys: Sequence[str] = ()


current_claims: ContextVar[Claims | None] = ContextVar("rocketmq_py_claims", default=None)
"""The claims of the handler call that is running. ``SQLiteStore.transaction`` reads them."""


DEFAULT_TTL = 3 * 24 * 3600.0
"""Seconds that a handled message is remembered: as long as brokers keep messages by default."""


@attrs.frozen(kw_only=True, init=False)
class Deduplicate:
    """Wraps handlers of push consumers, so that a message that is delivered again is not handled again.

    ::

        deduplicate = Deduplicate(SQLiteStore("handled.sqlite"))
        await consumer.run(deduplicate(handle))

    Before a call, the message is claimed in the store. When the handler has returned, it is marked as done,
    and later deliveries are acknowledged without a call. If the handler fails, the claim is removed, and the
    next delivery is handled. The claim of a process that was killed expires after ``claim_timeout``. A
    message that another process is handling is delivered again after that time.

    If a process is killed between the effect of a handler and the mark, the message is handled again.
    ``SQLiteStore.transaction`` commits both together.

    Args:
        store: a SQLiteStore, a RedisStore, or an object with the methods of DeduplicationStore. Groups may
            share it. Members of a broadcasting group must not.
        key: identifies messages: ``"message_id"``, the id that the sender gave, which repeated deliveries and
            retries of a send share; ``"keys"``, the topic and the message's keys, or its id if it has none;
            or a function that returns a string for a message, which is used with the topic.
        ttl: seconds that a handled message is remembered.
        claim_timeout: seconds until a claim expires. Choose more than a handler takes: after an expiry,
            another delivery may be handled at the same time.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    store: DeduplicationStore
    key: Literal["message_id", "keys"] | Callable[[ReceivedMessage], str]
    ttl: float
    claim_timeout: float

    def __init__(
        self,
        store: DeduplicationStore,
        *,
        key: Literal["message_id", "keys"] | Callable[[ReceivedMessage], str] = "message_id",
        ttl: Duration = DEFAULT_TTL,
        claim_timeout: Duration = 60.0,
    ) -> None:
        check_methods(store, "store", DeduplicationStore, awaited=False)
        if isinstance(key, str):
            if key not in ("message_id", "keys"):
                raise ConfigurationError(f"key is {key!r}; it must be 'message_id', 'keys', or a function")
        else:
            check_callable(key, "key", "message", awaited=False)
        self.__attrs_init__(
            store=store,
            key=key,
            ttl=check_above_zero(seconds(ttl), "ttl"),
            claim_timeout=check_above_zero(seconds(claim_timeout), "claim_timeout"),
        )

    def __call__(self, handle: Handler) -> DeduplicatedHandler:
        """Return a handler for ``run`` that calls ``handle`` only with messages that are not done."""
        return DeduplicatedHandler(self, handle)

    def _key_of(self, message: ReceivedMessage, group: str) -> str:
        """Return the key of a message in the store."""
        key = self.key
        if key == "message_id" or (key == "keys" and not message.keys):
            return f"{group}:{message.message_id}"
        text = " ".join(message.keys) if isinstance(key, str) else key(message)
        if not isinstance(text, str) or not text:
            raise ConfigurationError(
                f"the function key returned {text!r} for message {message.message_id}; it must return a str "
                "that is not empty"
            )
        return f"{group}:{message.topic}:{text}"


class DeduplicatedHandler(HandlerWrapper):
    """A handler that Deduplicate returned. Pass it to the ``run`` of a push consumer."""

    handle: Handler

    def __init__(self, deduplicate: Deduplicate, handle: Handler) -> None:
        if not callable(handle):
            raise ConfigurationError(f"handle must be a function, not {type(handle).__name__}")
        self.handle = handle
        self._deduplicate = deduplicate

    def __call__(self, message: Any) -> Any:
        """Refuse calls: the consumer's settings are needed."""
        raise ConfigurationError("a deduplicated handler is called by the run() of a push consumer only")

    def around(self, handle: Handler, config: HandlerSettings) -> Handler:
        """Return the function that the consumer calls."""
        if config.orderly and not config.auto_commit:
            raise ConfigurationError(
                "Deduplicate does not support auto_commit=False: a rollback would skip the messages that "
                "were handled"
            )
        deduplicate = self._deduplicate
        call: Any = handle

        async def call_async(item: Any) -> Any:
            attempt = _Attempt(deduplicate, config, item)

            async def claim_and_call() -> Any:
                await _in_thread(attempt.claim)
                result = call(attempt.argument) if attempt.claimed else None
                return await result if inspect.isawaitable(result) else result

            return await _settle_later(attempt, claim_and_call())

        def call_plain(item: Any) -> Any:
            attempt = _Attempt(deduplicate, config, item)
            attempt.claim()
            if not attempt.claimed:
                return attempt.result(None)
            token = current_claims.set(attempt.claims)
            try:
                result = call(attempt.argument)
            except BaseException:
                attempt.release()
                raise
            finally:
                current_claims.reset(token)
            return _settle_later(attempt, result) if inspect.isawaitable(result) else attempt.result(result)

        return call_async if is_async(call) else call_plain


class _Attempt:
    """One handler call: the claims of its messages, and its result. The methods block.

    Args:
        deduplicate: the settings.
        config: the consumer's settings.
        item: the message, or the list of messages.

    Attributes:
        claims: the claims.
        claimed: the indexes of the messages that are handled now.
    """

    def __init__(self, deduplicate: Deduplicate, config: HandlerSettings, item: Any) -> None:
        self._deduplicate = deduplicate
        self._config = config
        self._is_list = isinstance(item, list | tuple)
        self._messages: Sequence[ReceivedMessage] = item if self._is_list else (item,)
        self._keys: dict[int, str] = {}
        self._done: set[int] = set()
        self._is_held = False
        self.claims = Claims(store=deduplicate.store, ttl=deduplicate.ttl)
        self.claimed: list[int] = []

    @property
    def argument(self) -> Any:
        """The argument of the handler."""
        messages = [self._messages[index] for index in self.claimed]
        return messages if self._is_list else messages[0]

    def claim(self) -> None:
        """Claim the messages. An ordered consumer claims none behind one that is held elsewhere."""
        try:
            for index, message in enumerate(self._messages):
                key = self._deduplicate._key_of(message, self._config.group)
                state = ClaimState.HELD  # a key that is twice in the list
                if key not in self._keys.values():
                    state = self.claims.store.claim(key, self.claims.token, self._deduplicate.claim_timeout)
                if state is ClaimState.CLAIMED:
                    self._keys[index] = key
                    self.claimed.append(index)
                elif state is ClaimState.DONE:
                    self._done.add(index)
                    logger.debug("duplicate skipped: key=%s message=%s", key, message.message_id)
                else:
                    self._is_held = True
                    if self._config.orderly:
                        break
        except BaseException:
            self.release()
            raise
        self.claims.keys = [*self._keys.values()]

    def release(self) -> None:
        """Remove all claims, because the handler failed."""
        self._settle(self.claimed, 0)

    def result(self, result: object) -> Any:
        """Mark the messages that were handled, release the others, and return the consumer's result."""
        rest, dead_letters = self.claimed, dict[int, str]()
        done = set(self._done)
        if isinstance(result, SplitResult):
            dead_letters = {rest[index]: reason for index, reason in result.dead_letters.items()}
            rest, result = result.remaining(rest), result.result
        handled: list[int] = []
        if result is None or isinstance(result, CommitOffset):
            handled, result = rest, None
        elif isinstance(result, ConsumeLater):
            handled, result = rest[: result.done], attrs.evolve(result, done=0)
        self._settle(handled, self._deduplicate.ttl)
        self._settle([index for index in self.claimed if index not in handled], 0)
        done.update(handled)
        if self._is_held:
            if result == ConsumeLater(DEAD_LETTER):
                reason = "the handler returned ConsumeLater(-1)"
                dead_letters |= {index: reason for index in rest if index not in done}
                result = None
            result = self._later() if result is None else result
        elif len(done) == len(self._messages):
            return None
        return SplitResult(dead_letters, done, result) if done or dead_letters else result

    def _later(self) -> ConsumeResult:
        """Return the result for messages that are held: by then, the other claim is done or has expired."""
        seconds = self._deduplicate.claim_timeout
        if self._config.orderly:
            return Suspend(seconds)
        levels = [level for level, delay in enumerate(DELAY_SECONDS) if delay >= seconds]
        return ConsumeLater(levels[0] if levels else len(DELAY_SECONDS) - 1)

    def _settle(self, indexes: Sequence[int], seconds: float) -> None:
        """Settle claims. An error does not fail the call: a claim that remains expires by itself."""
        for index in indexes:
            key = self._keys[index]
            try:
                settled = self.claims.store.settle(key, self.claims.token, seconds)
            except Exception:
                logger.exception("could not settle the claim of a message: group=%s key=%s",
                                 self._config.group, key)  # fmt: skip
                continue
            if seconds and not settled:
                logger.warning(
                    "a claim expired before the handler returned, and the message may have been handled "
                    "twice: group=%s key=%s. Raise claim_timeout",
                    self._config.group, key,
                )  # fmt: skip


def _on_asyncio() -> bool:
    return asyncio._get_running_loop() is not None and not trio.lowlevel.in_trio_task()


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that blocks in a worker thread of trio or asyncio, to its end even if cancelled."""
    if not _on_asyncio():
        with trio.CancelScope(shield=True):
            return await trio.to_thread.run_sync(function, *arguments)
    call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise


async def _settle_later(attempt: _Attempt, awaitable: Awaitable[Any]) -> Any:
    """Await a handler's call and settle its claims. The handler sees the claims meanwhile."""
    token = current_claims.set(attempt.claims)
    try:
        result = await awaitable
    except GeneratorExit:  # the loop is closed. The claims expire by themselves
        raise
    except BaseException:
        current_claims.reset(token)
        await _in_thread(attempt.release)
        raise
    current_claims.reset(token)
    return await _in_thread(attempt.result, result)
