"""Dispatch of lite topics: the handler gets the messages of each lite topic one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from rocketmq_py.consumer.group.handler_results import Suspend
from rocketmq_py.consumer.lite.topic_queues import LiteTopicQueue
from rocketmq_py.consumer.push.handler_executor import HandlerCall
from rocketmq_py.consumer.push.orderly_dispatch import OrderlyDispatch
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")


class LiteTopicBroker(Protocol):
    """The broker that delivers the messages of a lite topic."""

    async def suspend(self, queue: LiteTopicQueue, seconds: float) -> None:
        """Forget the messages of a lite topic, and have the broker redeliver them after ``seconds``."""


class LiteDispatch(OrderlyDispatch):
    """Ordered dispatch in which the broker, instead of this member, waits while a lite topic is suspended.

    Args:
        broker: suspends lite topics.
        **options: the arguments of OrderlyDispatch.
    """

    def __init__(
        self,
        *args: Any,
        broker: LiteTopicBroker,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._broker = broker

    async def _process_result(
        self, call: HandlerCall, messages: Sequence[ReceivedMessage], result: object
    ) -> float | None:
        process_queue = call.buffer
        if not isinstance(result, Suspend) or not isinstance(process_queue, LiteTopicQueue):
            return await super()._process_result(call, messages, result)
        if process_queue.dropped:
            return None
        seconds = self._suspend if result.seconds is None else result.seconds
        try:
            await self._broker.suspend(process_queue, seconds)
        except RocketMQError as error:
            logger.warning(
                "suspending a lite topic failed, waiting here instead: topic=%s lite_topic=%s error=%s",
                process_queue.queue.topic, process_queue.lite_topic, error,
            )  # fmt: skip
            process_queue.requeue_first(messages)
            return seconds
        return None
