"""Hand-over of revoked queues whose handlers still run, in concurrent consumers."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Final

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.dead_letters import FailedDelivery
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.consumer.push.concurrent_dispatch import ConcurrentDispatch
from rocketmq_py.consumer.push.send_back import SendBack
from rocketmq_py.consumer.settings import UNLIMITED_RECONSUME_TIMES
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.consumer")

SETTLE_SECONDS = 0.5
"""Seconds that the running handlers of a revoked queue have to end before its offset is committed."""
SEND_BACK_SECONDS = 1.0
"""Maximum seconds to send the messages of the others back."""
TAKEOVER_SECONDS = 2.0
"""Seconds that a member waits for the commits of the previous owner of a queue before it reads the offset."""
MOVED_DELAY_LEVEL = 4
"""The delay level of messages whose handlers run: 30 seconds, longer than the default ``close_timeout``."""


class QueueMoves:
    """Commits revoked queues whose messages are handled concurrently.

    A group has one offset for each queue. Messages that are done after the first one that is not would be
    repeated by the next owner. So the messages of running handlers are sent back, and the offset after them
    is committed: then no other messages are repeated.

    Args:
        client: sends the requests.
        group: the consumer group.
        counters: the consumer's counters.

    Attributes:
        dispatch: calls the handlers.
    """

    dispatch: ConcurrentDispatch

    def __init__(self, client: ClientCore, group: str, counters: ConsumerCounters) -> None:
        self._group = group
        # Without a limit: the handler has not failed, so the message must not become a dead letter.
        self._send_back = SendBack(client, group, counters, max_reconsume_times=UNLIMITED_RECONSUME_TIMES)

    async def settle(self, loops: Collection[PullLoop]) -> None:
        """Give the running handlers of revoked queues a moment to end. Send the others' messages back.

        Messages that cannot be sent back keep their offsets.
        """
        buffers = [loop.process_queue for loop in loops]
        deadline = trio.current_time() + SETTLE_SECONDS
        while running := self._running(buffers):
            if trio.current_time() >= deadline:
                break
            await trio.sleep(SETTLE_SECONDS / 10)
        if not running:
            return
        logger.info(
            "queues move while their handlers run, sending the messages back: group=%s messages=%d",
            self._group, len(running),
        )  # fmt: skip
        with trio.move_on_after(SEND_BACK_SECONDS):
            async with open_nursery() as nursery:
                for buffer, message in running:
                    nursery.start_soon(self._send_back_one, buffer, message)

    def _running(
        self, buffers: Collection[MessageBuffer | None]
    ) -> list[tuple[MessageBuffer, ReceivedMessage]]:
        return [
            (call.buffer, message)
            for call in self.dispatch.running_calls()
            if call.buffer in buffers
            for message in call.messages
            if message in call.buffer
        ]

    async def _send_back_one(self, buffer: MessageBuffer, message: ReceivedMessage) -> None:
        with suppress(RocketMQError):  # logged by SendBack
            await self._send_back.send_back(FailedDelivery(message, MOVED_DELAY_LEVEL))
            buffer.remove_sent_back(message)
