"""The base classes of the consumers of the asyncio and threads APIs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rocketmq_py import consumer
from rocketmq_py.consumer import ConsumerStatistics
from rocketmq_py.consumer.lite_pull.consumer import is_leaving
from rocketmq_py.handoff.hosted import Hosted, Target
from rocketmq_py.handoff.undelivered_messages import Undelivered, UndeliveredPolls, UndeliveredReceives


class BaseConsumer(Hosted[Target]):
    """A consumer of the asyncio or threads API."""

    @property
    def _any_target(self) -> Any:
        return self._target

    @property
    def statistics(self) -> ConsumerStatistics:
        """The counters since it was opened, and the state of each queue."""
        statistics: ConsumerStatistics = self._get(lambda: self._any_target.statistics)
        return statistics


class HandlerConsumer(BaseConsumer[Target]):
    """A consumer that calls a handler."""

    def _stop_waiting(self) -> None:
        super()._stop_waiting()
        self._any_target._stop_waiting()


class FetchingConsumer(BaseConsumer[Target]):
    """A consumer that returns messages to calls."""

    _undelivered: Undelivered[Any]

    def _has_undelivered(self) -> bool:
        return bool(self._undelivered)


class ReceivingConsumer(FetchingConsumer[Target]):
    """A PopConsumer or LiteTopicConsumer."""

    def _prepare(self) -> None:
        self._undelivered = UndeliveredReceives(self._any_target, self._check_open)


class PollingConsumer(FetchingConsumer[consumer.LitePullConsumer]):
    """A LitePullConsumer."""

    _undelivered: UndeliveredPolls

    def _prepare(self) -> None:
        self._undelivered = UndeliveredPolls(self._target, self._check_open)

    def _call(self, function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        return super()._call(self._undelivered.call, partial(function, *args, **kwargs))

    def _check_open(self) -> None:
        if not is_leaving(self._target):  # its assignment listener may still commit
            super()._check_open()
