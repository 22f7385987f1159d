"""Delayed messages: kept under a topic of their own, stored again where they belong when they are due.

Java: ``ScheduleMessageService`` and ``HookUtils.handleScheduleMessage``.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress

import trio
from msgspec.structs import replace

from rocketmq_py import properties as names
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.draft import Draft
from rocketmq_py.broker.put_status import NotStored
from rocketmq_py.broker.store import MessageStore, StoredMessage
from rocketmq_py.broker.timers import WISHES, Timers, is_timed
from rocketmq_py.broker.topics import SCHEDULE_TOPIC


class Schedule:
    """Stores messages, those with a delay level for later. :meth:`run` must be under way to deliver them.

    Delivery is not before its time and, unless the process is busy, right at it; a real broker looks
    every 100 ms. A message that the store had to drop meanwhile is not delivered.

    Args:
        config: the broker's settings.
        store: where messages are.
        timers: keep those that ask for a time instead of a level.
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, timers: Timers) -> None:
        self._store = store
        self._timers = timers
        self._levels = config.delay_levels
        # for each level: when a message is due, on trio's clock, and where in the log it is
        self._waiting: list[deque[tuple[float, int]]] = [deque() for _ in self._levels]
        self._sleep = trio.CancelScope()

    def put(self, draft: Draft) -> StoredMessage:
        """Store a message, under the delay topic if it has a delay level, or as a timed one.

        A level beyond the last counts as the last one; levels below 1 mean no delay.

        Raises:
            NotStored: it is too large, or it asks for a time that is out of range.
            ProtocolError: its delay level is no number.
        """
        level = min(draft.delay_level, len(self._levels))
        if draft.is_open_transaction or (level <= 0 and not is_timed(draft.properties)):
            return draft.store_in(self._store)
        if level <= 0:
            return self._timers.put(draft)
        properties = {
            **{name: value for name, value in draft.properties.items() if name not in WISHES},
            names.REAL_TOPIC: draft.topic,
            names.REAL_QUEUE_ID: str(draft.queue_id),
        }
        delayed = replace(draft, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=properties)
        stored = delayed.store_in(self._store)
        due = trio.current_time() + self._levels[level - 1]
        self._waiting[level - 1].append((due, stored.commit_log_offset))
        self._sleep.deadline = min(due, self._sleep.deadline)
        return stored

    async def run(self) -> None:
        """Deliver messages when they are due, until cancelled."""
        while True:
            next_due = min((waiting[0][0] for waiting in self._waiting if waiting), default=math.inf)
            with trio.CancelScope(deadline=next_due) as self._sleep:
                await trio.sleep_forever()
            now = trio.current_time()
            for waiting in self._waiting:
                while waiting and waiting[0][0] <= now:
                    self._deliver(waiting.popleft()[1])

    def _deliver(self, commit_log_offset: int) -> None:
        stored = self._store.at(commit_log_offset)
        if stored is None:
            return
        draft = Draft.of(stored)
        topic, queue_id = draft.properties[names.REAL_TOPIC], int(draft.properties[names.REAL_QUEUE_ID])
        # Its properties stay as they are, the delay level too: real brokers leave it to be seen.
        with suppress(NotStored):
            replace(draft, topic=topic, queue_id=queue_id).store_in(self._store)
