"""Sending trace records to the trace topic, in the background. Java: ``AsyncTraceDispatcher``."""

from __future__ import annotations

import itertools
import math
from collections import deque
from functools import partial
from typing import Final

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RepeatedLog
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import Message
from rocketmq_py.names import CLOUD_TRACE_PREFIX, MAX_GROUP_LENGTH, TRACE_TOPIC
from rocketmq_py.property_names import INSTANCE_ID
from rocketmq_py.protocol.sends import send_fields
from rocketmq_py.protocol.trace import TraceKeys, TraceRecord, encode_record

logger: Final = LibraryLogger("rocketmq_py.trace")

MAX_BUFFERED_RECORDS = 2048
"""Further records are dropped and counted, as in Java."""
MAX_RECORDS = 20
"""Records in a message."""
MAX_BYTES = 128_000
"""Bytes of records in a message."""
CLOUD = "cloud"
"""Instead of a topic: each record goes to the topic of its region. Java: ``AccessChannel.CLOUD``."""
FLUSH_INTERVAL = 5.0
"""Seconds that a record waits for others."""
LOOKUP_INTERVAL = 5.0
"""Minimum seconds between two requests for the route of a trace topic. Records without one are dropped."""
_GROUP_PREFIX = "_INNER_TRACE_PRODUCER"


class TraceDispatcher:
    """Collects the trace records of a producer or consumer, and sends them in the background.

    Tracing must not delay the traced sends. A record is dropped if the trace topic cannot be reached, or if
    too many records wait. Dropped records are counted and logged.

    Args:
        client: provides the connections to brokers.
        group: the group of the producer or consumer.
        trace: the setting ``trace``. True for RMQ_SYS_TRACE_TOPIC, which brokers have, "cloud" for the topics
            of the regions, or the name of another topic.

    Attributes:
        topic: the topic of the records. With "cloud", the beginning of the topics.
        dropped: the number of dropped records.
    """

    def __init__(self, client: ClientCore, group: str, trace: str | bool = True) -> None:
        self._client = client
        # The groups of RocketMQ's own messages are not converted later. Cut so that a namespace fits.
        longest = MAX_GROUP_LENGTH - len(client.namespace.wrap_group("g")) + 1
        self._producer_group = client.namespace.wrap_group(f"{_GROUP_PREFIX}-{group}"[:longest])
        namespace = client.namespace.name
        self._system_properties = {INSTANCE_ID: namespace} if namespace else {}
        self._group = group
        self._lost_log = RepeatedLog(logger)
        self._records: dict[str, deque[TraceRecord]] = {}  # by topic
        self._no_lookup_until: dict[str, float] = {}  # topics without a route
        self._counter = itertools.count(client.rng.randrange(1024))
        self._message_full = trio.Event()
        self._flushing = trio.Lock()
        self._stored_at = -math.inf
        self._is_cloud = trace == CLOUD
        self.topic: str = (
            CLOUD_TRACE_PREFIX if self._is_cloud else trace if isinstance(trace, str) else TRACE_TOPIC
        )
        self.dropped: int = 0

    def is_trace_topic(self, topic: str) -> bool:
        """Return whether messages of a topic have records themselves, and get no trace."""
        return topic.startswith(self.topic) if self._is_cloud else topic == self.topic

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._records.values()))

    def append(self, record: TraceRecord, region: str | None = None) -> None:
        """Add a record. It is sent in the background.

        Args:
            record: the record.
            region: the broker's region. With "cloud", a record without one is dropped.
        """
        if self._is_cloud and not region:
            self._lost(1, "the message has no region (property MSG_REGION)")
            return
        if self._waiting >= MAX_BUFFERED_RECORDS:
            self._lost(1, f"{MAX_BUFFERED_RECORDS} records wait already")
            return
        topic = f"{self.topic}{region}" if self._is_cloud else self.topic
        if self._no_lookup_until and trio.current_time() < self._no_lookup_until.get(topic, -math.inf):
            self._lost(1, "the trace topic has no route", topic)
            return
        self._records.setdefault(topic, deque()).append(record)
        if self._waiting >= MAX_RECORDS:
            self._message_full.set()

    async def run(self) -> None:
        """Send records, at least every FLUSH_INTERVAL seconds, until cancelled."""
        try:
            while True:
                with trio.move_on_after(FLUSH_INTERVAL):
                    await self._message_full.wait()
                self._message_full = trio.Event()
                await self.flush()
        finally:
            self._lost_by_closing()

    async def finish(self, seconds: float) -> None:
        """Send all records. Return after ``seconds`` in which no message with records was stored."""
        self._stored_at = trio.current_time()
        while True:
            with trio.move_on_at(self._stored_at + seconds):
                async with self._flushing:  # run() may be sending
                    if not self._records:
                        return
                    await self._send_some()
            if self._stored_at + seconds <= trio.current_time():
                return

    async def flush(self) -> None:
        """Send all records. If cancelled, the remaining records are not sent."""
        async with self._flushing:  # closing waits here for records that run() is sending
            while self._records:
                await self._send_some()

    async def _send_some(self) -> None:
        """Send a message with the next records. If that fails, they are dropped."""
        topic = next(iter(self._records))
        records: list[TraceRecord] = []
        try:
            await self._send(self._next_message(topic, records))
            self._stored_at = trio.current_time()
        except trio.Cancelled:
            self._lost_by_closing(len(records))
            raise
        except RocketMQError as error:
            if self._client.routes.get_nowait(topic) is None:
                # Each message with records would ask the name servers several times.
                self._no_lookup_until[topic] = trio.current_time() + LOOKUP_INTERVAL
                records.extend(self._records.pop(topic, ()))
            self._lost(len(records), error, topic)
        except Exception:  # must not end the producer or consumer
            self.dropped += len(records)
            logger.exception("trace send failed: topic=%s lost=%d", topic, len(records))

    def _lost(self, count: int, error: object, topic: str = "") -> None:
        """Count dropped records, and log the number of all so far."""
        if count:
            self.dropped += count
            self._lost_log.warning(
                "trace records lost: group=%s topic=%s lost=%d error=%s",
                self._group, topic or self.topic, self.dropped, error,
            )  # fmt: skip

    def _lost_by_closing(self, being_sent: int = 0) -> None:
        """Count and log the records that wait, and those that were being sent."""
        self._lost(being_sent + self._waiting, "closed before the records were sent")
        self._records.clear()

    def _next_message(self, topic: str, records: list[TraceRecord]) -> Message:
        """Return a message with the next records of a topic, and move these to ``records``.

        It ends before its keys would be too large. If those of a single record are, it has the first of them.
        """
        texts: list[str] = []
        keys = TraceKeys()
        size = 0
        waiting = self._records.pop(topic)
        try:
            while waiting and len(records) < MAX_RECORDS and size < MAX_BYTES:
                records.append(waiting.popleft())
                if not keys.add(records[-1], partly=not texts):
                    waiting.appendleft(records.pop())
                    break
                texts.append(encode_record(records[-1], cloud=self._is_cloud))
                size += len(texts[-1])
        finally:
            if waiting:  # topics take turns
                self._records[topic] = waiting
        return Message(topic, "".join(texts).encode(errors="replace"), keys=keys)

    async def _send(self, message: Message) -> None:
        """Send a message to a broker, and if that fails to another one."""
        client = self._client
        route = await client.routes.get(message.topic, for_sending=True)
        queues = route.queues_to_write()
        fields = partial(
            send_fields,
            message,
            producer_group=self._producer_group,
            unique_id=client.unique_ids.next(),
            born_time_ms=client.now_ms(),
        )
        first = queues[next(self._counter) % len(queues)]
        on_other_brokers = [queue for queue in queues if queue.broker_name != first.broker_name]
        second = client.rng.choice(on_other_brokers or queues)
        await client.brokers.send_to_first([first, second], fields, message.body, self._system_properties)
