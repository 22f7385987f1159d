"""Values of transactions: the state, the half message, the result, the statistics."""

from __future__ import annotations

import enum
from typing import Self

import attrs

from rocketmq_py.errors import ConfigurationError, ProtocolError, RocketMQError
from rocketmq_py.message import Message, ReceivedMessage, SendResult
from rocketmq_py.property_names import MESSAGE_REGION, TRACE_SWITCH
from rocketmq_py.protocol.headers import CheckTransactionStateRequest
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.protocol.trace import DEFAULT_REGION


class TransactionState(enum.Enum):
    """The outcome of a transaction. Java: ``LocalTransactionState``."""

    COMMIT = "commit"
    """The broker delivers the message (COMMIT_MESSAGE)."""
    ROLLBACK = "rollback"
    """The broker drops the message (ROLLBACK_MESSAGE)."""
    UNKNOWN = "unknown"
    """Not decided yet. The broker withholds the message and checks later (UNKNOW)."""


@attrs.frozen(eq=False)
class HalfMessage:
    """A message that a broker withholds until the outcome of its transaction is reported.

    Attributes:
        message: the message, as it was sent, or as the broker stored it.
        message_id: the id of the message.
        transaction_id: the broker's id of the transaction.
        broker_name: the broker.
        queue_offset: the offset in the broker's queue of half messages (on the wire: tranStateTableOffset).
        commit_log_offset: the position in the broker's commit log, in bytes.
        check_address: the address of the broker that checked. None if none did.
        region: the broker's region. None if the broker has switched traces off.
    """

    message: Message | ReceivedMessage
    message_id: str
    transaction_id: str | None
    broker_name: str
    queue_offset: int
    commit_log_offset: int
    check_address: str | None = None
    region: str | None = DEFAULT_REGION

    @classmethod
    def sent(cls, message: Message, result: SendResult) -> Self:
        """Return the half message that a broker has stored.

        Raises ProtocolError if the broker's id of the message is malformed.
        """
        try:
            offset_id = OffsetMessageId.parse(result.offset_message_id)
        except ConfigurationError as error:
            raise ProtocolError(
                f"malformed answer of {result.queue.broker_name} to a send: {error}"
            ) from error
        return cls(
            message,
            result.message_id,
            result.transaction_id or result.message_id,
            result.queue.broker_name,
            result.queue_offset,
            offset_id.commit_log_offset,
            region=result.region if result.trace_on else None,
        )

    @classmethod
    def checked(cls, message: ReceivedMessage, header: CheckTransactionStateRequest, address: str) -> Self:
        """Return the half message of a check. The broker stores a new copy of it for each check."""
        is_traced = message.properties.get(TRACE_SWITCH) != "false"
        return cls(
            message,
            message.message_id,
            header.transaction_id,
            message.broker_name,
            header.tran_state_table_offset,
            header.commit_log_offset,
            address,
            (message.properties.get(MESSAGE_REGION) or DEFAULT_REGION) if is_traced else None,
        )

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the transaction, the same for all copies of the half message."""
        return self.broker_name, self.message_id


@attrs.frozen
class TransactionSendResult:
    """The result of ``send_in_transaction``. Java: ``TransactionSendResult``.

    Attributes:
        result: the result of sending the half message. With a status other than SEND_OK, the message was
            rolled back and ``local_work`` was not called.
        state: the outcome to report. If ``end_error`` is None, it was sent to the broker.
        error: the exception of ``local_work``, or None.
        end_error: the error of the report to the broker, or None. The broker will check back.
    """

    result: SendResult
    state: TransactionState
    error: Exception | None = None
    end_error: RocketMQError | None = None


@attrs.define(eq=False)
class Transaction:
    """A transaction in progress; see :meth:`TransactionProducer.transaction`.

    Attributes:
        message: the message, as it was sent.
        result: the result of sending the half message.
        state: the outcome to report when the block ends without an exception. Assign to change it. Raises
            TypeError for anything but a TransactionState.
        end_error: after the block, the error of the report to the broker, or None. The broker will check
            back.
    """

    message: Message
    result: SendResult
    _half: HalfMessage = attrs.field(repr=False)
    state: TransactionState = attrs.field(
        default=TransactionState.COMMIT, validator=attrs.validators.instance_of(TransactionState)
    )
    end_error: RocketMQError | None = None

    @property
    def transaction_id(self) -> str:
        """The id that identifies the transaction to the program: ``result.message_id``.

        ``local_work`` receives it, and the message that ``check`` receives has it as its ``message_id``. The
        broker's own id of the transaction is ``result.transaction_id``.
        """
        return self.result.message_id


def half_of(transaction: Transaction) -> HalfMessage:
    """Return the half message of a transaction."""
    return transaction._half


@attrs.frozen(kw_only=True)
class TransactionStatistics:
    """A snapshot of the counters of transactions and of brokers' checks.

    Attributes:
        in_progress: transactions that have not ended.
        committed: reports of COMMIT, at the end of a transaction or after a check.
        rolled_back: reports of ROLLBACK.
        unknown: reports of UNKNOWN.
        not_reported: outcomes that could not be reported. The broker will check back.
        checked: finished calls of ``check``.
        dropped: checks that were dropped because too many waited. The broker checks again.
    """

    in_progress: int
    committed: int
    rolled_back: int
    unknown: int
    not_reported: int
    checked: int
    dropped: int
