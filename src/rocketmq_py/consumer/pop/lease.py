"""The lease of a popped message: its invisible time is renewed while its work runs."""

from __future__ import annotations

import trio

from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pop.requests import PopRequests
from rocketmq_py.errors import RocketMQError

RENEWALS = 3
"""Renewals per invisible time, so that two of them may fail."""


class Lease:
    """Renews the invisible time of a message at intervals, until it is stopped.

    Args:
        requests: sends the renewals.
        message: the message.
        invisible: seconds from each renewal until the redelivery.
        retry_log: logs failed renewals.

    Attributes:
        message: the message with the receipt handle of the latest renewal, the only valid one.
    """

    def __init__(
        self, requests: PopRequests, message: PoppedMessage, invisible: float, retry_log: RetryLog
    ) -> None:
        self._requests = requests
        self._invisible = invisible
        self._retry_log = retry_log
        self._stopping = trio.Event()
        self._ended = trio.Event()
        self.message: PoppedMessage = message

    async def renew(self) -> None:
        """Renew the invisible time now. Raises as ``PopRequests.change_invisible``."""
        self.message = await self._requests.change_invisible(self.message, self._invisible)

    async def run(self) -> None:
        """Renew the invisible time at intervals, until :meth:`stop`. Failures are logged."""
        interval = self._invisible / RENEWALS
        try:
            while not self._stopping.is_set():
                with trio.move_on_after(interval):
                    await self._stopping.wait()
                    return
                try:
                    await self.renew()
                except RocketMQError as error:
                    self._retry_log.failed(
                        error, topic=self.message.topic, message=self.message.message_id, retry_in=interval
                    )
                else:
                    self._retry_log.succeeded()
        finally:
            self._ended.set()

    def stop(self) -> None:
        """Renew no more. A renewal that is in flight ends first."""
        self._stopping.set()

    async def wait_ended(self) -> None:
        """Wait for the end of :meth:`run`, after which ``message`` does not change."""
        await self._ended.wait()
