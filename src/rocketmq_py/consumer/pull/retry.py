"""Decisions after a pull that failed or returned no messages: retry, wait, or skip lost offsets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import attrs
import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RepeatedLog, RetryLog
from rocketmq_py.codes import ResponseCode
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.queue_puller import PulledMessages, PullResponse, PullStatus, QueuePuller
from rocketmq_py.errors import (
    BrokerError,
    ConnectionLostError,
    FlowControlError,
    NoQueueError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.protocol.subscription import SQL92
from rocketmq_py.remoting.back_off import BackOff

logger: Final = LibraryLogger("rocketmq_py.consumer")

RETRY_DELAYS: Final[Mapping[PullState, float]] = {
    PullState.STALLED: 0.05,
    PullState.BUSY: 0.02,
    PullState.FAILED: 3.0,
}
"""States that follow a broker's answer or an error, with the seconds until the next pull.

Java: PULL_TIME_DELAY_MILLS_WHEN_…"""
BUSY_BACK_OFF: Final = BackOff(RETRY_DELAYS[PullState.BUSY], longest=1.0)
"""The delay after BUSY, as long as the rate is limited.

With Java's alone, a consumer of many queues would itself exceed the limit.
"""
RECONNECT_SECONDS = 0.1
"""Seconds until a broker whose connection was lost is dialled. Later dials are up to a second apart."""
SECOND_CORRECTION_SECONDS = 30.0
"""A second correction of an offset within this time is followed only after a pause, to avoid a busy loop."""


def state_after_empty(pulled_at: float) -> PullState:
    """Return the state after an answer without messages to the pull at ``pulled_at``.

    STALLED if the broker answered at once. It does not hold pulls then, and must not be polled in a tight
    loop.
    """
    at_once = trio.current_time() - pulled_at < RETRY_DELAYS[PullState.STALLED]
    return PullState.STALLED if at_once else PullState.PULLING


class PullRetry:
    """Decides when to retry a pull, and from which offset to continue.

    Args:
        client: the client that pulls.
        queue: the queue.
        log: logs failures. The loops of a broker share it.
        is_quiet: whether failures are expected and only logged at DEBUG.
        pause: seconds until the next try, for log lines.
    """

    def __init__(
        self,
        client: ClientCore,
        queue: MessageQueue,
        log: RetryLog,
        *,
        is_quiet: bool = False,
        pause: float = RETRY_DELAYS[PullState.FAILED],
    ) -> None:
        self._client = client
        self._queue = queue
        self._where: dict[str, object] = {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
        }
        self._log = log
        self._is_quiet = is_quiet
        self._pause = pause
        self._has_failed = False
        self._refusals = 0  # by flow control, one after another
        self._busy_log: RepeatedLog | None = None
        self._waits_for_broker = False
        self._correction_log = RepeatedLog(logger)
        self._corrected_at = -math.inf

    def failed(self, error: RocketMQError, *, is_raised: bool = False) -> PullState:
        """Record a failure. Return the next state. :meth:`wait` waits until the next pull.

        With ``is_raised``, nothing is logged: the caller gets the error, and there is no retry.
        """
        self._waits_for_broker = error._not_reached or isinstance(error, ConnectionLostError)
        if error._invalidates_route:
            self._client.routes.invalidate(self._queue.topic)
        if isinstance(error, FlowControlError):
            self._refusals += 1
            if is_raised:
                return PullState.BUSY
            self._busy_log = self._busy_log or RepeatedLog(logger)
            self._busy_log.warning(
                "pull refused by flow control, retrying: topic=%s broker=%s queue=%s retry_in=%.2f error=%s",
                *self._where.values(), self.delay(PullState.BUSY), error,
            )  # fmt: skip
            return PullState.BUSY
        if is_raised:
            return PullState.FAILED
        where = self._where if self._waits_for_broker else {**self._where, "retry_in": self._pause}
        if self._is_quiet:
            self._log.failed_as_expected(error, **where)
        else:
            self._log.failed(error, **where)
            self._has_failed = True
        return PullState.FAILED

    def delay(self, state: PullState) -> float:
        """Return the seconds until the next pull in a state of RETRY_DELAYS."""
        return BUSY_BACK_OFF.after(self._refusals) if state is PullState.BUSY else RETRY_DELAYS[state]

    @property
    def is_limited(self) -> bool:
        """Whether the last answer was a refusal by flow control."""
        return self._refusals > 0

    def succeeded(self) -> None:
        """Record an answer."""
        self._refusals = 0
        self._waits_for_broker = False
        if self._has_failed:
            self._has_failed = False
            self._log.succeeded(**self._where)

    async def wait(self, state: PullState) -> None:
        """Wait for the state's delay in RETRY_DELAYS, or until the broker can be reached again."""
        if state is PullState.FAILED and self._waits_for_broker:
            await trio.sleep(RECONNECT_SECONDS)
            await self._client.brokers.wait_until_reachable(self._queue)
        else:
            await trio.sleep(self.delay(state) if state in RETRY_DELAYS else 0.0)

    def next_step(self, requested: int, pulled_at: float, pulled: PulledMessages) -> tuple[int, PullState]:
        """Return the offset of the next pull, and the next state.

        The offset decreases if the queue ends before ``requested``, because the broker has lost messages or
        an operator has reset the queue. It does not go below the queue's first offset. A second decrease
        within 30 seconds has a state with a pause, because a broker that keeps correcting the offset would
        deliver the same messages in a busy loop.

        Args:
            requested: the offset of the pull.
            pulled_at: the time of the pull on trio's clock.
            pulled: the answer.
        """
        offset = pulled.next_offset
        if pulled.status is PullStatus.OFFSET_MOVED or offset < requested:
            self._correction_log.warning(
                "offset corrected by the broker: topic=%s broker=%s queue=%d requested=%d corrected=%d",
                *self._where.values(), requested, offset,
            )  # fmt: skip
        if offset > requested:
            return offset, PullState.PULLING
        if pulled.status is PullStatus.FOUND:  # only messages before the offset
            return requested, PullState.FAILED
        if offset < requested:
            offset = max(offset, pulled.min_offset, 0)
            now = trio.current_time()
            last_correction, self._corrected_at = self._corrected_at, now
            if offset >= requested or now - last_correction < SECOND_CORRECTION_SECONDS:
                return min(offset, requested), PullState.FAILED
            return offset, PullState.PULLING
        return requested, state_after_empty(pulled_at)


@attrs.frozen
class Gap:
    """A range of offsets without messages.

    Attributes:
        end: the first offset after the gap.
        is_lost: whether there were messages, as opposed to offsets that a filter skips.
    """

    end: int
    is_lost: bool


class LossCheck:
    """Decides whether missing messages are lost.

    A replica may lag behind, and a broker that has just started may not have loaded all of its messages. So a
    loss counts only if the master confirms it.

    Args:
        puller: pulls from the queue.
        has_gaps: whether the broker may skip offsets, as it does for filters.
    """

    def __init__(self, puller: QueuePuller, *, has_gaps: bool) -> None:
        self._puller = puller
        self._has_gaps = has_gaps
        self._is_unconfirmed = False

    def found(self) -> None:
        """Record a pull that returned messages."""
        self._is_unconfirmed = False

    async def gap(self, requested: int, end: int, pulled: PulledMessages | PullResponse) -> Gap | None:
        """Return the gap that an answer without messages shows, or None if the pull has to be repeated.

        Before the caller repeats the pull, this waits if the broker named no later offset.

        Args:
            requested: the offset of the pull.
            end: the end of the offsets that should have messages.
            pulled: the answer.
        """
        upto = pulled.next_offset
        if pulled.status is PullStatus.OFFSET_MOVED:
            upto = max(upto, pulled.min_offset)
        elif self._has_gaps and upto > requested:
            self._is_unconfirmed = False
            return Gap(min(upto, end), is_lost=False)
        if self._is_unconfirmed:
            self._is_unconfirmed = False
            return Gap(min(upto, end) if upto > requested else end, is_lost=True)
        self._is_unconfirmed = True
        self._puller.use_master()
        if upto <= requested:
            await trio.sleep(RETRY_DELAYS[PullState.FAILED])
        return None


class BoundedRetry:
    """Retries the pulls of a reader that reads up to an end, and gives up after a time.

    Args:
        client: the client that sends the requests.
        puller: pulls from the queue.
        retry: decides when to retry.
        retry_timeout: seconds without an answer after which the error is raised.
        has_gaps: see LossCheck.

    Attributes:
        loss: decides whether missing messages are lost.
    """

    def __init__(
        self,
        client: ClientCore,
        puller: QueuePuller,
        retry: PullRetry,
        *,
        retry_timeout: float,
        has_gaps: bool,
    ) -> None:
        self._client = client
        self._queue = puller.queue
        self._retry = retry
        self._retry_timeout = retry_timeout
        self._failing_since: float | None = None
        self.loss: LossCheck = LossCheck(puller, has_gaps=has_gaps)

    async def queue_is_gone(self, error: RocketMQError) -> bool:
        """Return True if an error means that the queue was deleted. Otherwise wait until the next try.

        Raises:
            RocketMQError: ``error``, if it is not retriable or ``retry_timeout`` is exhausted.
        """
        if error._queue_gone:
            return True
        if isinstance(error, BrokerError):
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return True
            if not error.retriable:
                raise error
        now = trio.current_time()
        if self._failing_since is None:
            self._failing_since = now
        if isinstance(error, NoQueueError) and await _is_deleted(self._client, self._queue):
            return True
        if now - self._failing_since >= self._retry_timeout:
            raise error
        with trio.move_on_at(self._failing_since + self._retry_timeout):
            await self._retry.wait(self._retry.failed(error))
        return False

    def answered(self) -> None:
        """Record an answer."""
        self._failing_since = None
        self._retry.succeeded()


async def _is_deleted(client: ClientCore, queue: MessageQueue) -> bool:
    """Return whether a queue has left the topic's route while its broker is registered.

    The queues of a broker that is not registered may come back.
    """
    try:
        with suppress(TopicNotFoundError):
            if queue in (await client.routes.refresh(queue.topic)).read_queues:
                return False
        cluster = await client.name_servers.cluster_info()
    except RocketMQError:
        return False
    return queue.broker_name in cluster.broker_addr_table


def is_filtered(subscription: SubscriptionData) -> bool:
    """Return whether a subscription has a filter, so that brokers skip offsets."""
    return bool(subscription.tags_set) or subscription.expression_type == SQL92
