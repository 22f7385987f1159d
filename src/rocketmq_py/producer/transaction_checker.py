"""Answering brokers that ask what became of a transaction."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import trio

from rocketmq_py import properties as names
from rocketmq_py.callables import is_async
from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.client.retry_log import RepeatedLog
from rocketmq_py.client.user_calls import call_in_thread, outcome_of, raise_without_failures
from rocketmq_py.codes import RequestCode
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.producer.end_transaction import TransactionEnder
from rocketmq_py.producer.transaction_values import HalfMessage, TransactionState
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import CheckTransactionStateRequest
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection

logger: Final = logging.getLogger("rocketmq_py.producer")

MOST_CHECKS = 2000
"""Transactions asked about that may wait or be checked here at the same time (Java: checkRequestHoldMax)."""
MOST_CHECK_BYTES = 64 * 1024 * 1024
"""The same for the bodies of their messages together; a larger single one goes alone."""

TransactionCheck: TypeAlias = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
"""Finds out what became of the transaction of a half message. An async function, or a plain one, which is
called in a worker thread. When it raises, the state is UNKNOWN: the broker asks again."""


async def find_out(
    function: Callable[..., TransactionState | Awaitable[TransactionState]], *arguments: Any
) -> TransactionState:
    """Call a user's function, a plain one in a worker thread, and return the state that it returns.

    What is no state is logged, and UNKNOWN.
    """
    if is_async(function):
        returned: tuple[object] = (function(*arguments),)
    else:
        returned = await call_in_thread(function, *arguments)
    outcome = await outcome_of(returned)
    if isinstance(outcome, TransactionState):
        return outcome
    logger.error("%r returned %r, which is no TransactionState: the state is unknown", function, outcome)
    return TransactionState.UNKNOWN


class TransactionChecker:
    """Takes the questions of brokers about one group's transactions, and has them answered.

    A broker that has no answer asks again, and stores the half message again each time: only the latest
    copy counts. So of several questions about one transaction the latest is answered, once.

    Args:
        client: gets the questions.
        group: whose transactions.
        check: the user's function.
        concurrency: how many calls of it may run at the same time.
        ender: tells the broker the answer.

    Attributes:
        checked: how many calls have ended.
        dropped: questions that found no space; the broker asks again.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        check: TransactionCheck,
        concurrency: int,
        ender: TransactionEnder,
    ) -> None:
        self._client = client
        self._group = client.namespace.wrap_group(group)
        self._check = check
        self._ender = ender
        self._places = trio.CapacityLimiter(concurrency)
        # The latest question about each transaction whose state somebody here is about to find out.
        self._questions: dict[tuple[str, str], HalfMessage | None] = {}
        self._waiting = 0
        self._waiting_bytes = 0
        self._nursery: trio.Nursery | None = None
        self._stop_serving: Callable[[], None] | None = None
        self._dropped_log = RepeatedLog(logger)
        self.checked: int = 0
        self.dropped: int = 0

    def open(self, nursery: trio.Nursery) -> None:
        """Begin to take questions; ``check`` runs in ``nursery``."""
        self._nursery = nursery
        self._stop_serving = self._client.serve(RequestCode.CHECK_TRANSACTION_STATE, self._take)

    def close(self) -> None:
        """Take no questions any more."""
        self._nursery = None
        if self._stop_serving is not None:
            self._stop_serving()
            self._stop_serving = None

    def hold(self, half: HalfMessage) -> None:
        """Keep questions about a transaction that is under way: its own end will answer them."""
        self._questions.setdefault(half.key, None)

    def release(self, half: HalfMessage) -> HalfMessage:
        """End that; return what the latest question was about, or ``half`` if there was none. Repeatable."""
        return self._questions.pop(half.key, None) or half

    def _take(self, connection: Connection, request: Command) -> bool:
        header = CheckTransactionStateRequest.from_fields(request.fields)
        broker_name = header.broker_name or self._broker_name(connection.address)
        messages = self._client.namespace.unwrap_messages(decode_messages(request.body, broker_name))
        if not messages or messages[0].properties.get(names.PRODUCER_GROUP) != self._group:
            return False
        message = messages[0]
        half = HalfMessage.asked_about(message, header, connection)
        if half.key in self._questions:
            self._questions[half.key] = half
        elif self._has_space(message) and start_soon(self._nursery, self._answer, half.key, message):
            self._questions[half.key] = half
            self._waiting += 1
            self._waiting_bytes += len(message.body)
        else:
            self.dropped += 1
            self._dropped_log.warning(
                "transaction check dropped, the broker will ask again: group=%s transaction=%s waiting=%d",
                self._group, half.message_id, self._waiting,
            )  # fmt: skip
        return True

    def _broker_name(self, address: str) -> str:
        """Return whose address this is: brokers of 4.x do not say their name."""
        for name, addresses in self._client.routes.brokers().items():
            for known in addresses.values():
                if address in (known, self._client.brokers.channel(known)):
                    return name
        return ""

    def _has_space(self, message: ReceivedMessage) -> bool:
        if self._waiting >= MOST_CHECKS:
            return False
        return not self._waiting or self._waiting_bytes + len(message.body) <= MOST_CHECK_BYTES

    async def _answer(self, key: tuple[str, str], message: ReceivedMessage) -> None:
        async with self._places:
            state = await self._state_of(message)
        self.checked += 1
        self._waiting -= 1
        self._waiting_bytes -= len(message.body)
        half = self._questions.pop(key, None)
        if half is not None:
            await self._ender.tell(half, state)

    async def _state_of(self, message: ReceivedMessage) -> TransactionState:
        try:
            return await find_out(self._check, message)
        except Exception:
            logger.exception(_FAILED, message.message_id, message.topic)
        except BaseExceptionGroup as group:
            raise_without_failures(group, logger, _FAILED, message.message_id, message.topic)
        return TransactionState.UNKNOWN


_FAILED = "checking transaction %s of topic %s failed: its state is unknown, and the broker will ask again"
