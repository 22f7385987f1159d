"""Sending trace records to the trace topic, in the background. Java: ``AsyncTraceDispatcher``."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from functools import partial
from typing import Final

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import Message
from rocketmq_py.names import TRACE_TOPIC
from rocketmq_py.protocol.send_request import send_fields
from rocketmq_py.protocol.trace import TraceRecord, encode_record, keys_of

logger: Final = logging.getLogger("rocketmq_py.trace")

MAX_BUFFERED_RECORDS = 2048
"""Further records are dropped and counted, as in Java."""
MAX_RECORDS = 20
"""Records in a message."""
MAX_BYTES = 128_000
"""Bytes of records in a message."""
FLUSH_INTERVAL = 5.0
"""Seconds that a record waits for others."""
_GROUP_PREFIX = "_INNER_TRACE_PRODUCER"


class TraceDispatcher:
    """Collects the trace records of a producer or consumer, and sends them in the background.

    Tracing must not delay the traced sends. A record is dropped if the trace topic cannot be reached, or if
    too many records wait. Failed sends are logged, and dropped records are counted.

    Args:
        client: provides the connections to brokers.
        group: the group of the producer or consumer.
        topic: the topic of the records. Brokers have RMQ_SYS_TRACE_TOPIC.

    Attributes:
        topic: the topic of the records.
        dropped: the number of dropped records.
    """

    def __init__(self, client: Client, group: str, topic: str = TRACE_TOPIC) -> None:
        self._client = client
        self._group = f"{_GROUP_PREFIX}-{group}"[:120]
        self._retry_log = RetryLog(logger, "trace send", group=group, topic=topic)
        self._records: deque[TraceRecord] = deque()
        self._counter = itertools.count(client.rng.randrange(1024))
        self._message_full = trio.Event()
        self._flushing = trio.Lock()
        self.topic = topic
        self.dropped: int = 0

    def append(self, record: TraceRecord) -> None:
        """Add a record. It is sent in the background."""
        if len(self._records) >= MAX_BUFFERED_RECORDS:
            self.dropped += 1
            return
        self._records.append(record)
        if len(self._records) >= MAX_RECORDS:
            self._message_full.set()

    async def run(self) -> None:
        """Send records, at least every FLUSH_INTERVAL seconds, until cancelled."""
        while True:
            with trio.move_on_after(FLUSH_INTERVAL):
                await self._message_full.wait()
            self._message_full = trio.Event()
            await self.flush()

    async def flush(self) -> None:
        """Send all records. If cancelled, the remaining records are not sent."""
        async with self._flushing:  # closing waits here for records that run() is sending
            while self._records:
                await self._send_some()

    async def _send_some(self) -> None:
        """Send a message with the next records. If that fails, they are dropped."""
        records: list[TraceRecord] = []
        try:
            await self._send(self._next_message(records))
        except Exception as error:  # must not end the producer or consumer
            self.dropped += len(records)
            if isinstance(error, RocketMQError):
                self._retry_log.failed(error, lost=len(records))
            else:
                logger.exception("trace send failed: topic=%s lost=%d", self.topic, len(records))
        else:
            self._retry_log.succeeded()

    def _next_message(self, records: list[TraceRecord]) -> Message:
        """Return a message with the next records, and add these to ``records``."""
        texts: list[str] = []
        size = 0
        while self._records and len(records) < MAX_RECORDS and size < MAX_BYTES:
            records.append(self._records.popleft())
            texts.append(encode_record(records[-1]))
            size += len(texts[-1])
        return Message(self.topic, "".join(texts).encode(errors="replace"), keys=keys_of(records))

    async def _send(self, message: Message) -> None:
        """Send a message to a broker, and if that fails to another one."""
        client = self._client
        route = await client.routes.get(self.topic, for_sending=True)
        queues = route.queues_to_write()
        fields = partial(
            send_fields,
            message,
            producer_group=self._group,
            unique_id=client.unique_ids.next(),
            born_time_ms=client.now_ms(),
            default_topic_queues=client.config.default_topic_queues,
        )
        first = queues[next(self._counter) % len(queues)]
        on_other_brokers = [queue for queue in queues if queue.broker_name != first.broker_name]
        second = client.rng.choice(on_other_brokers or queues)
        await client.brokers.send_to_first([first, second], fields, message.body)
