"""Delayed delivery, by delay level and by delivery time.

A delayed message waits in a system topic, and is stored again in its own topic when it is due.

Java: ``ScheduleMessageService``, ``TimerMessageStore``, ``HookUtils``.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import trio
from msgspec.structs import replace

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.storage.broker_message import BrokerMessage, PutError, PutStatus
from rocketmq_py.broker.storage.consume_queue import StoredMessage
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.broker.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketmq_py.property_names import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    START_DELIVER_TIME,
    TIMER_DELAY_MS,
    TIMER_DELAY_SECONDS,
    TIMER_DELETE_UNIQUE_KEY,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    UNIQUE_KEY,
)

SLOT_MS = 1000
"""Length of a time slot (timerPrecisionMs). Real brokers deliver by slot, and a recall applies to a slot."""

DELIVERY_TIME_PROPERTIES = frozenset({TIMER_DELAY_SECONDS, TIMER_DELAY_MS, TIMER_DELIVER_MS})
"""The properties that set a delivery time."""
_TIME_BASES = {
    START_DELIVER_TIME: (1, False),
    TIMER_DELAY_SECONDS: (1000, True),
    TIMER_DELAY_MS: (1, True),
    TIMER_DELIVER_MS: (1, False),
}
"""Milliseconds of a unit, and whether the value is a delay, by property. The first one found counts."""


class MessageScheduler:
    """Stores messages: at once, or in the delay topic if they have a delay level or a delivery time.

    :meth:`run` must be running for messages with a delay level to be delivered. A message is never delivered
    early and, unless the process is busy, exactly when it is due. A real broker checks every 100 ms. A
    message that the store has dropped in the meantime is not delivered. Java: ``ScheduleMessageService``.

    Args:
        config: the broker's settings.
        store: the message store.
        timers: stores messages with a delivery time.
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, timers: TimerMessageStore) -> None:
        self._store = store
        self._timers = timers
        self._time_properties = _time_properties(config)
        self._levels = config.delay_levels
        # for each delay level: the due time, on trio's clock, and the commit-log offset
        self._waiting: list[deque[tuple[float, int]]] = [deque() for _ in self._levels]
        self._sleep = trio.CancelScope()

    def put(self, message: BrokerMessage) -> StoredMessage:
        """Store a message, now or for later.

        A delay level above the last one counts as the last one. A level below 1 is no delay.

        Raises:
            PutError: the message is too large, or its delivery time is out of range.
            ProtocolError: its delay level is not a number.
        """
        level = min(message.delay_level, len(self._levels))
        if message.is_never_delivered or (level <= 0 and not self._has_delivery_time(message.properties)):
            return message.append_to(self._store)
        if level <= 0:
            return self._timers.put(message)
        properties = {
            **{
                name: value for name, value in message.properties.items() if name not in self._time_properties
            },
            REAL_TOPIC: message.topic,
            REAL_QUEUE_ID: str(message.queue_id),
        }
        delayed = replace(message, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=properties)
        stored = delayed.append_to(self._store)
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

    def _has_delivery_time(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message has a delivery time and has not waited for it yet."""
        return not self._time_properties.isdisjoint(properties) and TIMER_OUT_MS not in properties

    def _deliver(self, commit_log_offset: int) -> None:
        stored = self._store.message_at(commit_log_offset)
        if stored is None:
            return
        message = BrokerMessage.decode(stored)
        topic, queue_id = (
            message.properties[REAL_TOPIC],
            int(message.properties[REAL_QUEUE_ID]),
        )
        # The properties stay unchanged, including the delay level, as on real brokers.
        with suppress(PutError):
            replace(message, topic=topic, queue_id=queue_id).append_to(self._store)


class _TimerEntry(NamedTuple):
    """An entry of the timer heap. At the same time, messages sort before recalls.

    Attributes:
        due_ms: when the entry is due, epoch milliseconds.
        is_recall: whether the entry is a recall, which has no effect any more when it is due.
        slot_ms: the time slot.
        commit_log_offset: the commit-log offset of the message.
    """

    due_ms: int
    is_recall: bool
    slot_ms: int
    commit_log_offset: int


class TimerMessageStore:
    """Messages with a delivery time, and recalls of them.

    :meth:`run` must be running for messages to be delivered. A message is never delivered early and, unless
    the process is busy, exactly when it is due. A real broker delivers it at the next full second. A message
    that the store has dropped in the meantime is not delivered.

    Args:
        config: the broker's settings.
        store: the message store.
        now_ms: the clock, epoch milliseconds.
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, *, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._store = store
        self._now_ms = now_ms
        self._time_properties = _time_properties(config)
        profile = config.profile
        self._delivers_late_now = profile is not None and profile.delays.value.beyond_is_now
        self._entries: list[_TimerEntry] = []  # a heap
        # the commit-log offset of each recall, by unique id, by slot
        self._recalled: dict[int, dict[str, int]] = {}
        self._sleep = trio.CancelScope()

    def put(self, message: BrokerMessage) -> StoredMessage:
        """Store a message that has a delivery time, at once if it is due.

        Raises PutError.
        """
        if not self._config.timer_wheel_enable:
            raise PutError(PutStatus.WHEEL_TIMER_NOT_ENABLE)
        now_ms = self._now_ms()
        deliver_ms = self._delivery_time(message.properties, now_ms)
        recalled_id = message.properties.get(TIMER_DELETE_UNIQUE_KEY)
        is_too_late = deliver_ms - now_ms > self._config.timer_max_delay_sec * 1000
        if is_too_late and self._delivers_late_now:
            return message.append_to(self._store)
        if is_too_late or (deliver_ms <= now_ms and recalled_id is not None):
            raise PutError(PutStatus.WHEEL_TIMER_MSG_ILLEGAL)
        if deliver_ms <= now_ms:
            return message.append_to(self._store)
        slot_ms = (deliver_ms - 1) // SLOT_MS * SLOT_MS
        properties = {
            **message.properties,
            TIMER_OUT_MS: str(slot_ms),
            REAL_TOPIC: message.topic,
            REAL_QUEUE_ID: str(message.queue_id),
        }
        timed = replace(message, topic=TIMER_TOPIC, queue_id=0, properties=properties)
        stored = timed.append_to(self._store)
        if recalled_id is not None:
            self._recalled.setdefault(slot_ms, {})[recalled_id] = stored.commit_log_offset
            deliver_ms = slot_ms + SLOT_MS
        entry = _TimerEntry(deliver_ms, recalled_id is not None, slot_ms, stored.commit_log_offset)
        heapq.heappush(self._entries, entry)
        self._sleep.deadline = min(self._next_due(), self._sleep.deadline)
        return stored

    def _delivery_time(self, properties: Mapping[str, str], now_ms: int) -> int:
        """Return the delivery time, epoch milliseconds. Raises PutError if it is not a number."""
        name = next(name for name in _TIME_BASES if name in self._time_properties and name in properties)
        scale, is_delay = _TIME_BASES[name]
        try:
            return int(properties[name]) * scale + (now_ms if is_delay else 0)
        except ValueError:
            raise PutError(PutStatus.WHEEL_TIMER_MSG_ILLEGAL) from None

    async def run(self) -> None:
        """Deliver messages when they are due, until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next_due()) as self._sleep:
                await trio.sleep_forever()
            now_ms = self._now_ms()
            while self._entries and self._entries[0].due_ms <= now_ms:
                entry = heapq.heappop(self._entries)
                if entry.is_recall:
                    self._recalled.pop(entry.slot_ms, None)
                else:
                    self._deliver(entry)

    def _next_due(self) -> float:
        """Return when the first entry is due, on trio's clock."""
        if not self._entries:
            return math.inf
        return trio.current_time() + (self._entries[0].due_ms - self._now_ms()) / 1000

    def _deliver(self, entry: _TimerEntry) -> None:
        stored = self._store.message_at(entry.commit_log_offset)
        if stored is None:
            return
        message = BrokerMessage.decode(stored)
        recall = self._recalled.get(entry.slot_ms, {}).get(message.properties.get(UNIQUE_KEY, ""))
        if recall is not None and self._store.message_at(recall) is not None:
            return
        properties = {
            **message.properties,
            TIMER_ENQUEUE_MS: str(stored.store_time_ms // SLOT_MS * SLOT_MS),
            TIMER_DEQUEUE_MS: str(self._now_ms()),
        }
        topic, queue_id = properties[REAL_TOPIC], int(properties[REAL_QUEUE_ID])
        with suppress(PutError):  # the two properties made the message too large; real brokers drop it, too
            replace(message, topic=topic, queue_id=queue_id, properties=properties).append_to(self._store)


def _time_properties(config: BrokerConfig) -> frozenset[str]:
    """Return the properties that set a delivery time on this broker."""
    return DELIVERY_TIME_PROPERTIES if config.profile is None else config.profile.delays.value.properties
