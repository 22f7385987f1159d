"""Pipelined sends of the asyncio API, with asyncio futures."""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop as _running_loop  # the public one raises where none runs
from typing import Any

from rocketmq_py.arguments import Duration
from rocketmq_py.handoff.loop_link import LoopLink, current_link
from rocketmq_py.handoff.send_queue import SendQueue, result_of
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.destinations import Destination
from rocketmq_py.producer.outcome import FailureLog

YIELD_EVERY = 64
"""A sender that always finds space lets other tasks run after so many sends."""


class LoopSendFuture(asyncio.Future[SendResult]):
    """A pipelined send. Cancelling it keeps the message from being sent while it waits in the queue.

    Attributes:
        link: the link to its loop.
        send_queue: the queue.
        message, size, queue, timeout: see QueuedSend.
    """

    __slots__ = ("link", "message", "queue", "send_queue", "size", "timeout")

    # Set by LoopSendQueue, not by an __init__, which saves a call for each message.
    link: LoopLink
    send_queue: LoopSendQueue
    message: Message | None
    size: int
    queue: Destination | None
    timeout: Duration | None

    # In the trio thread

    def claim(self) -> bool:
        """Claim it for sending. Return False if it was cancelled."""
        return not self.cancelled()

    def _succeed(self, result: Any) -> None:
        """Set the result."""
        self.send_queue.release(self)
        self.link.deliver(_set_result, self, result)

    def _fail(self, error: BaseException, log: FailureLog | None = None) -> None:
        """Set the error. asyncio logs it if it is never retrieved."""
        self.send_queue.release(self, error)
        self.link.deliver(_set_exception, self, error)


def _set_result(future: asyncio.Future[SendResult], outcome: Any) -> None:
    if not future.done():
        future.set_result(result_of(outcome))


def _set_exception(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class LoopSendQueue(SendQueue[LoopSendFuture]):
    """Takes messages from tasks of asyncio loops; see SendQueue."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._until_yield = YIELD_EVERY
        self._link: LoopLink | None = None  # to the loop that has sent last

    async def send(
        self, message: Message, queue: Destination | None, timeout: Duration | None = None
    ) -> LoopSendFuture:
        """Queue a message when there is space, and return its future. When cancelled, it is not sent.

        Raises InvalidMessageError and ClosedError.
        """
        size = self.check(message)
        link = self._link
        if link is None or link.loop is not _running_loop():
            link = self._link = current_link()
        if self._until_yield <= 0:  # below 0 if two loops have counted at the same moment
            self._until_yield = YIELD_EVERY
            await asyncio.sleep(0)
        while not self.has_space(size):
            await self._wait_for_space(link, size)
            self.check_open()
        self._until_yield -= 1
        send = LoopSendFuture(loop=link.loop)
        send.link = link
        send.send_queue = self
        send.message = message
        send.size = size
        send.queue = queue
        send.timeout = timeout
        self.add(send)
        return send

    async def _wait_for_space(self, link: LoopLink, size: int) -> None:
        woken = link.loop.create_future()

        def wake() -> None:
            link.deliver(_wake, woken)

        if self.must_wait(wake, size):
            await woken
            self._until_yield = YIELD_EVERY  # other tasks have run


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
