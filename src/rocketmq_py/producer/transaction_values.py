"""What a transaction is: its state, its half message, and what came of it."""

from __future__ import annotations

import enum
from typing import Self

import attrs

from rocketmq_py.errors import ConfigurationError, ProtocolError, RocketMQError
from rocketmq_py.message import Message, ReceivedMessage, SendResult
from rocketmq_py.protocol.headers import CheckTransactionStateRequest
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.remoting import Connection


class TransactionState(enum.Enum):
    """What became of a transaction. Java: ``LocalTransactionState``."""

    COMMIT = "commit"
    """Consumers get the message (COMMIT_MESSAGE)."""
    ROLLBACK = "rollback"
    """Nobody gets the message (ROLLBACK_MESSAGE)."""
    UNKNOWN = "unknown"
    """It is not known yet: the broker keeps the message back, and asks later (UNKNOW)."""


@attrs.frozen(eq=False)
class HalfMessage:
    """A message that a broker keeps back until it is told what became of the transaction.

    Attributes:
        message: as it was sent, or as the broker stored it.
        message_id: the id that its sender gave it.
        transaction_id: the broker's name for the transaction.
        broker_name: the broker.
        queue_offset: its place among the broker's half messages.
        commit_log_offset: its place in the broker's commit log.
        asked_over: the connection over which the broker asked; None if it did not.
    """

    message: Message | ReceivedMessage
    message_id: str
    transaction_id: str | None
    broker_name: str
    queue_offset: int
    commit_log_offset: int
    asked_over: Connection | None = None

    @classmethod
    def sent(cls, message: Message, result: SendResult) -> Self:
        """Return what a broker has just stored. Raises ProtocolError if its id of the message is none."""
        try:
            offset_id = OffsetMessageId.parse(result.offset_message_id)
        except ConfigurationError as error:
            raise ProtocolError(f"{result.queue.broker_name} answered a send: {error}") from error
        return cls(
            message,
            result.message_id,
            result.transaction_id or result.message_id,
            result.queue.broker_name,
            result.queue_offset,
            offset_id.commit_log_offset,
        )

    @classmethod
    def asked_about(
        cls, message: ReceivedMessage, header: CheckTransactionStateRequest, connection: Connection
    ) -> Self:
        """Return what a broker asks about. It stores a half message again each time that it asks."""
        return cls(
            message,
            message.message_id,
            header.transaction_id,
            message.broker_name,
            header.tran_state_table_offset,
            header.commit_log_offset,
            connection,
        )

    @property
    def key(self) -> tuple[str, str]:
        """What stays the same when the broker stores it again."""
        return self.broker_name, self.message_id


@attrs.frozen
class TransactionSendResult:
    """What came of a message that was sent in a transaction. Java: ``TransactionSendResult``.

    Attributes:
        result: where the half message was stored. With a status other than SEND_OK the local work was not
            done, and the message was rolled back.
        state: what became of the transaction, as the broker was told.
        error: what the local work raised, else None.
        end_error: why the broker could not be told, else None; it will ask.
    """

    result: SendResult
    state: TransactionState
    error: Exception | None = None
    end_error: RocketMQError | None = None


@attrs.define(eq=False)
class Transaction:
    """A transaction that is under way; see :meth:`TransactionProducer.transaction`.

    Attributes:
        message: the message, as it was sent.
        result: where the half message was stored.
        state: what the broker will be told when the block ends well; set it to change that. TypeError for
            what is no TransactionState.
        end_error: after the block: why the broker could not be told, else None; it will ask.
        half: how the broker knows it (the producer's affair).
    """

    message: Message
    result: SendResult
    half: HalfMessage = attrs.field(repr=False)
    state: TransactionState = attrs.field(
        default=TransactionState.COMMIT, validator=attrs.validators.instance_of(TransactionState)
    )
    end_error: RocketMQError | None = None

    @property
    def id(self) -> str:
        """The transaction's id: ``message_id`` of the message that ``check`` would be asked about."""
        return self.result.message_id


@attrs.frozen(kw_only=True)
class TransactionStatistics:
    """What became of a producer's transactions, and of questions that it was asked; a snapshot.

    Attributes:
        under_way: transactions that have not ended yet.
        committed: ends, and answers to questions, by which a broker was told to deliver the message.
        rolled_back: those by which one was told to drop it.
        unknown: those by which one was told that it is not known yet.
        not_told: ends and answers that did not leave here; the broker will ask.
        checked: calls of ``check`` that have ended.
        dropped: questions that were dropped because too many waited; the broker asks again.
    """

    under_way: int
    committed: int
    rolled_back: int
    unknown: int
    not_told: int
    checked: int
    dropped: int
