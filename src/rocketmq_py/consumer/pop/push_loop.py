"""The pop loop of a push consumer: pop, hold, hand over, and wait where too much is not done with."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

import trio

from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pop.messages import PoppedMessage, count_popped, triage
from rocketmq_py.consumer.pop.popped_queue import PoppedQueue
from rocketmq_py.consumer.pop.push_outcomes import PopOutcomes
from rocketmq_py.consumer.pop.requests import PopRequests, PopSpec
from rocketmq_py.consumer.pull.flow_control import WAIT_SECONDS, after_nothing
from rocketmq_py.consumer.pull.retry import PullRetry
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue

logger: Final = logging.getLogger("rocketmq_py.consumer")


class PopLoop:
    """Pops from a queue, or from all of a broker's, while that is this member's. Java: ``PopRequest``.

    Args:
        popped_queue: what has been popped.
        requests: asks the broker.
        spec: gives what is wanted now.
        hold: seconds that the broker may hold a pop while there is nothing to give.
        threshold: no more is popped while more messages than this are not done with.
        max_reconsume_times: deliveries after the first one, before a message is a dead letter.
        outcomes: sees to what is not to be handed out.
        deliver: takes what has been put into the PoppedQueue.
        invalidate_route: told when an error shows that the topic's route is out of date.
        retry_log: logs failures; shared by the loops of a broker.

    Attributes:
        queue: the queue; with ALL_QUEUES for its number, all of the broker's.
        asked_at: when the broker was last asked, on trio's clock; -inf if it never was.
        popped_queue: see above.
        dropped: whether nothing more is popped.
    """

    def __init__(
        self,
        popped_queue: PoppedQueue,
        requests: PopRequests,
        spec: Callable[[], PopSpec],
        *,
        hold: float,
        threshold: int,
        max_reconsume_times: int,
        outcomes: PopOutcomes,
        deliver: Callable[[PoppedQueue], None],
        invalidate_route: Callable[[], None],
        retry_log: RetryLog,
    ) -> None:
        self.queue: MessageQueue = popped_queue.queue
        self.popped_queue = popped_queue
        self.asked_at: float = -math.inf
        self.dropped: bool = False
        self._requests = requests
        self._spec = spec
        self._hold = hold
        self._threshold = threshold
        self._max_reconsume_times = max_reconsume_times
        self._outcomes = outcomes
        self._deliver = deliver
        self._retry = PullRetry(self.queue, retry_log, invalidate_route)
        self._changed = trio.lowlevel.ParkingLot()
        self._pause = trio.CancelScope()

    async def run(self) -> None:
        """Pop until the loop is dropped or this is cancelled."""
        self.popped_queue.on_space = self._look_for_space
        while not self.dropped:
            if not self._may_pop:
                await self._changed.park()
                continue
            pause = await self._pop()
            with trio.CancelScope() as self._pause:
                await trio.sleep(pause)

    def pause(self, paused: bool) -> None:
        """Pop no more until this is taken back; what is here goes on being handled."""
        self.popped_queue.paused = paused
        self._changed.unpark_all()

    def drop(self) -> None:
        """Pop no more. What is here, and what a pop under way brings, is handled: nobody else gets it."""
        self.dropped = True
        self._pause.cancel()
        self._changed.unpark_all()

    @property
    def state(self) -> PullState:
        """What the loop does now, or will do when the pop under way is answered."""
        if self.popped_queue.paused:
            return PullState.PAUSED
        return PullState.FULL_BY_COUNT if len(self.popped_queue) > self._threshold else PullState.PULLING

    @property
    def _may_pop(self) -> bool:
        return self.state is PullState.PULLING

    def _look_for_space(self) -> None:
        if self._may_pop:
            self._changed.unpark_all()

    async def _pop(self) -> float:
        """Pop once; return how many seconds to wait before the next time."""
        spec = self._spec()
        self.asked_at = trio.current_time()
        try:
            popped = await self._requests.pop(
                self.queue.broker_name, spec, hold=self._hold, queue_id=self.queue.queue_id
            )
        except RocketMQError as error:
            return WAIT_SECONDS[self._retry.failed(error)]
        self._retry.succeeded()
        if popped:
            now = trio.current_time()
            count_popped(self.popped_queue.counts, popped, now - self.asked_at)
            self._accept(popped, spec, now + spec.invisible)
            return 0.0
        return WAIT_SECONDS.get(after_nothing(self.asked_at), 0.0)

    def _accept(self, popped: list[PoppedMessage], spec: PopSpec, until: float) -> None:
        """Hand out what is wanted, and see to the rest."""
        sorted_out = triage(popped, spec.subscription, self._max_reconsume_times)
        for message in sorted_out.unwanted:
            self._outcomes.done(message)
        for message in sorted_out.exhausted:
            self._outcomes.send_to_dead_letters(message)
        if sorted_out.deliverable:
            self.popped_queue.put(sorted_out.deliverable, until)
            self._deliver(self.popped_queue)
