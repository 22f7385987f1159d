"""Half messages of transactions, their outcome, and checks of open transactions.

Java: ``EndTransactionProcessor``, ``TransactionalMessageServiceImpl``, ``TransactionalMessageBridge``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import trio
from msgspec.structs import replace

from rocketmq_py.broker.dispatch import UNSET_REMARK, Refusal, RequestHandler
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.broker_message import (
    TRANSACTION_BITS,
    BrokerMessage,
    PutError,
    int_or_minus_one,
)
from rocketmq_py.broker.storage.consume_queue import StoredMessage
from rocketmq_py.broker.storage.delayed_delivery import MessageScheduler
from rocketmq_py.broker.topics import HALF_TOPIC, MAX_CHECKS_TOPIC
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.properties import encode_properties
from rocketmq_py.property_names import (
    CHECK_IMMUNITY_SECONDS,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_QUEUE_OFFSET,
    UNIQUE_KEY,
    WAIT_STORE,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import CheckTransactionStateRequest, EndTransactionRequest
from rocketmq_py.protocol.stored_message import (
    TRANSACTION_COMMIT_FLAG,
    TRANSACTION_ROLLBACK_FLAG,
    encode_message,
)
from rocketmq_py.remoting import Connection

logger: Final = LibraryLogger("rocketmq_py.broker")

RESERVED_MS = 72 * 3600 * 1000
"""The age at which a half message is discarded without a check (fileReservedTime)."""
_UNKNOWN = 0


class TransactionProcessor:
    """Stores half messages, commits or rolls them back, and checks those that stay open.

    Half messages are in one queue of a system topic. :meth:`run` scans the front of that queue at an
    interval. It skips messages that have ended. A message that has been open for too long is stored again at
    the end of the queue, with an increased check count, and a member of its producer group is asked for the
    outcome. Real brokers record the end of a transaction in another topic, with a delay of up to three
    seconds. Here it takes effect at once.

    As on a real broker, only the offset identifies a half message. One that is committed twice is delivered
    twice, and the copy of one that was stored again is checked although the original has ended.

    Args:
        state: the broker's tables.
        scheduler: stores committed messages, which may be delayed.
    """

    def __init__(self, state: BrokerState, scheduler: MessageScheduler) -> None:
        self._state = state
        self._config = state.config
        self._store = state.store
        self._scheduler = scheduler
        self._next = 0  # the offset of the first half message that may be open
        self._ended: set[int] = set()  # offsets from there on

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {RequestCode.END_TRANSACTION: self._end}

    @property
    def _timeout_ms(self) -> int:
        return int(self._config.transaction_time_out * 1000)

    def prepare(self, message: BrokerMessage) -> StoredMessage:
        """Store a half message, which consumers do not receive. Raises PutError."""
        properties = {
            **message.properties,
            TRANSACTION_ID: message.properties[UNIQUE_KEY],
            REAL_TOPIC: message.topic,
            REAL_QUEUE_ID: str(message.queue_id),
        }
        half = replace(
            message,
            topic=HALF_TOPIC,
            queue_id=0,
            properties=properties,
            system_flag=message.system_flag & ~TRANSACTION_BITS,
        )
        return self._scheduler.put(half)

    def snapshot(self) -> tuple[int, frozenset[int]]:
        """Return which transactions have ended, for :meth:`restore`."""
        return self._next, frozenset(self._ended)

    def restore(self, ended: tuple[int, frozenset[int]]) -> None:
        """Go back to a snapshot: transactions that have ended since are open again."""
        self._next, self._ended = ended[0], set(ended[1])

    async def run(self) -> None:
        """Check open transactions at an interval, until cancelled."""
        while True:
            await trio.sleep(self._config.transaction_check_interval)
            self._check_open_transactions()

    # The end of a transaction

    def _end(self, connection: Connection, request: Command) -> None:
        header = EndTransactionRequest.from_fields(request.fields)
        outcome = header.commit_or_rollback
        if outcome == _UNKNOWN:
            return  # clients send it oneway, and real brokers do not answer it either
        if outcome not in (TRANSACTION_COMMIT_FLAG, TRANSACTION_ROLLBACK_FLAG):
            raise ProtocolError(f"commitOrRollback field wrong: {outcome}")
        stored, half = self._find(header)
        if outcome == TRANSACTION_COMMIT_FLAG:
            self._commit(half, header.commit_log_offset)
        if stored.queue_offset >= self._next:
            self._ended.add(stored.queue_offset)
        remark = None if outcome == TRANSACTION_COMMIT_FLAG else UNSET_REMARK
        connection.respond(request, ResponseCode.SUCCESS, remark=remark)

    def _find(self, header: EndTransactionRequest) -> tuple[StoredMessage, BrokerMessage]:
        stored = self._store.message_at(header.commit_log_offset)
        half = None if stored is None or stored.topic != HALF_TOPIC else BrokerMessage.decode(stored)
        if stored is None or half is None or not _is_complete(half):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if not header.from_transaction_check and self._is_past_immunity(half):
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, UNSET_REMARK)
        if half.properties[PRODUCER_GROUP] != header.producer_group:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if stored.queue_offset != header.tran_state_table_offset:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        return stored, half

    def _is_past_immunity(self, half: BrokerMessage) -> bool:
        """Return whether a message has an immunity time, during which it is not checked, and it is over."""
        seconds = half.properties.get(CHECK_IMMUNITY_SECONDS)
        if not seconds:
            return False
        immunity_ms = max(int_or_minus_one(seconds) * 1000, self._timeout_ms)
        return self._state.now_ms() - half.born_time_ms > immunity_ms

    def _commit(self, half: BrokerMessage, commit_log_offset: int) -> None:
        properties = dict(half.properties)
        message = replace(
            half,
            topic=properties.pop(REAL_TOPIC),
            queue_id=int(properties.pop(REAL_QUEUE_ID)),
            properties=properties,
            system_flag=half.system_flag & ~TRANSACTION_BITS | TRANSACTION_COMMIT_FLAG,
            prepared_transaction_offset=commit_log_offset,
        )
        try:
            self._scheduler.put(message)
        except PutError as error:
            raise Refusal(*error.status.answer(self._config)) from None

    # Checks of open transactions

    def _check_open_transactions(self) -> None:
        queue = self._store.queue(HALF_TOPIC, 0)
        now_ms = self._state.now_ms()
        offset = max(self._next, queue.start)
        while offset < queue.end and (offset in self._ended or self._check(queue[offset], now_ms)):
            offset = max(offset + 1, queue.start)
        self._next = offset
        self._ended = {ended for ended in self._ended if ended >= offset}

    def _check(self, stored: StoredMessage, now_ms: int) -> bool:
        """Check an open transaction if it is due. Returns whether to go on to the next half message."""
        half = BrokerMessage.decode(stored)
        checks = int_or_minus_one(half.properties.get(TRANSACTION_CHECK_TIMES, "0"))
        age_ms = now_ms - half.born_time_ms
        if checks >= self._config.transaction_check_max or age_ms > RESERVED_MS:
            self._discard(half)
            return True
        if stored.store_time_ms >= now_ms:
            return False
        properties = {**half.properties, TRANSACTION_CHECK_TIMES: str(checks + 1)}
        immunity = properties.get(CHECK_IMMUNITY_SECONDS)
        if immunity is None:
            if 0 <= age_ms <= self._timeout_ms:
                return False
        else:
            seconds = int_or_minus_one(immunity)
            if age_ms <= (self._timeout_ms if seconds == -1 else seconds * 1000):
                properties.setdefault(TRANSACTION_QUEUE_OFFSET, str(stored.queue_offset))
                properties[WAIT_STORE] = "false"
                self._store_again(half, properties)
                return True
        copy = self._store_again(half, properties)
        if copy is not None and _is_complete(half):
            with suppress(InvalidMessageError):  # the added WAIT property made the properties too long
                self._send_check(half, properties, stored.store_time_ms, copy)
        return True

    def _store_again(self, half: BrokerMessage, properties: Mapping[str, str]) -> StoredMessage | None:
        # Java's copy does not have the flag and the reconsume times either.
        copy = replace(half, properties=properties, flag=0, reconsume_times=0)
        try:
            return self._scheduler.put(copy)
        except PutError as error:
            logger.warning("half message lost topic=%s cause=%s", properties.get(REAL_TOPIC), error)
            return None

    def _send_check(
        self, half: BrokerMessage, properties: Mapping[str, str], store_time_ms: int, copy: StoredMessage
    ) -> None:
        """Ask a member of the producer group for the outcome."""
        connection = self._state.producers.choose_member(properties[PRODUCER_GROUP])
        if connection is None:
            return
        unique_id = properties.get(UNIQUE_KEY)
        header = CheckTransactionStateRequest(
            topic=HALF_TOPIC,
            tran_state_table_offset=copy.queue_offset,
            commit_log_offset=copy.commit_log_offset,
            msg_id=unique_id,
            transaction_id=unique_id,
            offset_msg_id=self._store.message_id(copy.commit_log_offset),
            broker_name=self._config.broker_name,
        )
        body = encode_message(
            topic=properties[REAL_TOPIC],
            body=half.body,
            properties=encode_properties({**properties, WAIT_STORE: "false"}).encode(),
            queue_id=int(properties[REAL_QUEUE_ID]),
            queue_offset=copy.queue_offset,
            commit_log_offset=copy.commit_log_offset,
            flag=half.flag,
            system_flag=half.system_flag,
            born_time_ms=half.born_time_ms,
            born_address=half.born_address,
            store_time_ms=store_time_ms,
            store_address=self._state.packed_address,
            reconsume_times=half.reconsume_times,
        )
        connection.oneway_nowait(header.code, header.to_fields(), body)

    def _discard(self, half: BrokerMessage) -> None:
        topic = self._state.topics.get_or_create(MAX_CHECKS_TOPIC, 1)
        try:
            self._scheduler.put(replace(half, topic=topic.topic_name, queue_id=0))
        except PutError as error:
            topic_name = half.properties.get(REAL_TOPIC)
            logger.warning("discarded half message lost topic=%s cause=%s", topic_name, error)


def _is_complete(half: BrokerMessage) -> bool:
    """Return whether a half message has all the properties that its end needs."""
    return half.properties.keys() >= {
        PRODUCER_GROUP,
        REAL_TOPIC,
        REAL_QUEUE_ID,
    }
