"""What follows a pull that failed, or that brought nothing: how long to wait, and what to believe of it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs
import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RepeatedLog, RetryLog
from rocketmq_py.codes import ResponseCode
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.flow_control import WAIT_SECONDS, after_nothing
from rocketmq_py.consumer.pull.queue_puller import Pulled, PullStatus, QueuePuller, RawPulled
from rocketmq_py.errors import BrokerError, NoQueueError, QueueGoneError, RocketMQError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.protocol.subscription import SQL92

logger: Final = logging.getLogger("rocketmq_py.consumer")


SECOND_CORRECTION_SECONDS = 30.0
"""A broker that corrects an offset again within this time is not followed: it would do so without end."""


class PullRetry:
    """When to ask a broker again, and for what.

    Args:
        queue: the queue, for the log.
        log: logs failures; the loops of one broker share it.
        invalidate_route: told when an error shows that the topic's route is out of date.
        is_quiet: whether failures are expected, and logged at DEBUG only.
        pause: seconds until the next try, for the log.
    """

    def __init__(
        self,
        queue: MessageQueue,
        log: RetryLog,
        invalidate_route: Callable[[], None],
        *,
        is_quiet: bool = False,
        pause: float = WAIT_SECONDS[PullState.FAILED],
    ) -> None:
        self._where = {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}
        self._log = log
        self._invalidate_route = invalidate_route
        self._is_quiet = is_quiet
        self._pause = pause
        self._has_failed = False
        self._correction_log = RepeatedLog(logger)
        self._went_back_at = -math.inf

    def failed(self, error: RocketMQError) -> PullState:
        """Note a failure; return what to do next, which WAIT_SECONDS gives the time for."""
        if error.invalidates_route:
            self._invalidate_route()
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return PullState.BUSY
        if self._is_quiet:
            self._log.failed_as_expected(error, **self._where, retry_in=self._pause)
        else:
            self._log.failed(error, **self._where, retry_in=self._pause)
            self._has_failed = True
        return PullState.FAILED

    def succeeded(self) -> None:
        """Note that there was an answer."""
        if self._has_failed:
            self._has_failed = False
            self._log.succeeded(**self._where)

    def go_on(self, asked: int, asked_at: float, pulled: Pulled) -> tuple[int, PullState]:
        """Return where to go on after an answer, and what to do next.

        It goes back where the broker says that the queue does not reach so far (it has lost messages, or an
        operator has set it back), but not to before the queue's beginning, and only once without a pause:
        a broker that says so again and again would have the same messages handed out without end.

        Args:
            asked: the offset that was asked for.
            asked_at: when, on trio's clock.
            pulled: the answer.
        """
        offset = pulled.next_offset
        if pulled.status is PullStatus.OFFSET_MOVED or offset < asked:
            self._correction_log.warning(
                "offset corrected by the broker: topic=%s broker=%s queue=%d asked=%d corrected=%d",
                *self._where.values(), asked, offset,
            )  # fmt: skip
        if offset > asked:
            return offset, PullState.PULLING
        if pulled.status is PullStatus.FOUND:  # nothing that was asked for
            return asked, PullState.FAILED
        if offset < asked:
            offset = max(offset, pulled.min_offset, 0)
            now = trio.current_time()
            was_back, self._went_back_at = self._went_back_at, now
            if offset >= asked or now - was_back < SECOND_CORRECTION_SECONDS:
                return min(offset, asked), PullState.FAILED
            return offset, PullState.PULLING
        return asked, after_nothing(asked_at)


@attrs.frozen
class Gap:
    """Offsets without a message, up to before ``end``; ``is_lost`` if there were some, or should be."""

    end: int
    is_lost: bool


class LossCheck:
    """Whether to believe a broker that has nothing where there should be something.

    A replica may lag behind, and a broker that has just been started may not have read all that it has: a
    loss is believed when the master says it, once more.

    Args:
        puller: asks the broker.
        has_gaps: whether a broker may pass over offsets, as it does for a filter.
    """

    def __init__(self, puller: QueuePuller, *, has_gaps: bool) -> None:
        self._puller = puller
        self._has_gaps = has_gaps
        self._doubted = False

    def found(self) -> None:
        """Note that there was something."""
        self._doubted = False

    async def gap(self, asked: int, end: int, pulled: Pulled | RawPulled) -> Gap | None:
        """Return what the answer says of offsets from ``asked`` on; None: ask for the same again.

        Waits before that if the broker has nothing to go on with. Call it where an answer brought nothing.

        Args:
            asked: the offset that was asked for.
            end: where what should be there ends.
            pulled: the answer.
        """
        upto = pulled.next_offset
        if pulled.status is PullStatus.OFFSET_MOVED:
            upto = max(upto, pulled.min_offset)
        elif self._has_gaps and upto > asked:
            self._doubted = False
            return Gap(min(upto, end), is_lost=False)
        if self._doubted:
            self._doubted = False
            return Gap(min(upto, end) if upto > asked else end, is_lost=True)
        self._doubted = True
        self._puller.ask_master()
        if upto <= asked:
            await trio.sleep(WAIT_SECONDS[PullState.FAILED])
        return None


class BoundedRetry:
    """What one who reads a queue up to an end does about failures and losses.

    Args:
        client: how brokers are reached.
        puller: asks the queue's broker.
        retry: when to ask again.
        patience: seconds without any answer after which the failure is raised.
        has_gaps: as LossCheck has it.
    """

    def __init__(
        self,
        client: Client,
        puller: QueuePuller,
        retry: PullRetry,
        *,
        patience: float,
        has_gaps: bool,
    ) -> None:
        self._client = client
        self._queue = puller.queue
        self._retry = retry
        self._patience = patience
        self._failing_since: float | None = None
        loss = LossCheck(puller, has_gaps=has_gaps)
        self.found: Final = loss.found
        self.gap: Final = loss.gap

    async def is_gone(self, error: RocketMQError) -> bool:
        """Return whether a failure means that there is no such queue any more; if not, wait for the next try.

        Raises:
            RocketMQError: ``error``, if no other try mends it, or it has been tried for long enough.
        """
        if isinstance(error, QueueGoneError):
            return True
        if isinstance(error, BrokerError):
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return True
            if not error.retriable:
                raise error
        now = trio.current_time()
        if self._failing_since is None:
            self._failing_since = now
        if isinstance(error, NoQueueError) and await _is_gone(self._client, self._queue):
            return True
        if now - self._failing_since >= self._patience:
            raise error
        await trio.sleep(WAIT_SECONDS[self._retry.failed(error)])
        return False

    def answered(self) -> None:
        """Note that there was an answer."""
        self._failing_since = None
        self._retry.succeeded()


async def _is_gone(client: Client, queue: MessageQueue) -> bool:
    """Tell whether a queue is known no more, though its broker is there: one that is away may come back."""
    try:
        with suppress(TopicNotFoundError):
            if queue in (await client.routes.refresh(queue.topic)).read_queues:
                return False
        cluster = await client.name_servers.cluster_info()
    except RocketMQError:
        return False
    return queue.broker_name in cluster.broker_addr_table


def is_filtered(subscription: SubscriptionData) -> bool:
    """Tell whether a subscription leaves out messages, so that brokers pass over their offsets."""
    return bool(subscription.tags_set) or subscription.expression_type == SQL92
