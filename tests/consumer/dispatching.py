"""Helpers for tests of dispatches: filled queues, handlers, and a recorder of messages sent back."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from rocketmq_py.consumer.group.dead_letters import DeadLetter, FailedDelivery
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.concurrent_dispatch import ConcurrentDispatch
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.errors import ConnectError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.received import QUEUE, several


class SentBackMessages:
    """Records messages that are sent back, or fails."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.levels: list[int] = []
        self.failures = 0

    async def __call__(self, message: ReceivedMessage, delay_level: int) -> None:
        await trio.lowlevel.checkpoint()
        if self.failures:
            self.failures -= 1
            raise ConnectError("127.0.0.1:1", "refused")
        self.messages.append(message)
        self.levels.append(delay_level)

    @property
    def offsets(self) -> list[int]:
        return sorted(message.queue_offset for message in self.messages)


class DeadLetters:
    """Records dead letters and their reasons, or fails."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.reasons: list[str] = []
        self.failures = 0

    async def __call__(self, message: ReceivedMessage, reason: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.failures:
            self.failures -= 1
            raise ConnectError("127.0.0.1:1", "refused")
        self.messages.append(message)
        self.reasons.append(reason)

    @property
    def offsets(self) -> list[int]:
        return [message.queue_offset for message in self.messages]


class ScriptedReturns:
    """Returns failed messages to functions of a test instead of brokers."""

    def __init__(
        self,
        send_back: Callable[[ReceivedMessage, int], Awaitable[None]] | None = None,
        send_to_dead_letters: Callable[[ReceivedMessage, str], Awaitable[None]] | None = None,
    ) -> None:
        self._send_back = send_back or SentBackMessages()
        self._send_to_dead_letters = send_to_dead_letters or DeadLetters()

    async def send_back(self, failed: FailedDelivery) -> None:
        await self._send_back(failed.message, failed.delay_level)

    async def send_to_dead_letters(self, dead_letter: DeadLetter) -> None:
        await self._send_to_dead_letters(dead_letter.message, dead_letter.stored_reason)


def concurrent_dispatch(
    nursery: trio.Nursery,
    handle: Callable[[Any], Any],
    concurrency: int = 3,
    *,
    send_back: Callable[[ReceivedMessage, int], Awaitable[None]],
    dead_letters: Callable[[ReceivedMessage, str], Awaitable[None]] | None = None,
    batch_size: int | None = None,
    timeout: float = math.inf,
    hooks: ConsumerHooks | None = None,
) -> ConcurrentDispatch:
    return ConcurrentDispatch(
        nursery,
        handle,
        PushConsumerSettings(
            group="g", concurrency=concurrency, batch_size=batch_size, consume_timeout=timeout
        ),
        failed_messages=ScriptedReturns(send_back, dead_letters),
        hooks=hooks,
    )


def filled_queue(count: int, queue: MessageQueue = QUEUE) -> ProcessQueue:
    process_queue = ProcessQueue(queue, 0)
    process_queue.put(several(range(count)), count)
    return process_queue


class Gate:
    """A handler that blocks until it is released, and records the running calls."""

    def __init__(self) -> None:
        self.running: list[int] = []
        self.max_running = 0
        self.open = trio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.running.append(message.queue_offset)
        self.max_running = max(self.max_running, len(self.running))
        try:
            await self.open.wait()
        finally:
            self.running.remove(message.queue_offset)
