"""Answers the transaction checks of brokers."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.client.retry_log import RepeatedLog
from rocketmq_py.client.user_functions import call_user_function, raise_without_failures, users_traceback
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.producer.transaction_reports import TransactionReporter
from rocketmq_py.producer.transaction_values import HalfMessage, TransactionState
from rocketmq_py.property_names import PRODUCER_GROUP
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import CheckTransactionStateRequest
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection
from rocketmq_py.remoting.nurseries import is_failure

logger: Final = LibraryLogger("rocketmq_py.producer")

CHECK_CONCURRENCY = 8
"""The largest number of concurrent calls of ``check``. Java's checkThreadPoolMaxSize is 1, with which
one hanging call blocks all others."""
MAX_CHECKS = 2000
"""The largest number of checks that wait or run (Java: checkRequestHoldMax)."""
MAX_CHECK_BYTES = 64 * 1024 * 1024
"""The largest number of bytes in the bodies of their messages. A larger message is checked alone."""

TransactionCheck: TypeAlias = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
"""Returns the outcome of the transaction of a half message. An async function, or a plain one, which runs in
a worker thread. If it raises, the outcome is UNKNOWN and the broker checks again."""


async def call_for_state(
    function: Callable[..., TransactionState | Awaitable[TransactionState]], *arguments: Any
) -> TransactionState:
    """Call the user's ``check`` or ``local_work`` and return its state. A plain function runs in a thread.

    If it returns anything but a TransactionState, log an error and return UNKNOWN.
    """
    outcome = await call_user_function(function, *arguments)
    if isinstance(outcome, TransactionState):
        return outcome
    logger.error("%r returned %r instead of a TransactionState; the outcome is unknown", function, outcome)
    return TransactionState.UNKNOWN


class TransactionChecker:
    """Answers the checks of brokers about the transactions of a group.

    A broker without an answer checks again. Each check stores a new copy of the half message, and only the
    last copy counts. So of several checks of one transaction, only the last is answered, and once.

    Args:
        client: receives the checks.
        group: the producer group.
        check: the user's function.
        reporter: reports the outcomes to the brokers.

    Attributes:
        checked: the number of finished calls.
        dropped: the number of checks that were dropped because too many waited. The broker checks again.
    """

    def __init__(
        self,
        client: ClientCore,
        group: str,
        check: TransactionCheck,
        reporter: TransactionReporter,
    ) -> None:
        self._client = client
        self._group = group
        self._full_group = client.namespace.wrap_group(group)  # as in PGROUP: properties stay as stored
        self._check = check
        self._reporter = reporter
        self._limiter = trio.CapacityLimiter(CHECK_CONCURRENCY)
        # The last check of each transaction. There are two tables, because a check may run while its
        # transaction begins or ends.
        self._of_transactions_in_progress: dict[tuple[str, str], HalfMessage | None] = {}
        self._of_running_checks: dict[tuple[str, str], HalfMessage] = {}
        self._waiting = 0
        self._waiting_bytes = 0
        self._nursery: trio.Nursery | None = None
        self._context: contextvars.Context
        self._stop_serving: Callable[[], None] | None = None
        self._dropped_log = RepeatedLog(logger)
        self.checked: int = 0
        self.dropped: int = 0

    def open(self, nursery: trio.Nursery) -> None:
        """Start to accept checks. ``check`` runs in ``nursery``, in copies of the current context."""
        self._nursery = nursery
        self._context = contextvars.copy_context()
        self._stop_serving = self._client.add_request_handler(CheckTransactionStateRequest, self._accept)

    def close(self) -> None:
        """Stop accepting checks."""
        self._nursery = None
        if self._stop_serving is not None:
            self._stop_serving()
            self._stop_serving = None

    def defer_checks(self, half: HalfMessage) -> None:
        """Do not call ``check`` for a transaction in progress. Its end will answer the last check."""
        self._of_transactions_in_progress[half.key] = None

    def take_deferred(self, half: HalfMessage) -> HalfMessage:
        """End :meth:`defer_checks`. Return the half message of the last check, or ``half``. Repeatable."""
        return self._of_transactions_in_progress.pop(half.key, None) or half

    def _accept(self, connection: Connection, request: Command, header: CheckTransactionStateRequest) -> bool:
        """Accept a check. Return False if it is for another group, so that other producers get it."""
        broker_name = header.broker_name or self._broker_name(connection.address)
        messages = self._client.body_of(request, lambda data: decode_messages(data, broker_name))
        # Brokers name the group in a property of the message only.
        if not messages or messages[0].properties.get(PRODUCER_GROUP) != self._full_group:
            return False
        message = messages[0]
        half = HalfMessage.checked(message, header, connection.address)
        if half.key in self._of_transactions_in_progress:
            self._of_transactions_in_progress[half.key] = half
        elif half.key in self._of_running_checks:
            self._of_running_checks[half.key] = half
        elif self._has_space(message) and self._start_check(half.key, message):
            self._of_running_checks[half.key] = half
            self._waiting += 1
            self._waiting_bytes += len(message.body)
        else:
            self.dropped += 1
            self._dropped_log.warning(
                "transaction check dropped, the broker will check again: group=%s transaction=%s waiting=%d",
                self._group, half.message_id, self._waiting,
            )  # fmt: skip
        return True

    def _broker_name(self, address: str) -> str:
        """Return the name of the broker with an address. The checks of brokers 4.x do not contain it."""
        for name, addresses in self._client.routes.brokers().items():
            for known in addresses.values():
                if address in (known, self._client.brokers.request_address(known)):
                    return name
        return ""

    def _has_space(self, message: ReceivedMessage) -> bool:
        if self._waiting >= MAX_CHECKS:
            return False
        return not self._waiting or self._waiting_bytes + len(message.body) <= MAX_CHECK_BYTES

    def _start_check(self, key: tuple[str, str], message: ReceivedMessage) -> bool:
        """Start to call ``check``, in the context that opened the producer. Return False if closed."""
        return self._context.copy().run(start_soon, self._nursery, self._answer, key, message)

    async def _answer(self, key: tuple[str, str], message: ReceivedMessage) -> None:
        async with self._limiter:
            state = await self._state_of(message)
        self.checked += 1
        self._waiting -= 1
        self._waiting_bytes -= len(message.body)
        await self._reporter.report(self._of_running_checks.pop(key), state)

    async def _state_of(self, message: ReceivedMessage) -> TransactionState:
        try:
            return await call_for_state(self._check, message)
        except BaseException as error:
            ids = self._group, message.topic, message.message_id
            if is_failure(error):
                logger.error(_CHECK_FAILED, *ids, exc_info=users_traceback(error))
            elif isinstance(error, BaseExceptionGroup):
                raise_without_failures(error, logger, _CHECK_FAILED, *ids)
            else:
                raise
        return TransactionState.UNKNOWN


_CHECK_FAILED = (
    "transaction check failed, the broker will check again: group=%s topic=%s transaction=%s outcome=unknown"
)
