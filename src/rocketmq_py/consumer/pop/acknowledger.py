"""Acknowledges the popped messages of a push consumer, and schedules redelivery of failed ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, cast

import trio

from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.group.dead_letters import Cause, DeadLetter, FailedDelivery
from rocketmq_py.consumer.group.handler_results import delay_seconds
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pop.requests import PopRequests
from rocketmq_py.errors import FlowControlError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.consumer")

PATIENCE_SECONDS = 60.0
"""Seconds for which messages are acknowledged again while their broker cannot be reached, or limits the rate:
the default of the invisible time."""
RETRY_SECONDS = 0.1
"""Seconds until the next acknowledgement then. The request waits for the broker in addition."""


class PopAcknowledger:
    """Acknowledges processed messages, and schedules the redelivery of failed ones.

    Messages that are processed during an acknowledgement request are acknowledged together in the next one.
    While their broker cannot be reached, or limits the rate, they are acknowledged again. Other failed
    requests are only logged, and the broker redelivers their messages when their invisible time is over.
    Java: ``ConsumeMessagePopConcurrentlyService.processConsumeResult``.

    Args:
        requests: sends the requests.
        group: the consumer group, for log lines.
        max_reconsume_times: redeliveries after which a message becomes a dead letter.
    """

    def __init__(self, requests: PopRequests, group: str, *, max_reconsume_times: int) -> None:
        self._requests = requests
        self._send_back_logs = RetryLogs(logger, "send back", "broker", group=group)
        self._acknowledge_logs = RetryLogs(logger, "acknowledgement", "broker", group=group)
        self._max_reconsume_times = max_reconsume_times
        self._nursery: trio.Nursery | None = None
        self._processed: defaultdict[str, list[PoppedMessage]] = defaultdict(list)
        self._busy: set[str] = set()
        self._is_flushing = False

    def open(self, nursery: trio.Nursery) -> None:
        """Send requests in ``nursery``."""
        self._nursery = nursery

    def acknowledge(self, message: PoppedMessage) -> None:
        """Acknowledge a message in the background."""
        broker_name = message.receipt.broker_name
        self._processed[broker_name].append(message)
        if broker_name not in self._busy:
            assert self._nursery is not None
            self._busy.add(broker_name)
            self._nursery.start_soon(self._send_acknowledgements, broker_name)

    def is_idle(self, broker_name: str) -> bool:
        """Whether a broker has got all acknowledgements."""
        return not self._processed.get(broker_name)

    def give_up(self, message: PoppedMessage) -> None:
        """Make a message that was delivered too often a dead letter, in the background."""
        assert self._nursery is not None
        self._nursery.start_soon(self._give_up, DeadLetter(message, Cause.NOT_ACKNOWLEDGED))

    async def _give_up(self, dead_letter: DeadLetter) -> None:
        with suppress(RocketMQError):  # logged. The broker redelivers the message
            await self.send_to_dead_letters(dead_letter)

    async def send_back(self, failed: FailedDelivery) -> None:
        """Schedule the redelivery of a failed message, or make it a dead letter after the last one.

        The delay has the times of a broker's default settings. For level 0 it grows with the number of
        failures. If a request fails, which is logged, the broker redelivers the message when its invisible
        time is over.
        """
        message = cast("PoppedMessage", failed.message)
        dead_letter = failed.dead_letter(self._max_reconsume_times)
        with suppress(RocketMQError):
            if dead_letter is not None:
                await self.send_to_dead_letters(dead_letter)
                return
            with self._logged(message):
                seconds = delay_seconds(failed.delay_level, message.reconsume_times)
                await self._requests.change_invisible(message, seconds)

    async def send_to_dead_letters(self, dead_letter: DeadLetter) -> None:
        """Make a message a dead letter, and acknowledge it. Raises RocketMQError, which is logged."""
        with self._logged(cast("PoppedMessage", dead_letter.message)):
            await self._requests.send_to_dead_letters(
                dead_letter, max_reconsume_times=self._max_reconsume_times
            )

    @contextmanager
    def _logged(self, message: PoppedMessage) -> Iterator[None]:
        """Log the failure of a request to send a message back."""
        broker_name = message.receipt.broker_name
        try:
            yield
        except RocketMQError as error:
            self._send_back_logs.failed(broker_name, error, topic=message.topic, message=message.message_id)
            raise
        else:
            self._send_back_logs.succeeded(broker_name)

    async def flush(self) -> None:
        """Send all outstanding acknowledgements once. Call it after the last :meth:`acknowledge`."""
        self._is_flushing = True
        async with open_nursery() as nursery:
            for broker_name in [name for name, processed in self._processed.items() if processed]:
                nursery.start_soon(self._send_acknowledgements, broker_name)

    async def _send_acknowledgements(self, broker_name: str) -> None:
        processed = self._processed[broker_name]
        give_up_at = math.inf
        try:
            while processed:
                batch = list(processed)
                try:
                    await self._requests.acknowledge(broker_name, batch)
                except RocketMQError as error:
                    self._acknowledge_logs.failed(broker_name, error, messages=len(batch))
                    now = trio.current_time()
                    give_up_at = min(give_up_at, now + PATIENCE_SECONDS)
                    may_help = error._not_reached or isinstance(error, FlowControlError)
                    if may_help and not self._is_flushing and now < give_up_at:
                        await trio.sleep(RETRY_SECONDS)
                        continue
                else:
                    self._acknowledge_logs.succeeded(broker_name)
                give_up_at = math.inf
                del processed[: len(batch)]
        finally:
            self._busy.discard(broker_name)
