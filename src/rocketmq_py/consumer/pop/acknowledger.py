"""Acknowledges the popped messages of a push consumer, and schedules redelivery of failed ones."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Final

import trio

from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.group.handler_results import DEAD_LETTER, FIRST_DELAY_LEVEL
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pop.requests import PopRequests
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import DELAY_LEVEL_NAMES, MAX_DELAY_LEVEL
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = logging.getLogger("rocketmq_py.consumer")

_SECONDS_OF_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0}
DELAY_SECONDS = (0.0, *[float(name[:-1]) * _SECONDS_OF_UNIT[name[-1]] for name in DELAY_LEVEL_NAMES])
"""The seconds of each delay level in a broker's default settings. Clients cannot query other settings."""


class PopAcknowledger:
    """Acknowledges processed messages, and schedules the redelivery of failed ones.

    Messages that are processed during an acknowledgement request are acknowledged together in the next one.
    Failed requests are logged. The broker redelivers their messages when their invisible time is over. Java:
    ``ConsumeMessagePopConcurrentlyService.processConsumeResult``.

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

    def send_to_dead_letters(self, message: PoppedMessage) -> None:
        """Make a message a dead letter in the background."""
        assert self._nursery is not None
        self._nursery.start_soon(self.deliver_later, message, DEAD_LETTER)

    async def deliver_later(self, message: PoppedMessage, delay_level: int) -> None:
        """Schedule the redelivery of a failed message, or make it a dead letter after the last one.

        Args:
            message: the message.
            delay_level: the delay, as in ConsumeLater, with the times of a broker's default settings. For 0
                it grows with the number of failures.
        """
        failures = message.reconsume_times
        try:
            if delay_level == DEAD_LETTER or failures >= self._max_reconsume_times:
                await self._requests.send_to_dead_letters(
                    message, failures=failures + 1, max_reconsume_times=self._max_reconsume_times
                )
            else:
                level = delay_level or min(FIRST_DELAY_LEVEL + failures, MAX_DELAY_LEVEL)
                await self._requests.change_invisible(message, DELAY_SECONDS[level])
        except RocketMQError as error:
            self._send_back_logs.failed(
                message.receipt.broker_name, error, topic=message.topic, message=message.message_id
            )
        else:
            self._send_back_logs.succeeded(message.receipt.broker_name)

    async def flush(self) -> None:
        """Send all outstanding acknowledgements. Call it after the last :meth:`acknowledge`."""
        async with open_nursery() as nursery:
            for broker_name in [name for name, processed in self._processed.items() if processed]:
                nursery.start_soon(self._send_acknowledgements, broker_name)

    async def _send_acknowledgements(self, broker_name: str) -> None:
        processed = self._processed[broker_name]
        try:
            while processed:
                batch = list(processed)
                try:
                    await self._requests.acknowledge(broker_name, batch)
                except RocketMQError as error:
                    self._acknowledge_logs.failed(broker_name, error, messages=len(batch))
                else:
                    self._acknowledge_logs.succeeded(broker_name)
                del processed[: len(batch)]
        finally:
            self._busy.discard(broker_name)
