"""Closing a producer: how long it waits for outcomes, and the messages that it gives up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rocketmq_py.errors import ClosedError, Delivery, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.producer.statistics import Counters

INTERRUPTED = "closing was interrupted"

logger: Final = LibraryLogger("rocketmq_py.producer")


class Closing:
    """Waits for the outcomes of a producer that closes, and records the messages that get none.

    Args:
        counters: the counters of the producer.
        group: the producer group.

    Attributes:
        latest: the time at which :meth:`wait` gives up although results arrive.
    """

    def __init__(self, counters: Counters, group: str) -> None:
        self._counters = counters
        self._group = group
        self._began = math.inf
        self._scope: trio.CancelScope | None = None
        self._reason = ""  # it has not given up
        self._topics: Counter[str] = Counter()
        self._deliveries: Counter[Delivery] = Counter()
        self._last_error: BaseException | None = None
        self.latest: float = math.inf

    async def finish(self, outcomes: Callable[[], Awaitable[object]], seconds: float) -> bool:
        """Await ``outcomes()`` as :meth:`wait`, and give up if it is cancelled or interrupted."""
        try:
            return await self.wait(outcomes, seconds)
        except BaseException:
            self.give_up(INTERRUPTED)
            raise

    async def wait(self, outcomes: Callable[[], Awaitable[object]], seconds: float) -> bool:
        """Await ``outcomes()``, and return True. Return False after ``seconds`` in which no result arrived.

        ``outcomes`` is called again when it was cancelled although results arrive. The first ``seconds``
        begin with the first call of this method. If cancelled, :meth:`wait` may be called again.
        """
        self._began = min(self._began, trio.current_time())
        while True:
            with trio.CancelScope(deadline=self._deadline(seconds)) as self._scope:
                await outcomes()
                return True
            if self._deadline(seconds) <= trio.current_time():
                break
        if self.latest > trio.current_time():
            self.give_up(f"no result for {seconds:g} s")
        elif self.latest > -math.inf:
            self.give_up("the process ended")
        return False

    def _deadline(self, seconds: float) -> float:
        return min(max(self._began, self._counters.last_result) + seconds, self.latest)

    def give_up(self, reason: str) -> None:
        """Let :meth:`wait` return False now, and later at once."""
        self._reason = reason
        self.latest = -math.inf
        if self._scope is not None:
            self._scope.deadline = -math.inf

    def add(self, topic: str, error: BaseException, count: int = 1) -> None:
        """Record messages that failed because the producer closes, or while it closes."""
        if isinstance(error, ClosedError):
            self._counters.given_up += count
        self._topics[topic] += count
        self._deliveries[error.delivery if isinstance(error, RocketMQError) else Delivery.NOT_SENT] += count
        self._last_error = error

    def report(self, name_servers: str) -> None:
        """Log the messages that were recorded since the last call, if any."""
        total = self._topics.total()
        if not total:
            return
        unknown = self._deliveries[Delivery.UNKNOWN]
        of_them = "" if unknown == total else f"{unknown} of them " if unknown else ""
        logger.warning(
            "%d messages were not sent before their producer was closed%s: %s, name_servers=%s. "
            "Last error: %s. group=%s%s",
            total,
            f" ({of_them or 'they '}may have been stored)" if unknown else "",
            ", ".join([f"{count} of topic {topic!r}" for topic, count in self._topics.most_common()]),
            name_servers,
            self._last_error,
            self._group,
            self._reason and f", {self._reason}",
        )
        self._topics.clear()
        self._deliveries.clear()
