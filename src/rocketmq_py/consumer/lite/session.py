"""The session of a lite push consumer: its membership of the group, from joining to leaving."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLog, RetryLogs
from rocketmq_py.client.routes import Route
from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.group.membership import Membership
from rocketmq_py.consumer.group.operator_requests import OperatorRequests
from rocketmq_py.consumer.lite.requests import LiteRequests
from rocketmq_py.consumer.lite.settings import LiteTopicPushConsumerSettings
from rocketmq_py.consumer.lite.subscriber import LiteSubscriber
from rocketmq_py.consumer.lite.topic_queues import LiteTopicQueue, LiteTopicQueues
from rocketmq_py.consumer.pop.acknowledger import PopAcknowledger
from rocketmq_py.consumer.pop.pop_loop import PopLoop
from rocketmq_py.consumer.pop.requests import PopSpec
from rocketmq_py.consumer.pull.loop_table import LoopTable, start_loops
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.orderly_dispatch import OrderlyDispatch
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import ALL_QUEUES, SubscriptionData
from rocketmq_py.protocol.headers import INIT_FROM_MAX
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.consumer")

CHECKS_PER_INVISIBLE_TIME = 8
"""How often the session checks for messages to renew, in each invisible time."""
RELEASE_INTERVAL = 0.1
"""Seconds between two looks at handlers that have ended, after :meth:`LiteSession.stop`."""
ROUTE_PAUSE_SECONDS = 1.0
"""Seconds between attempts to get the route of the parent topic."""


class LiteSession:
    """One run of a lite push consumer.

    Args:
        client: sends the requests.
        config: the consumer's settings.
        membership: the membership of the group, which the session joins and leaves.
        requests: sends the requests of pop.
        subscriber: subscribes to the lite topics.
        subscription: the subscription to the parent topic.
        handle: the user's handler.
        hooks: called around each handler call.
        counters: the consumer's counters.

    Attributes:
        stopping: set by :meth:`stop`.
        ended: set when :meth:`run` has returned.
    """

    def __init__(
        self,
        client: ClientCore,
        config: LiteTopicPushConsumerSettings,
        membership: Membership,
        requests: LiteRequests,
        subscriber: LiteSubscriber,
        subscription: SubscriptionData,
        handle: Handler,
        *,
        hooks: ConsumerHooks,
        counters: ConsumerCounters,
    ) -> None:
        self._client = client
        self._config = config
        self._membership = membership
        self._requests = requests
        self._subscriber = subscriber
        self._spec = PopSpec(subscription, config.pop_batch_nums, config.invisible, INIT_FROM_MAX)
        self._handle = handle
        self._hooks = hooks
        self._counts = counters.of(config.parent)
        self._counters = counters
        self._acknowledger = PopAcknowledger(
            requests, config.group, max_reconsume_times=config.max_reconsume_times
        )
        self._loops: LoopTable[PopLoop[LiteTopicQueues]] = LoopTable()
        # The messages of each broker. They are kept when the broker leaves the route: handlers still process
        # them, and the broker may come back.
        self._queues: dict[MessageQueue, LiteTopicQueues] = {}
        self._pop_logs = RetryLogs(logger, "pop", "broker", group=config.group)
        self._renew_logs = RetryLogs(logger, "renewal of invisible messages", "broker", group=config.group)
        self._route_log = RetryLog(logger, "route lookup", group=config.group, topic=config.parent)
        self._route_changed = trio.Event()
        self._dispatch: OrderlyDispatch | None = None
        self.stopping: trio.Event = trio.Event()
        self.ended: trio.Event = trio.Event()

    async def run(self) -> None:
        """Consume until :meth:`stop` or until cancelled, then leave the group.

        After :meth:`stop`, other members get the lite topics whose handlers do not run, while the others end.

        When cancelled, the handlers are cancelled too, and their messages are redelivered.
        """
        try:
            self._membership.join()
            self._subscriber.resume()
            forget_routes = self._client.watch_routes(self._note_route)
            try:
                await self._consume()
            finally:
                forget_routes()
                await self._membership.leave(self._acknowledge_and_release)
        finally:
            self.ended.set()

    def stop(self) -> None:
        """Stop popping, and let :meth:`run` return when the running handlers have ended."""
        self.stopping.set()
        if self._dispatch is not None:
            self._dispatch.close()

    def cut_off(self) -> None:
        """Wait for the running handlers no longer, after :meth:`stop`."""
        if self._dispatch is not None:
            self._dispatch.cut_off()

    async def _consume(self) -> None:
        config = self._config
        async with open_nursery() as handlers:
            dispatch = self._dispatch = self._open_dispatch(handlers)
            self._acknowledger.open(handlers)
            handlers.start_soon(self._keep_invisible)
            async with open_nursery() as background:
                background.start_soon(self._keep_assigning, background)
                with OperatorRequests(
                    self._client,
                    config.group,
                    membership=self._membership,
                    properties=_properties(config),
                    counters=self._counters,
                    nursery=handlers,
                ).serve():
                    await self.stopping.wait()
                background.cancel_scope.cancel()
            handlers.start_soon(self._hand_over)
            await dispatch.drain_within(config.close_timeout, config.group)
            handlers.cancel_scope.cancel()

    def _open_dispatch(self, nursery: trio.Nursery) -> OrderlyDispatch:
        return OrderlyDispatch(
            nursery,
            self._handle,
            self._config,
            dead_letter_queue=self._acknowledger,
            hooks=self._hooks,
            suspender=self,
        )

    # Pop loops

    def _note_route(self, route: Route) -> None:
        if route.topic == self._config.parent:
            self._route_changed.set()

    async def _keep_assigning(self, nursery: trio.Nursery) -> None:
        """Pop from every broker of the parent topic, until cancelled."""
        parent = self._config.parent
        while True:
            self._route_changed = trio.Event()
            try:
                route = await self._client.routes.get(parent)
            except RocketMQError as error:
                self._route_log.failed(error)
                await trio.sleep(ROUTE_PAUSE_SECONDS)
                continue
            self._route_log.succeeded()
            self._assign(route, nursery)
            await self._route_changed.wait()

    def _assign(self, route: Route, nursery: trio.Nursery) -> None:
        names = {queue.broker_name for queue in route.read_queues}
        wanted = {MessageQueue(route.topic, name, ALL_QUEUES) for name in names}
        revoked = [loop for loop in self._loops if loop.queue not in wanted]
        for loop in revoked:
            loop.drop()
        self._loops.remove(revoked)
        start_loops(self._loops.add(route.topic, wanted, self._make_loop), nursery)

    def _make_loop(self, queue: MessageQueue) -> PopLoop[LiteTopicQueues]:
        config = self._config
        queues = self._queues.get(queue)
        if queues is None:
            queues = LiteTopicQueues(queue, self._counts, self._acknowledger)
            self._queues[queue] = queues
        return PopLoop(
            queues,
            self._requests,
            self,
            spec=self._spec,
            hold=config.pull_hold,
            threshold=config.pop_threshold,
            max_reconsume_times=config.max_reconsume_times,
            acknowledger=self._acknowledger,
            retry_log=self._pop_logs.of(queue.broker_name),
        )

    def spec_of(self, topic: str) -> PopSpec:
        """Return the parameters of a pop."""
        return self._spec

    def deliver(self, process_queue: LiteTopicQueues) -> None:
        """Dispatch the lite topics of a broker that have new messages."""
        assert self._dispatch is not None
        for queue in process_queue.take_new():
            assert queue.lock is not None
            # A handler call for an earlier delivery of the lite topic may hold the lock. The queue is offered
            # again when it ends.
            queue.lock.on_acquired = partial(self._dispatch.offer, queue)
            self._dispatch.offer(queue)

    # Outcomes

    async def _keep_invisible(self) -> None:
        """Renew the invisible time of all unacknowledged messages, until cancelled."""
        invisible = self._config.invisible
        async with open_nursery() as nursery:  # a slow broker must not delay the renewals of others
            while True:
                await trio.sleep(invisible / CHECKS_PER_INVISIBLE_TIME)
                due = trio.current_time() + invisible / 2
                for queues in self._queues.values():
                    for queue in queues.due_before(due):
                        queue.is_renewing = True
                        nursery.start_soon(self._renew, queue)

    async def _renew(self, queue: LiteTopicQueue) -> None:
        started, invisible = trio.current_time(), self._config.invisible
        broker_name = queue.queue.broker_name
        try:
            for message in queue.popped:
                async with queue.change_lock:
                    if message in queue:  # neither acknowledged nor suspended in the meantime
                        await self._requests.change_invisible(message, invisible)
        except RocketMQError as error:
            self._renew_logs.failed(broker_name, error, lite_topic=queue.lite_topic)
        else:
            queue.visible_at = started + invisible
            self._renew_logs.succeeded(broker_name)
        finally:
            queue.is_renewing = False

    async def suspend(
        self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], seconds: float
    ) -> float | None:
        """Forget the messages of a lite topic, and have the broker redeliver them after ``seconds``.

        Returns:
            The seconds to wait here, where that fails.
        """
        assert isinstance(queue, LiteTopicQueue)
        if queue.dropped:
            return None
        try:
            await self._redeliver(queue, seconds)
        except RocketMQError as error:
            logger.warning(
                "suspending a lite topic failed, waiting here instead: topic=%s lite_topic=%s error=%s",
                queue.queue.topic, queue.lite_topic, error,
            )  # fmt: skip
            queue.requeue_first(messages)
            return seconds
        return None

    async def _redeliver(self, queue: LiteTopicQueue, seconds: float) -> None:
        async with queue.change_lock:
            messages = queue.popped
            if messages:
                await self._requests.change_invisible(messages[0], seconds, suspend=True)
                self._counts.sent_back += len(messages)
            queue.drop()

    async def _hand_over(self) -> None:
        """Unsubscribe, and release the lite topics as their handlers end, until cancelled."""
        await self._subscriber.pause()
        while True:
            await self._release()
            await trio.sleep(RELEASE_INTERVAL)

    async def _acknowledge_and_release(self) -> None:
        await self._subscriber.pause()  # if no handler was running
        await self._acknowledger.flush()
        await self._release()

    async def _release(self) -> None:
        """Have brokers redeliver the messages whose handlers do not run now, instead of after their time."""
        async with open_nursery() as nursery:
            for queue, queues in self._queues.items():
                # A broker must not get an acknowledgement after the request to redeliver.
                if self._acknowledger.is_idle(queue.broker_name):
                    for one in queues.without_handler():
                        nursery.start_soon(self._release_one, one)

    async def _release_one(self, queue: LiteTopicQueue) -> None:
        try:
            await self._redeliver(queue, 0.0)
        except RocketMQError as error:
            self._renew_logs.failed(queue.queue.broker_name, error, lite_topic=queue.lite_topic)
            queue.drop()  # its messages are redelivered when their invisible time is over


def _properties(config: LiteTopicPushConsumerSettings) -> dict[str, str]:
    return {
        "consumeThreadMax": str(config.concurrency),
        "consumeMessageBatchMaxSize": str(config.batch_size or 1),
        "popInvisibleTime": str(round(config.invisible * 1000)),
        "popBatchNums": str(config.pop_batch_nums),
        "popThresholdForQueue": str(config.pop_threshold),
        "maxReconsumeTimes": str(config.max_reconsume_times),
        "PROP_CONSUMEORDERLY": "true",
    }
