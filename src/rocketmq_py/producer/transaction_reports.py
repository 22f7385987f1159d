"""Reports the outcomes of transactions to brokers (END_TRANSACTION)."""

from __future__ import annotations

from collections import Counter
from typing import Final

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.errors import ClosedError, Delivery, RequestTimeoutError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.producer.hooks import EndTransactionContext, Hooks
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.producer.transaction_values import HalfMessage, TransactionState
from rocketmq_py.protocol.headers import EndTransactionRequest
from rocketmq_py.protocol.stored_message import TRANSACTION_COMMIT_FLAG, TRANSACTION_ROLLBACK_FLAG

logger: Final = LibraryLogger("rocketmq_py.producer")

_ON_WIRE = {
    TransactionState.COMMIT: TRANSACTION_COMMIT_FLAG,
    TransactionState.ROLLBACK: TRANSACTION_ROLLBACK_FLAG,
    TransactionState.UNKNOWN: 0,
}


class TransactionReporter:
    """Reports the outcomes of a producer's transactions. Java: ``DefaultMQProducerImpl.endTransaction``.

    Args:
        client: provides routes and connections.
        config: the producer's settings.
        hooks: called before and after each report.

    Attributes:
        reported: the number of reports that were written, by state.
        failed: the number of reports that could not be written.
    """

    def __init__(self, client: ClientCore, config: ProducerSettings, hooks: Hooks) -> None:
        self._client = client
        self._config = config
        self._hooks = hooks
        self._retry_logs = RetryLogs(logger, "transaction outcome report", "broker", group=config.group)
        self.reported: Counter[TransactionState] = Counter()
        self.failed: int = 0

    async def report(self, half: HalfMessage, state: TransactionState) -> RocketMQError | None:
        """Report an outcome. The broker does not answer.

        An error is logged and returned. The broker will check back. If cancelled, the report may not have
        been sent.
        """
        context = self._context(half, state)
        await self._hooks.before_end_transaction(context)
        error = None
        try:
            await self._send(half, state)
        except RocketMQError as failure:
            error = context.error = failure
            self.failed += 1
            self._retry_logs.failed(
                half.broker_name, failure,
                topic=half.message.topic, transaction=half.message_id, outcome=state.value,
            )  # fmt: skip
        else:
            self._retry_logs.succeeded(half.broker_name)
            self.reported[state] += 1
        await self._hooks.after_end_transaction(context)
        return error

    async def _send(self, half: HalfMessage, state: TransactionState) -> None:
        header = EndTransactionRequest(
            producer_group=self._config.group,
            topic=half.message.topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
            commit_or_rollback=_ON_WIRE[state],
            msg_id=half.message_id,
            transaction_id=half.transaction_id,
            from_transaction_check=half.check_address is not None,
            broker_name=half.broker_name or None,
        )
        fields = self._client.brokers.fields(header)
        timeout = self._config.send_timeout
        if not self._client.is_open:
            raise ClosedError("the client was closed before the transaction ended")
        # The broker's name may be unknown: the checks of brokers 4.x do not contain it.
        address = half.check_address or self._client.routes.broker_address(half.broker_name)
        deadline = trio.current_time() + timeout
        connection = await self._client.connections.get_before(address, deadline)
        with trio.move_on_at(deadline) as scope:
            await connection.oneway(header.code, fields)
        if scope.cancelled_caught:
            raise RequestTimeoutError(address, timeout, Delivery.NOT_SENT)

    def _context(self, half: HalfMessage, state: TransactionState) -> EndTransactionContext:
        return EndTransactionContext(
            producer_group=self._config.group,
            client_id=self._client.client_id,
            topic=half.message.topic,
            message_id=half.message_id,
            transaction_id=half.transaction_id,
            transaction_state=state.value,
            from_check=half.check_address is not None,
            broker_address=half.check_address
            or self._client.routes.master_address_nowait(half.broker_name)
            or "",
            message=half.message,
            region=half.region,
        )
