"""Telling brokers what became of messages that were popped for a push consumer."""

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
from rocketmq_py.remoting.running import open_nursery

logger: Final = logging.getLogger("rocketmq_py.consumer")

_SECONDS_OF_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0}
DELAY_SECONDS = (0.0, *[float(name[:-1]) * _SECONDS_OF_UNIT[name[-1]] for name in DELAY_LEVEL_NAMES])
"""The time of each delay level, by its number: a client cannot ask a broker for its own ones."""


class PopOutcomes:
    """Acknowledges what was handled, and has the broker deliver later what was not.

    What was handled while an acknowledgement is under way goes together in the next one. What a broker does
    not take down comes again when its time is up: that is logged. Java:
    ``ConsumeMessagePopConcurrentlyService.processConsumeResult``.

    Args:
        requests: asks the brokers.
        group: the group, for the log.
        max_reconsume_times: deliveries after the first one, before a message is a dead letter.
    """

    def __init__(self, requests: PopRequests, group: str, *, max_reconsume_times: int) -> None:
        self._requests = requests
        # The broker delivers a message again when its invisible time is over.
        self._send_back_logs = RetryLogs(logger, "send back", "broker", group=group)
        self._acknowledge_logs = RetryLogs(logger, "acknowledgement", "broker", group=group)
        self._max_reconsume_times = max_reconsume_times
        self._nursery: trio.Nursery | None = None
        self._handled: defaultdict[str, list[PoppedMessage]] = defaultdict(list)
        self._busy: set[str] = set()

    def open(self, nursery: trio.Nursery) -> None:
        """Have acknowledgements made in ``nursery``."""
        self._nursery = nursery

    def done(self, message: PoppedMessage) -> None:
        """Have a message acknowledged: it was handled."""
        broker_name = message.receipt.broker_name
        self._handled[broker_name].append(message)
        if broker_name not in self._busy:
            assert self._nursery is not None
            self._busy.add(broker_name)
            self._nursery.start_soon(self._acknowledge, broker_name)

    def send_to_dead_letters(self, message: PoppedMessage) -> None:
        """Have a message be a dead letter that has been delivered too often."""
        assert self._nursery is not None
        self._nursery.start_soon(self.deliver_later, message, DEAD_LETTER)

    async def deliver_later(self, message: PoppedMessage, delay_level: int) -> None:
        """Have a message that failed delivered again, or be a dead letter when it has been often enough.

        Args:
            message: the message.
            delay_level: as ConsumeLater has it. Its time is that of a broker's default settings; for 0 it
                grows with the number of failures.
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
        """Acknowledge all that is not acknowledged yet; to be called when :meth:`done` is called no more."""
        async with open_nursery() as nursery:
            for broker_name in [name for name, handled in self._handled.items() if handled]:
                nursery.start_soon(self._acknowledge, broker_name)

    async def _acknowledge(self, broker_name: str) -> None:
        handled = self._handled[broker_name]
        try:
            while handled:
                together = list(handled)
                try:
                    await self._requests.acknowledge(broker_name, together)
                except RocketMQError as error:
                    self._acknowledge_logs.failed(broker_name, error, messages=len(together))
                else:
                    self._acknowledge_logs.succeeded(broker_name)
                del handled[: len(together)]
        finally:
            self._busy.discard(broker_name)
