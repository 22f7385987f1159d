"""Removes lite topics without recent messages (Java: ``LiteLifecycleManager``)."""

from __future__ import annotations

import trio

from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.consume_queue import ConsumeQueue
from rocketmq_py.names import split_lite_queue

CHECK_SECONDS = 120.0
"""Seconds between two searches for expired lite topics (liteTtlCheckInterval)."""
MIN_MS = 15 * 60 * 1000
"""Milliseconds after its last message for which a lite topic always stays (minLiteTTl)."""
EXPIRATION = "lite.topic.expiration"
"""A topic attribute: minutes after its last message until a lite topic expires; -1 for never."""


class LiteExpiry:
    """Removes expired lite topics. :meth:`run` must be running.

    Args:
        state: the broker's tables.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    async def run(self) -> None:
        """Remove expired lite topics periodically, until cancelled."""
        while True:
            await trio.sleep(CHECK_SECONDS)
            for queue in self._state.store.lite_queues():
                if self._is_expired(queue):
                    self._state.store.delete_lite_queue(queue.topic)

    def _is_expired(self, queue: ConsumeQueue) -> bool:
        topic = self._state.topics.get(split_lite_queue(queue.topic)[0])
        minutes = int(topic.attributes.get(EXPIRATION, "-1")) if topic is not None else -1
        age_ms = self._state.now_ms() - queue.last_store_time_ms
        return minutes > 0 and age_ms >= MIN_MS and age_ms > minutes * 60_000
