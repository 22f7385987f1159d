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

MOST_BUFFERED = 2048
"""Records that wait to be sent; further ones are dropped and counted (as Java does)."""
MOST_IN_A_MESSAGE = 20
MOST_BYTES_IN_A_MESSAGE = 128_000
FLUSH_INTERVAL = 5.0
"""Seconds that a record waits for others."""
_TRIES = 2
_GROUP_PREFIX = "_INNER_TRACE_PRODUCER"


class TraceDispatcher:
    """Collects the trace records of one producer or consumer, and sends them in the background.

    A record is lost when the trace topic cannot be reached, or when too many wait: tracing must neither
    stop nor slow down what it looks at. Both are logged and counted.

    Args:
        client: how brokers are reached.
        group: whose records they are.
        topic: where they go; brokers keep RMQ_SYS_TRACE_TOPIC for it.

    Attributes:
        topic: where they go.
        dropped: how many records were lost.
    """

    def __init__(self, client: Client, group: str, topic: str = TRACE_TOPIC) -> None:
        self._client = client
        self._group = f"{_GROUP_PREFIX}-{group}"[:120]
        self._retry_log = RetryLog(logger, "trace send", group=group, topic=topic)
        self._records: deque[TraceRecord] = deque()
        self._turn = itertools.count(client.rng.randrange(1024))
        self._enough = trio.Event()
        self.topic = topic
        self.dropped: int = 0

    def append(self, record: TraceRecord) -> None:
        """Have a record sent soon."""
        if len(self._records) >= MOST_BUFFERED:
            self.dropped += 1
            return
        self._records.append(record)
        if len(self._records) >= MOST_IN_A_MESSAGE:
            self._enough.set()

    async def run(self) -> None:
        """Send what has come together, at least every FLUSH_INTERVAL seconds, until cancelled."""
        while True:
            with trio.move_on_after(FLUSH_INTERVAL):
                await self._enough.wait()
            self._enough = trio.Event()
            await self.flush()

    async def flush(self) -> None:
        """Send all that has come together until now. When cancelled, the rest is lost."""
        while self._records:
            taken: list[TraceRecord] = []
            try:
                await self._send(self._next_message(taken))
            except Exception as error:  # the task's end would be that of what is traced
                self.dropped += len(taken)
                if isinstance(error, RocketMQError):
                    self._retry_log.failed(error, lost=len(taken))
                else:
                    logger.exception("trace send failed: topic=%s lost=%d", self.topic, len(taken))
            else:
                self._retry_log.succeeded()

    def _next_message(self, taken: list[TraceRecord]) -> Message:
        """Return a message with the next records, which are put into ``taken``."""
        texts: list[str] = []
        size = 0
        while self._records and len(taken) < MOST_IN_A_MESSAGE and size < MOST_BYTES_IN_A_MESSAGE:
            taken.append(self._records.popleft())
            texts.append(encode_record(taken[-1]))
            size += len(texts[-1])
        return Message(self.topic, "".join(texts).encode(errors="replace"), keys=keys_of(taken))

    async def _send(self, message: Message) -> None:
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
        turn = next(self._turn)
        tried = [queues[(turn + place) % len(queues)] for place in range(_TRIES)]
        await client.brokers.send_to_first(tried, fields, message.body)
