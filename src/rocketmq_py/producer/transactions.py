"""The producer whose messages are delivered only if the sender's own work succeeded."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias, Unpack

import trio

from rocketmq_py import properties as names
from rocketmq_py.arguments import check_number
from rocketmq_py.callables import check_callable
from rocketmq_py.client.client import Client
from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.errors import BrokerError, ConfigurationError, InvalidMessageError, RocketMQError
from rocketmq_py.message import Message, SendStatus
from rocketmq_py.producer.config import ProducerConfig
from rocketmq_py.producer.end_transaction import TransactionEnder
from rocketmq_py.producer.hooks import SendMode
from rocketmq_py.producer.producer import Producer
from rocketmq_py.producer.send_request import Destination
from rocketmq_py.producer.transaction_checker import TransactionCheck, TransactionChecker, find_out
from rocketmq_py.producer.transaction_config import TransactionConfig, TransactionOptions
from rocketmq_py.producer.transaction_values import (
    HalfMessage,
    Transaction,
    TransactionSendResult,
    TransactionState,
    TransactionStatistics,
)
from rocketmq_py.protocol.stored_message import TRANSACTION_PREPARED

logger: Final = logging.getLogger("rocketmq_py.producer")

LocalWork: TypeAlias = Callable[[Message, str], TransactionState | Awaitable[TransactionState]]
"""Does the sender's own work, for a message and its transaction's id, and says what became of it. An async
function, or a plain one, which is called in a worker thread."""


class TransactionProducer(Producer):
    """Sends messages that are delivered only if the sender's own work succeeds.

    The broker keeps such a message back, as a half message, until it is told what became of the work; in
    between the sender does the work, a database's transaction perhaps. If the broker is not told, because
    the sender was killed for example, it asks any producer of the group, again and again (15 times, unless it
    is configured otherwise): that is what ``check`` is for. Nothing is ever committed because something
    went wrong.

    ``check`` gets the half message as a ReceivedMessage; its ``message_id`` is the transaction's id. It
    should return ROLLBACK for an id that was never heard of: the sender died before its work, or the half
    message is left over from a try of which no answer came. It may be asked about a transaction that has
    just ended, but is not about one that is still under way in this producer. All producers of the group
    must be able to answer; keep others out of it.

    As after any send that is tried again, a consumer may get a message twice. What is sent in other ways
    than by :meth:`send_in_transaction` and :meth:`transaction` is delivered at once.

    Leaving the ``async with`` waits for transactions that are under way, for half of ``close_timeout``; those
    that do not end within remain unknown. Java: ``TransactionMQProducer``.

    Args:
        client: as for a Producer.
        *configs: a TransactionConfig, a ProducerConfig, and a ClientConfig unless a client is shared; instead
            of their fields as keywords, or beside some of them.
        group: the producer group: who is asked. It must be given, here or in the ProducerConfig.
        check: finds out what became of a transaction: an async function, or a plain one, which is called in
            a worker thread. It returns a TransactionState; when it raises, the broker asks again.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of TransactionConfig and ProducerConfig, and those of ClientConfig unless a
            client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, missing, or outside of what is allowed.

    Attributes:
        transaction_config: its settings for transactions.
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
            raise ConfigurationError("group is missing: brokers ask its producers about their transactions")
        check_callable(check, "check", "message")
        self.transaction_config: TransactionConfig = TransactionConfig(**own)
        super().__init__(client, rng=rng, **of_producer, **of_client)
        self._ender = TransactionEnder(self.client, self.config, self._hooks)
        self._checker = TransactionChecker(
            self.client, self.config.group, check, self.transaction_config.check_concurrency, self._ender
        )
        self._under_way = 0
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
            message: what to send; it cannot be delayed.
            local_work: called with the message and its transaction's id when the half message is stored:
                an async function, or a plain one, which is called in a worker thread. It returns a
                TransactionState. When it raises, the broker is told the setting ``on_error``, and the
                exception is logged and in the result.
            queue: where to; see Producer.
            timeout: seconds for storing the half message, instead of the setting ``send_timeout``.
            check_immunity: seconds, rounded up to whole ones, during which the broker does not ask; None
                for its own setting (transactionTimeOut, 6 s). Brokers of 5.x do not listen to an end that
                comes later: they ask then (CHECK_IMMUNITY_TIME_IN_SECONDS).

        Raises:
            ConfigurationError: ``local_work`` does not accept a message and an id. Nothing was sent.
            InvalidMessageError: no broker would take the message, or not in a transaction.
            others: as :meth:`send`, when the half message could not be stored; ``local_work`` was not called.

        When cancelled, or when ``local_work`` is, the broker is told nothing: it will ask ``check``. A plain
        ``local_work`` is not interrupted, and what became of it is told.
        """
        check_callable(local_work, "local_work", "message", "transaction_id")
        error = None
        async with self._begun(message, queue, timeout, check_immunity) as transaction:
            if transaction.result.status is SendStatus.SEND_OK:
                error = await self._do(local_work, transaction)
            else:
                transaction.state = TransactionState.ROLLBACK
            await self._end(transaction)
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
        """Send a message that is delivered only if the block ends well.

        ::

            async with producer.transaction(message) as transaction:
                await database.execute(..., transaction.id)

        The end of the block commits, unless it has set ``transaction.state`` to something else. An
        exception tells the broker the setting ``on_error``, and passes on. The arguments are those of
        :meth:`send_in_transaction`.

        Raises:
            BrokerError: the half message was stored, but not as safely as the broker is configured for (any
                status but SEND_OK). It was rolled back, and the block is not run.
            others: as :meth:`send_in_transaction`.

        When cancelled, the broker is told nothing: it will ask ``check``.
        """
        async with self._begun(message, queue, timeout, check_immunity) as transaction:
            status = transaction.result.status
            if status is not SendStatus.SEND_OK:
                transaction.state = TransactionState.ROLLBACK
                await self._end(transaction)
                broker_name = transaction.result.queue.broker_name
                raise BrokerError(status.value, "the half message was rolled back", broker_name)
            try:
                yield transaction
            except Exception:
                transaction.state = self.transaction_config.on_error
                await self._end(transaction)
                raise
            await self._end(transaction)

    @property
    def transaction_statistics(self) -> TransactionStatistics:
        """What became of its transactions until now."""
        told = self._ender.told
        return TransactionStatistics(
            under_way=self._under_way,
            committed=told[TransactionState.COMMIT],
            rolled_back=told[TransactionState.ROLLBACK],
            unknown=told[TransactionState.UNKNOWN],
            not_told=self._ender.failed,
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
            while self._under_way:
                await self._all_ended.park()
        await super()._close()

    def _abandon(self) -> None:
        self._checker.close()
        super()._abandon()

    async def _find_brokers(self) -> None:
        """Look for the routes of the topics, so that their brokers are sent heartbeats."""
        # Until then, brokers cannot ask this producer for the outcome of a transaction.
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

    # One transaction's way

    @asynccontextmanager
    async def _begun(
        self,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
        check_immunity: float | None,
    ) -> AsyncIterator[Transaction]:
        self._check_open()
        self._under_way += 1
        try:
            transaction = await self._send_half(message, queue, timeout, check_immunity)
            self._checker.hold(transaction.half)
            try:
                yield transaction
            finally:
                self._checker.release(transaction.half)
        finally:
            self._under_way -= 1
            if not self._under_way:
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
                raise InvalidMessageError("it is delayed, which a message in a transaction cannot be")
            request = self._builder.build(
                message,
                queue,
                timeout,
                self.config.retries,
                context,
                system_flag=TRANSACTION_PREPARED,
                system_properties=properties,
            )
            request.wants_heartbeat = True  # a broker asks only those that it has heard of
            result = await self._sender.deliver(request)
            context.results = (result,)
        return Transaction(message, result, HalfMessage.sent(message, result))

    def _half_properties(self, check_immunity: float | None) -> dict[str, str]:
        properties = {
            names.TRANSACTION_PREPARED: "true",
            names.PRODUCER_GROUP: self.client.namespace.wrap_group(self.config.group),
        }
        if check_immunity is not None:
            if not 0 < check_number(check_immunity, "check_immunity") < math.inf:
                raise InvalidMessageError(f"check_immunity is {check_immunity!r}; it must be seconds above 0")
            properties[names.CHECK_IMMUNITY_SECONDS] = str(math.ceil(check_immunity))
        return properties

    async def _do(self, local_work: LocalWork, transaction: Transaction) -> Exception | None:
        """Do the local work; set the transaction's state, and return what the work raised."""
        try:
            transaction.state = await find_out(local_work, transaction.message, transaction.id)
        except Exception as error:
            transaction.state = self.transaction_config.on_error
            logger.exception(
                "local work for a message of topic %s failed; transaction %s: %s",
                transaction.message.topic, transaction.id, transaction.state.value,
            )  # fmt: skip
            return error
        return None

    async def _end(self, transaction: Transaction) -> None:
        latest = self._checker.release(transaction.half)
        transaction.end_error = await self._ender.tell(latest, transaction.state)
