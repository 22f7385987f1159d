"""The transaction producer, whose messages are delivered only if the sender's local work succeeds."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias, Unpack

import trio

from rocketmq_py.arguments import check_number
from rocketmq_py.callables import check_callable
from rocketmq_py.client.client import Client
from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.errors import BrokerError, ConfigurationError, InvalidMessageError, RocketMQError
from rocketmq_py.message import Message, SendStatus
from rocketmq_py.producer.config import ProducerConfig
from rocketmq_py.producer.hooks import SendMode
from rocketmq_py.producer.producer import Producer
from rocketmq_py.producer.send_request import Destination
from rocketmq_py.producer.transaction_checker import TransactionCheck, TransactionChecker, call_for_state
from rocketmq_py.producer.transaction_config import TransactionConfig, TransactionOptions
from rocketmq_py.producer.transaction_reports import TransactionReporter
from rocketmq_py.producer.transaction_values import (
    HalfMessage,
    Transaction,
    TransactionSendResult,
    TransactionState,
    TransactionStatistics,
)
from rocketmq_py.property_names import CHECK_IMMUNITY_SECONDS, PRODUCER_GROUP, TRANSACTION_PREPARED
from rocketmq_py.protocol.stored_message import TRANSACTION_PREPARED_FLAG

logger: Final = logging.getLogger("rocketmq_py.producer")

LocalWork: TypeAlias = Callable[[Message, str], TransactionState | Awaitable[TransactionState]]
"""The sender's local work. It gets the message and the id of its transaction, and returns the outcome. An
async function, or a plain one, which runs in a worker thread."""


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
    :meth:`transaction` send in a transaction. The other methods send messages that are delivered at once.

    Leaving the context waits for transactions in progress, for half of ``close_timeout``. Transactions that
    do not end in time remain unknown. Java: ``TransactionMQProducer``.

    Args:
        client: as for a Producer.
        *configs: a TransactionConfig, a ProducerConfig, and a ClientConfig unless a client is shared.
            Keywords may set fields that these leave at their defaults.
        group: the producer group, which brokers check back with. Required, here or in the ProducerConfig.
        check: returns the outcome of a transaction as a TransactionState. An async function, or a plain one,
            which runs in a worker thread. If it raises, the broker checks again.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of TransactionConfig and ProducerConfig, and those of ClientConfig unless a
            client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, missing, or invalid.

    Attributes:
        transaction_config: the settings of transactions.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: TransactionConfig | ProducerConfig | ClientConfig,
        group: str | None = None,
        check: TransactionCheck,
        rng: random.Random | None = None,
        **options: Unpack[TransactionOptions],
    ) -> None:
        own, of_producer, of_client = split_options(
            options, TransactionConfig, ProducerConfig, ClientConfig, configs=configs, group=group
        )
        if "group" not in of_producer:
            raise ConfigurationError(
                "group is missing; brokers check back with the producers of a transaction's group"
            )
        check_callable(check, "check", "message")
        self.transaction_config: TransactionConfig = TransactionConfig(**own)
        super().__init__(client, rng=rng, **of_producer, **of_client)
        self._reporter = TransactionReporter(self.client, self.config, self._hooks)
        self._checker = TransactionChecker(
            self.client, self.config.group, check, self.transaction_config.check_concurrency, self._reporter
        )
        self._in_progress = 0
        self._all_ended = trio.lowlevel.ParkingLot()

    async def send_in_transaction(
        self,
        message: Message,
        local_work: LocalWork,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
        check_immunity: float | None = None,
    ) -> TransactionSendResult:
        """Send a message that is delivered only if ``local_work`` commits.

        Java: ``sendMessageInTransaction``.

        Args:
            message: the message. It cannot be delayed.
            local_work: called with the message and the id of its transaction when the half message is stored.
                An async function, or a plain one, which runs in a worker thread. It returns a
                TransactionState. If it raises, the setting ``on_error`` is reported, and the exception is
                logged and in the result.
            queue: the queue, or a selector; see Producer.
            timeout: seconds for storing the half message. None for the setting ``send_timeout``.
            check_immunity: seconds, rounded up to whole ones, during which the broker does not check. None
                for the broker's setting (transactionTimeOut, 6 s). After that time, a broker 5.x ignores the
                report and checks (CHECK_IMMUNITY_TIME_IN_SECONDS).

        Raises:
            ConfigurationError: ``local_work`` does not accept a message and an id, or ``check_immunity`` is
                not a number. Nothing was sent.
            InvalidMessageError: no broker would accept the message in a transaction.
            RocketMQError: as :meth:`send`, if the half message could not be stored. ``local_work`` was not
                called.

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
        timeout: float | None = None,
        check_immunity: float | None = None,
    ) -> AsyncIterator[Transaction]:
        """Send a message that is delivered only if the block ends without an exception.

        ::

            async with producer.transaction(message) as transaction:
                await database.execute(..., transaction.id)

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
                transaction.state = self.transaction_config.on_error
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
        self._checker.open(self.nursery)
        self.nursery.start_soon(self._find_brokers)

    async def _close(self) -> None:
        with trio.move_on_after(self.close_timeout / 2):
            while self._in_progress:
                await self._all_ended.park()
        await super()._close()

    def _abandon(self) -> None:
        self._checker.close()
        super()._abandon()

    async def _find_brokers(self) -> None:
        """Look up the routes of the setting ``topics``, so that their brokers get heartbeats.

        Brokers check back only with producers that they know from a heartbeat.
        """
        logs = RetryLogs(logger, "route lookup", "topic", group=self.config.group)
        missing = list(self.transaction_config.topics)
        while missing:
            for topic in tuple(missing):
                try:
                    await self.client.routes.get(topic, for_sending=True)
                except RocketMQError as error:
                    logs.failed(topic, error, retry_in=self.client.config.route_refresh_interval)
                else:
                    logs.succeeded(topic)
                    missing.remove(topic)
            await trio.sleep(self.client.config.route_refresh_interval)

    # Transactions

    @asynccontextmanager
    async def _half_sent(
        self,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
        check_immunity: float | None,
    ) -> AsyncIterator[Transaction]:
        """Send the half message, and defer checks of its transaction during the block."""
        self._check_open()
        self._in_progress += 1
        try:
            transaction = await self._send_half(message, queue, timeout, check_immunity)
            self._checker.defer_checks(transaction.half)
            try:
                yield transaction
            finally:
                self._checker.take_deferred(transaction.half)
        finally:
            self._in_progress -= 1
            if not self._in_progress:
                self._all_ended.unpark_all()

    async def _send_half(
        self,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
        check_immunity: float | None,
    ) -> Transaction:
        properties = self._half_properties(check_immunity)
        context = self._context(SendMode.AWAITED, [message], is_half=True)
        async with self._hooks.around(context):
            message = context.messages[0]
            if message.delay_level or message.is_timed:
                raise InvalidMessageError("a message in a transaction cannot be delayed")
            if message.lite_topic:
                raise InvalidMessageError("a message in a transaction cannot have a lite topic")
            request = self._builder.build(
                message,
                queue,
                timeout,
                self.config.retries,
                context,
                system_flag=TRANSACTION_PREPARED_FLAG,
                system_properties=properties,
            )
            request.wants_heartbeat = True  # brokers check back only with producers that they know
            result = await self._sender.deliver(request)
            context.results = (result,)
        return Transaction(message, result, HalfMessage.sent(message, result))

    def _half_properties(self, check_immunity: float | None) -> dict[str, str]:
        properties = {
            TRANSACTION_PREPARED: "true",
            PRODUCER_GROUP: self.client.namespace.wrap_group(self.config.group),
        }
        if check_immunity is not None:
            if not 0 < check_number(check_immunity, "check_immunity") < math.inf:
                raise InvalidMessageError(
                    f"check_immunity is {check_immunity!r}; it must be a number of seconds above 0"
                )
            properties[CHECK_IMMUNITY_SECONDS] = str(math.ceil(check_immunity))
        return properties

    async def _do_local_work(self, local_work: LocalWork, transaction: Transaction) -> Exception | None:
        """Call ``local_work``, set the transaction's state, and return the exception, if any."""
        try:
            transaction.state = await call_for_state(local_work, transaction.message, transaction.id)
        except Exception as error:
            transaction.state = self.transaction_config.on_error
            logger.exception(
                "local work failed: group=%s topic=%s transaction=%s outcome=%s",
                self.config.group, transaction.message.topic, transaction.id, transaction.state.value,
            )  # fmt: skip
            return error
        return None

    async def _report(self, transaction: Transaction) -> None:
        half = self._checker.take_deferred(transaction.half)
        transaction.end_error = await self._reporter.report(half, transaction.state)
