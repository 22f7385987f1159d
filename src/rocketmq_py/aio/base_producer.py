"""The base class of the producers for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from rocketmq_py.aio.hosted import Hosted
from rocketmq_py.aio.pipelined_sends import LoopSendQueue
from rocketmq_py.handoff.hosted import Target
from rocketmq_py.handoff.hosted_producer import HostedProducer
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer import ProducerHook, ProducerStatistics
from rocketmq_py.producer.selectors import (
    SelectByHash,
    SelectByMachineRoom,
    SelectByRandom,
    check_destination,
    select,
)
from rocketmq_py.producer.send_request import Destination

Result = TypeVar("Result")

_OURS = (MessageQueue, SelectByHash, SelectByMachineRoom, SelectByRandom)
"""Destinations that the trio thread may resolve. Other selectors are user code, which the loop calls."""


class BaseProducer(HostedProducer[Target, LoopSendQueue], Hosted[Target]):
    """A producer with a queue of pipelined sends."""

    _queue_class = LoopSendQueue

    async def flush(self) -> None:
        """Wait until every message that was passed to :meth:`submit` before has its outcome."""
        await self._call(self._drain)

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Add a hook that the running loop calls around sends. Returns a function that removes it."""
        target: Any = self._target
        remove: Callable[[], None] = self._call_plain(target.add_hook, self._hook_on_loop(hook, ProducerHook))
        return remove

    @property
    def statistics(self) -> ProducerStatistics:
        """The counters since it was opened."""
        statistics: ProducerStatistics = self._get("statistics")
        return statistics

    async def _select(self, queue: Destination | None, message: object) -> Destination | None:
        """Call a user's selector on the running loop, and return the queue that it selects.

        Returns any other destination unchanged. If ``message`` is not a Message, it returns the selector, and
        the trio producer raises the error. Raises the errors of the selector and of looking up the queues,
        ConfigurationError for a function that cannot be a selector, and InvalidMessageError if it does not
        return a queue of the topic.
        """
        if isinstance(queue, _OURS) or not callable(queue) or not isinstance(message, Message):
            return queue
        check_destination(queue, message.topic)
        target: Any = self._target
        queues: Sequence[MessageQueue] = await super()._call(target.queues, message.topic)
        return select(queue, queues, message)

    async def _call(self, function: Callable[..., Awaitable[Result]], *args: Any, **kwargs: Any) -> Result:
        queue = kwargs.get("queue")
        if queue is not None:
            self._check_open()
            message: Any = args[0] if args else kwargs.get("message", kwargs.get("messages"))
            if isinstance(message, Sequence) and message:  # a batch, whose messages have one topic
                message = message[0]
            kwargs["queue"] = await self._select(queue, message)
        return await super()._call(function, *args, **kwargs)
