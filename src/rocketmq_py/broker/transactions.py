"""Transactional messages: kept aside until their sender says what becomes of them, and asked about.

Java: ``EndTransactionProcessor``, ``TransactionalMessageServiceImpl``, ``TransactionalMessageBridge``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import trio
from msgspec.structs import replace

from rocketmq_py import properties as names
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import UNSET_REMARK, Refusal, RequestHandler
from rocketmq_py.broker.groups import ProducerGroups
from rocketmq_py.broker.storage.broker_message import (
    TRANSACTION_BITS,
    BrokerMessage,
    PutError,
    int_or_minus_one,
)
from rocketmq_py.broker.storage.consume_queue import StoredMessage
from rocketmq_py.broker.storage.delayed_delivery import MessageScheduler
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.broker.topics import HALF_TOPIC, MAX_CHECKS_TOPIC, TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import CheckTransactionStateRequest, EndTransactionRequest
from rocketmq_py.protocol.stored_message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, encode_message
from rocketmq_py.remoting import Connection

logger: Final = logging.getLogger("rocketmq_py.broker")

RESERVED_MS = 72 * 3600 * 1000
"""A half message that was sent before this is given up unasked (fileReservedTime)."""
_NOT_KNOWN = 0


class Transactions:
    """Keeps half messages, ends them, and asks about those that nobody ends. :meth:`run` does the asking.

    Half messages are in one queue of a topic of their own. From time to time those at its front are looked
    at: what has been ended is passed over, and what has been open for too long is stored again at the back,
    with one more check in its count, and its sender's group is asked about it. Real brokers note what has
    been ended in another topic, and only every three seconds; here it is known at once.

    As on a real broker a message is found by its place alone: one that is ended twice is delivered twice,
    and one that was stored again meanwhile is asked about though its first copy has been ended.

    Args:
        config: the broker's settings.
        topics: get the topic of messages that were asked about too often.
        store: keeps half messages.
        schedule: stores what is committed: that may be delayed.
        producers: who is asked.
        address: the broker's own, packed, as half messages have it when they are asked about.
        now_ms: the time, epoch milliseconds.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        store: MessageStore,
        schedule: MessageScheduler,
        producers: ProducerGroups,
        *,
        address: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._store = store
        self._schedule = schedule
        self._producers = producers
        self._address = address
        self._now_ms = now_ms
        self._next = 0  # the place of the first half message that may be open
        self._ended: set[int] = set()  # places from there on

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {RequestCode.END_TRANSACTION: self._end}

    @property
    def _timeout_ms(self) -> int:
        return int(self._config.transaction_time_out * 1000)

    def prepare(self, draft: BrokerMessage) -> StoredMessage:
        """Store a half message, out of sight of consumers. Raises PutError."""
        properties = {
            **draft.properties,
            names.TRANSACTION_ID: draft.properties[names.UNIQUE_KEY],
            names.REAL_TOPIC: draft.topic,
            names.REAL_QUEUE_ID: str(draft.queue_id),
        }
        half = replace(
            draft,
            topic=HALF_TOPIC,
            queue_id=0,
            properties=properties,
            system_flag=draft.system_flag & ~TRANSACTION_BITS,
        )
        return self._keep(half)

    async def run(self) -> None:
        """Look at open transactions from time to time, until cancelled."""
        while True:
            await trio.sleep(self._config.transaction_check_interval)
            self._check()

    def _keep(self, half: BrokerMessage) -> StoredMessage:
        """Store a half message. Its place may have been another's, which a crash has lost."""
        stored = self._schedule.put(half)
        self._next = min(self._next, stored.queue_offset)
        self._ended.discard(stored.queue_offset)
        return stored

    # The end of a transaction

    def _end(self, connection: Connection, request: Command) -> None:
        header = EndTransactionRequest.from_fields(request.fields)
        outcome = header.commit_or_rollback
        if outcome == _NOT_KNOWN:
            return  # nobody waits: it is sent oneway, and real brokers answer nothing either
        if outcome not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            raise ProtocolError(f"commitOrRollback field wrong: {outcome}")
        stored, half = self._find(header)
        if outcome == TRANSACTION_COMMIT:
            self._commit(half, header.commit_log_offset)
        if stored.queue_offset >= self._next:
            self._ended.add(stored.queue_offset)
        remark = None if outcome == TRANSACTION_COMMIT else UNSET_REMARK
        connection.respond(request, ResponseCode.SUCCESS, remark=remark)

    def _find(self, header: EndTransactionRequest) -> tuple[StoredMessage, BrokerMessage]:
        stored = self._store.message_at(header.commit_log_offset)
        half = None if stored is None or stored.topic != HALF_TOPIC else BrokerMessage.decode(stored)
        if stored is None or half is None or not _is_whole(half):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if not header.from_transaction_check and self._is_late(half):
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, UNSET_REMARK)
        if half.properties[names.PRODUCER_GROUP] != header.producer_group:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if stored.queue_offset != header.tran_state_table_offset:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        return stored, half

    def _is_late(self, half: BrokerMessage) -> bool:
        """Tell whether the time in which nobody asks about a message is over, if it asked for one."""
        seconds = half.properties.get(names.CHECK_IMMUNITY_SECONDS)
        if not seconds:
            return False
        immunity_ms = max(int_or_minus_one(seconds) * 1000, self._timeout_ms)
        return self._now_ms() - half.born_time_ms > immunity_ms

    def _commit(self, half: BrokerMessage, commit_log_offset: int) -> None:
        properties = dict(half.properties)
        message = replace(
            half,
            topic=properties.pop(names.REAL_TOPIC),
            queue_id=int(properties.pop(names.REAL_QUEUE_ID)),
            properties=properties,
            system_flag=half.system_flag & ~TRANSACTION_BITS | TRANSACTION_COMMIT,
            prepared_transaction_offset=commit_log_offset,
        )
        try:
            self._schedule.put(message)
        except PutError as error:
            raise Refusal(*error.status.answer(self._config)) from None

    # Open transactions

    def _check(self) -> None:
        queue = self._store.queue(HALF_TOPIC, 0)
        now_ms = self._now_ms()
        place = max(self._next, queue.start)
        while place < queue.end and (place in self._ended or self._look_at(queue[place], now_ms)):
            place = max(place + 1, queue.start)
        self._next = place
        self._ended = {ended for ended in self._ended if ended >= place}

    def _look_at(self, stored: StoredMessage, now_ms: int) -> bool:
        """Look at an open transaction; tell whether the next one is to be looked at, too."""
        half = BrokerMessage.decode(stored)
        checks = int_or_minus_one(half.properties.get(names.TRANSACTION_CHECK_TIMES, "0"))
        age_ms = now_ms - half.born_time_ms
        if checks >= self._config.transaction_check_max or age_ms > RESERVED_MS:
            self._give_up(half)
            return True
        if stored.store_time_ms >= now_ms:
            return False
        properties = {**half.properties, names.TRANSACTION_CHECK_TIMES: str(checks + 1)}
        immunity = properties.get(names.CHECK_IMMUNITY_SECONDS)
        if immunity is None:
            if 0 <= age_ms <= self._timeout_ms:
                return False
        else:
            seconds = int_or_minus_one(immunity)
            if age_ms <= (self._timeout_ms if seconds == -1 else seconds * 1000):
                properties.setdefault(names.TRANSACTION_QUEUE_OFFSET, str(stored.queue_offset))
                properties[names.WAIT_STORE] = "false"
                self._put_again(half, properties)
                return True
        again = self._put_again(half, properties)
        if again is not None and _is_whole(half):
            with suppress(InvalidMessageError):  # there is no space for WAIT among its properties
                self._ask(half, properties, stored.store_time_ms, again)
        return True

    def _put_again(self, half: BrokerMessage, properties: Mapping[str, str]) -> StoredMessage | None:
        # Java's copy leaves these two out as well.
        copy = replace(half, properties=properties, flag=0, reconsume_times=0)
        try:
            return self._keep(copy)
        except PutError as error:
            logger.warning("a half message for %s is lost: %s", properties.get(names.REAL_TOPIC), error)
            return None

    def _ask(
        self, half: BrokerMessage, properties: Mapping[str, str], store_time_ms: int, again: StoredMessage
    ) -> None:
        connection = self._producers.choose_member(properties[names.PRODUCER_GROUP])
        if connection is None:
            return
        unique_id = properties.get(names.UNIQUE_KEY)
        header = CheckTransactionStateRequest(
            topic=HALF_TOPIC,
            tran_state_table_offset=again.queue_offset,
            commit_log_offset=again.commit_log_offset,
            msg_id=unique_id,
            transaction_id=unique_id,
            offset_msg_id=self._store.message_id(again.commit_log_offset),
            broker_name=self._config.broker_name,
        )
        body = encode_message(
            topic=properties[names.REAL_TOPIC],
            body=half.body,
            properties=names.encode_properties({**properties, names.WAIT_STORE: "false"}).encode(),
            queue_id=int(properties[names.REAL_QUEUE_ID]),
            queue_offset=again.queue_offset,
            commit_log_offset=again.commit_log_offset,
            flag=half.flag,
            system_flag=half.system_flag,
            born_time_ms=half.born_time_ms,
            born_address=half.born_address,
            store_time_ms=store_time_ms,
            store_address=self._address,
            reconsume_times=half.reconsume_times,
        )
        connection.oneway_nowait(header.code, header.to_fields(), body)

    def _give_up(self, half: BrokerMessage) -> None:
        topic = self._topics.get_or_create(MAX_CHECKS_TOPIC, 1)
        try:
            self._schedule.put(replace(half, topic=topic.topic_name, queue_id=0))
        except PutError as error:
            logger.warning("a half message that was given up is lost: %s", error)


def _is_whole(half: BrokerMessage) -> bool:
    """Tell whether a half message says all that is needed to end it."""
    return half.properties.keys() >= {names.PRODUCER_GROUP, names.REAL_TOPIC, names.REAL_QUEUE_ID}
