"""The transaction producer, whose messages are delivered only if the sender's local work succeeds."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, Unpack

import trio

from rocketmq_py.arguments import Duration, check_number, seconds
from rocketmq_py.callables import check_callable
from rocketmq_py.client.client import Client
from rocketmq_py.client.features import TRANSACTIONS
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.client.user_functions import users_traceback
from rocketmq_py.errors import BrokerError, InvalidMessageError, RocketMQError, TopicNotFoundError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import Message, SendStatus
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.producer.destinations import Destination
from rocketmq_py.producer.producer import Producer
from rocketmq_py.producer.transaction_checker import TransactionCheck, TransactionChecker, call_for_state
from rocketmq_py.producer.transaction_reports import TransactionReporter
from rocketmq_py.producer.transaction_settings import TransactionOptions, TransactionSettings
from rocketmq_py.producer.transaction_values import (
    HalfMessage,
    Transaction,
    TransactionSendResult,
    TransactionState,
    TransactionStatistics,
    half_of,
)
from rocketmq_py.property_names import CHECK_IMMUNITY_SECONDS, TRANSACTION_PREPARED
from rocketmq_py.protocol.stored_message import TRANSACTION_PREPARED_FLAG
from rocketmq_py.shown_settings import takes_settings

logger: Final = LibraryLogger("rocketmq_py.producer")

LocalWork: TypeAlias = Callable[[Message, str], TransactionState | Awaitable[TransactionState]]
"""The sender's local work. It gets the message and the id of its transaction, and returns the outcome. An
async function, or a plain one, which runs in a worker thread."""


@takes_settings(TransactionSettings, ClientSettings)
class TransactionProducer(Producer):
    """Sends messages that are delivered only if the sender's local work succeeds.

    The broker stores such a message as a half message and withholds it. The sender does its work, for example
    a database transaction, and reports the outcome to the broker. If the broker gets no report, for example
    because the sender was killed, it checks back with any producer of the group, 15 times by default. The
    producer then calls ``check``. An error never commits a message.

    ``check`` gets the half message as a ReceivedMessage. Its ``message_id`` is the id of the transaction. It
    should return ROLLBACK for an unknown id. In that case the sender died before its work, or a broker has
    stored the half message without the sender getting the answer. ``check`` may be called for a transaction
    that has just ended. It is not called for transactions in progress in this producer. All producers of the
    group must be able to answer checks, so the group must contain no producers of another kind.

    As after any retried send, a consumer may get a message twice. :meth:`send_in_transaction` and
    :meth:`transaction` send in a transaction, never in a batch. The other methods send messages that are
    delivered at once.

    Leaving the context waits for the transactions in progress and their reports, too, for as long as
    transactions end or other results arrive. After ``close_timeout`` seconds without one, the rest remains
    unknown, and is logged. Java: ``TransactionMQProducer``.

    Args:
        client: as for a Producer.
        group: the producer group, which brokers check back with. Required, here or in the ProducerSettings.
        check: called with a message whose transaction has no outcome yet. Returns the outcome as a
            TransactionState. An async function, or a plain one, which runs in a worker thread. If it raises,
            the broker checks again.
        **options: the settings of a TransactionProducer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown, missing, or invalid.
    """

    _settings_class = TransactionSettings
    _settings: TransactionSettings

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        check: TransactionCheck,
        **options: Unpack[TransactionOptions],
    ) -> None:
        check_callable(check, "check", "message")
        of_producer: dict[str, Any] = {**options}
        super().__init__(client, group=group, **of_producer)
        self._reporter = TransactionReporter(self._client, self._settings, self._hooks)
        self._checker = TransactionChecker(self._client, self._settings.group, check, self._reporter)
        self._in_progress = 0
        self._all_ended = trio.lowlevel.ParkingLot()

    @property
    def settings(self) -> TransactionSettings:
        """The settings."""
        return self._settings

    async def send_in_transaction(
        self,
        message: Message,
        local_work: LocalWork,
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
        check_immunity: Duration | None = None,
    ) -> TransactionSendResult:
        """Send a message that is delivered only if ``local_work`` commits.

        Java: ``sendMessageInTransaction``.

        Args:
            message: the message. It cannot be delayed.
            local_work: called with the message and its ``message_id``, which identifies the transaction, when
                the half message is stored. An async function, or a plain one, which runs in a worker thread.
                It returns a TransactionState. If it raises, the setting ``on_error`` is reported, and the
                exception is logged and in the result.
            queue: the queue, or a selector; see Producer.
            timeout: seconds for storing the half message. None for the setting ``send_timeout``.
            check_immunity: seconds, rounded up to whole ones, during which the broker does not check. None
                for the broker's setting (transactionTimeOut, 6 s). After that time, a broker 5.x ignores the
                report and checks (CHECK_IMMUNITY_TIME_IN_SECONDS).

        Raises:
            ConfigurationError: ``local_work`` does not accept a message and an id, or ``check_immunity`` is
                not a number. Nothing was sent.
            InvalidMessageError: no broker would accept the message in a transaction.
            UnsupportedByBrokerError: the broker is older than 4.3.0, and would not check the transaction.
            RocketMQError: as :meth:`send`, if the half message could not be stored. In these cases,
                ``local_work`` was not called.

        If cancelled, nothing is reported, and the broker will check back. A plain ``local_work`` is not
        interrupted, and its outcome is reported.
        """
        check_callable(local_work, "local_work", "message", "transaction_id")
        error = None
        async with self._half_sent(message, queue, timeout, check_immunity) as transaction:
            if transaction.result.status is SendStatus.SEND_OK:
                error = await self._do_local_work(local_work, transaction)
            else:
                transaction.state = TransactionState.ROLLBACK
            await self._report(transaction)
        return TransactionSendResult(transaction.result, transaction.state, error, transaction.end_error)

    @asynccontextmanager
    async def transaction(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
        check_immunity: Duration | None = None,
    ) -> AsyncIterator[Transaction]:
        """Send a message that is delivered only if the block ends without an exception.

        ::

            async with producer.transaction(message) as transaction:
                await database.execute(..., transaction.transaction_id)

        The end of the block commits, unless the block has set ``transaction.state``. An exception reports the
        setting ``on_error``, and propagates. The arguments are those of :meth:`send_in_transaction`.

        Raises:
            BrokerError: the half message was stored with a status other than SEND_OK. It was rolled back, and
                the block does not run.
            RocketMQError: as :meth:`send_in_transaction`.

        If cancelled, nothing is reported, and the broker will check back.
        """
        async with self._half_sent(message, queue, timeout, check_immunity) as transaction:
            status = transaction.result.status
            if status is not SendStatus.SEND_OK:
                transaction.state = TransactionState.ROLLBACK
                await self._report(transaction)
                broker_name = transaction.result.queue.broker_name
                raise BrokerError(status.value, "the half message was rolled back", broker_name)
            try:
                yield transaction
            except Exception:
                transaction.state = self._settings.on_error
                await self._report(transaction)
                raise
            await self._report(transaction)

    @property
    def transaction_statistics(self) -> TransactionStatistics:
        """A snapshot of the counters of transactions and checks."""
        reported = self._reporter.reported
        return TransactionStatistics(
            in_progress=self._in_progress,
            committed=reported[TransactionState.COMMIT],
            rolled_back=reported[TransactionState.ROLLBACK],
            unknown=reported[TransactionState.UNKNOWN],
            not_reported=self._reporter.failed,
            checked=self._checker.checked,
            dropped=self._checker.dropped,
        )

    # Lifespan

    async def _open(self) -> None:
        await super()._open()
        self._checker.open(self._nursery)
        self._nursery.start_soon(self._find_brokers)

    async def _outcomes(self) -> None:
        while self._in_progress:
            await self._all_ended.park()
        await super()._outcomes()

    def _abandon(self) -> None:
        self._checker.close()
        if self._in_progress and self._has_opened:
            logger.warning(
                "transactions had not ended when their producer was closed, the broker will check back: "
                "group=%s transactions=%d",
                self._settings.group, self._in_progress,
            )  # fmt: skip
        super()._abandon()

    async def _find_brokers(self) -> None:
        """Look up the routes of the setting ``topics``, so that their brokers get heartbeats.

        Brokers check back only with producers that they know from a heartbeat.
        """
        logs = RetryLogs(logger, "route lookup", "topic", group=self._settings.group)
        missing = list(self._settings.topics)
        while missing:
            for topic in tuple(missing):
                try:
                    await self._client.routes.get(topic, for_sending=True)
                except RocketMQError as error:
                    # Clusters that create no topics automatically do not have the default one.
                    if topic != DEFAULT_TOPIC or not isinstance(error, TopicNotFoundError):
                        logs.failed(topic, error, retry_in=self._client.settings.route_refresh_interval)
                else:
                    logs.succeeded(topic)
                    missing.remove(topic)
            await trio.sleep(self._client.settings.route_refresh_interval)

    # Transactions

    @asynccontextmanager
    async def _half_sent(
        self,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
        check_immunity: Duration | None,
    ) -> AsyncIterator[Transaction]:
        """Send the half message, and defer checks of its transaction during the block."""
        self._check_open()
        self._in_progress += 1
        try:
            transaction = await self._send_half(message, queue, timeout, check_immunity)
            self._checker.defer_checks(half_of(transaction))
            try:
                yield transaction
            finally:
                self._checker.take_deferred(half_of(transaction))
        finally:
            self._in_progress -= 1
            self._sender.counters.last_result = trio.current_time()
            if not self._in_progress:
                self._all_ended.unpark_all()

    async def _send_half(
        self,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
        check_immunity: Duration | None,
    ) -> Transaction:
        message, result = await self._deliver(
            message,
            queue,
            timeout,
            is_half=True,
            system_flag=TRANSACTION_PREPARED_FLAG,
            system_properties=self._half_properties(check_immunity),
            needs=TRANSACTIONS,
        )
        return Transaction(message, result, HalfMessage.sent(message, result))

    def _half_properties(self, check_immunity: Duration | None) -> dict[str, str]:
        properties = {TRANSACTION_PREPARED: "true"}
        if check_immunity is not None:
            if not 0 < (number := check_number(seconds(check_immunity), "check_immunity")) < math.inf:
                raise InvalidMessageError(
                    f"check_immunity is {check_immunity!r}; it must be a number of seconds above 0"
                )
            properties[CHECK_IMMUNITY_SECONDS] = str(math.ceil(number))
        return properties

    async def _do_local_work(self, local_work: LocalWork, transaction: Transaction) -> Exception | None:
        """Call ``local_work``, set the transaction's state, and return the exception, if any."""
        message, transaction_id = transaction.message, transaction.transaction_id
        try:
            transaction.state = await call_for_state(local_work, message, transaction_id)
        except Exception as error:
            transaction.state = self._settings.on_error
            logger.error(
                "local work failed: group=%s topic=%s transaction=%s outcome=%s",
                self._settings.group, message.topic, transaction_id, transaction.state.value,
                exc_info=users_traceback(error),
            )  # fmt: skip
            return error
        return None

    async def _report(self, transaction: Transaction) -> None:
        half = self._checker.take_deferred(half_of(transaction))
        transaction.end_error = await self._reporter.report(half, transaction.state)
