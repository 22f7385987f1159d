"""Timed messages: kept under a topic of their own until they are due or taken back.

Java: ``TimerMessageStore`` and ``HookUtils.transformTimerMessage``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import trio
from msgspec.structs import replace

from rocketmq_py import properties as names
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.draft import Draft
from rocketmq_py.broker.put_status import NotStored, PutStatus
from rocketmq_py.broker.store import MessageStore, StoredMessage
from rocketmq_py.broker.topics import TIMER_TOPIC

SLOT_MS = 1000
"""Real brokers note a message's time in steps of this (timerPrecisionMs), and take back by them."""

WISHES = frozenset({names.TIMER_DELAY_SECONDS, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS})
"""The properties by which a message asks for its time."""


class _Waiting(NamedTuple):
    """What is to be done at a time; of two at the same time, messages come first.

    Attributes:
        due_ms: when, epoch milliseconds.
        is_note: whether it takes messages back: they have come to nothing by then.
        slot_ms: which step of time it is in.
        commit_log_offset: where in the log it is.
    """

    due_ms: int
    is_note: bool
    slot_ms: int
    commit_log_offset: int


class Timers:
    """Keeps timed messages. :meth:`run` must be under way to deliver them.

    Delivery is not before a message's time and, unless the process is busy, right at it; a real broker
    delivers at the next full second. A message that the store had to drop meanwhile is not delivered.

    Args:
        config: the broker's settings.
        store: where messages are, those that wait too.
        now_ms: the time, epoch milliseconds.
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, *, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._store = store
        self._now_ms = now_ms
        self._waiting: list[_Waiting] = []  # a heap
        self._taken_back: dict[int, set[str]] = {}  # unique ids, by slot
        self._sleep = trio.CancelScope()

    def put(self, draft: Draft) -> StoredMessage:
        """Store a message that has one of ``WISHES``: for later, or at once if its time has passed.

        Raises NotStored.
        """
        if not self._config.timer_wheel_enable:
            raise NotStored(PutStatus.WHEEL_TIMER_NOT_ENABLE)
        now_ms = self._now_ms()
        deliver_ms = _wished_time(draft.properties, now_ms)
        taken_back = draft.properties.get(names.TIMER_DELETE_UNIQUE_KEY)
        if deliver_ms - now_ms > self._config.timer_max_delay_sec * 1000 or (
            deliver_ms <= now_ms and taken_back is not None
        ):
            raise NotStored(PutStatus.WHEEL_TIMER_MSG_ILLEGAL)
        if deliver_ms <= now_ms:
            return draft.store_in(self._store)
        slot_ms = (deliver_ms - 1) // SLOT_MS * SLOT_MS
        properties = {
            **draft.properties,
            names.TIMER_OUT_MS: str(slot_ms),
            names.REAL_TOPIC: draft.topic,
            names.REAL_QUEUE_ID: str(draft.queue_id),
        }
        waiting = replace(draft, topic=TIMER_TOPIC, queue_id=0, properties=properties)
        stored = waiting.store_in(self._store)
        if taken_back is not None:
            self._taken_back.setdefault(slot_ms, set()).add(taken_back)
            deliver_ms = slot_ms + SLOT_MS
        heapq.heappush(
            self._waiting, _Waiting(deliver_ms, taken_back is not None, slot_ms, stored.commit_log_offset)
        )
        self._sleep.deadline = min(self._next_due(), self._sleep.deadline)
        return stored

    async def run(self) -> None:
        """Deliver messages when they are due, until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next_due()) as self._sleep:
                await trio.sleep_forever()
            now_ms = self._now_ms()
            while self._waiting and self._waiting[0].due_ms <= now_ms:
                due = heapq.heappop(self._waiting)
                if due.is_note:
                    self._taken_back.pop(due.slot_ms, None)
                else:
                    self._deliver(due)

    def _next_due(self) -> float:
        """Return when there is something to do, on trio's clock."""
        if not self._waiting:
            return math.inf
        return trio.current_time() + (self._waiting[0].due_ms - self._now_ms()) / 1000

    def _deliver(self, due: _Waiting) -> None:
        stored = self._store.at(due.commit_log_offset)
        if stored is None:
            return
        draft = Draft.of(stored)
        if draft.properties.get(names.UNIQUE_KEY) in self._taken_back.get(due.slot_ms, ()):
            return
        properties = {
            **draft.properties,
            names.TIMER_ENQUEUE_MS: str(stored.store_time_ms // SLOT_MS * SLOT_MS),
            names.TIMER_DEQUEUE_MS: str(self._now_ms()),
        }
        topic, queue_id = properties[names.REAL_TOPIC], int(properties[names.REAL_QUEUE_ID])
        with suppress(NotStored):  # the two properties were too much: real brokers drop it as well
            replace(draft, topic=topic, queue_id=queue_id, properties=properties).store_in(self._store)


def is_timed(properties: Mapping[str, str]) -> bool:
    """Tell whether a message asks for its time, and has not been kept for it already."""
    return not WISHES.isdisjoint(properties) and names.TIMER_OUT_MS not in properties


def _wished_time(properties: Mapping[str, str], now_ms: int) -> int:
    """Return the time that a message asks for, epoch milliseconds. Raises NotStored if it is no number."""
    try:
        if names.TIMER_DELAY_SECONDS in properties:
            return now_ms + int(properties[names.TIMER_DELAY_SECONDS]) * 1000
        if names.TIMER_DELAY_MS in properties:
            return now_ms + int(properties[names.TIMER_DELAY_MS])
        return int(properties[names.TIMER_DELIVER_MS])
    except ValueError:
        raise NotStored(PutStatus.WHEEL_TIMER_MSG_ILLEGAL) from None
