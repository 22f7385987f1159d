"""The pop consumer: messages are taken when they are asked for, and acknowledged one by one (5.x)."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Unpack

import trio

from rocketmq_py.arguments import check_integer, check_timeout, optional
from rocketmq_py.client.client import Client, wall_clock_ms
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.config import ConsumeFrom
from rocketmq_py.consumer.group.broker_queries import query_lag
from rocketmq_py.consumer.group.broker_requests import BrokerRequests
from rocketmq_py.consumer.group.consumer import GroupConsumer
from rocketmq_py.consumer.group.membership import Membership
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pop.brokers import TURN_SECONDS, PopTargets
from rocketmq_py.consumer.pop.config import PopConsumerConfig, PopConsumerOptions
from rocketmq_py.consumer.pop.messages import PoppedMessage, Triage, count_popped, triage
from rocketmq_py.consumer.pop.polls import Polls
from rocketmq_py.consumer.pop.requests import PopRequests, PopSpec
from rocketmq_py.consumer.pull.flow_control import WAIT_SECONDS
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_topic
from rocketmq_py.protocol.bodies import ConsumeType, SubscriptionData
from rocketmq_py.protocol.headers import INIT_FROM_MAX, INIT_FROM_MIN

logger: Final = logging.getLogger("rocketmq_py.consumer")

MAX_MESSAGES = 32
"""Messages that a broker gives at once."""
LAST_MOMENT_SECONDS = 0.1
"""Brokers answer a little before a pop's time is up; what is left then is not worth asking again."""


class PopConsumer(GroupConsumer):
    """Takes a group's messages, each of which is then its own for a time. Java's nearest: ``SimpleConsumer``.

    ::

        async with PopConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            for message in await consumer.receive():
                ...
                await consumer.ack(message)

    Brokers remember what each message's consumer has done with it: no queues are shared out, and there may be
    more members than queues. A message that is not acknowledged in time comes again, to any member of the
    group, as often as ``max_reconsume_times`` says; then it goes to the group's dead letters.

    With ``orderly=True`` the messages of each queue come in their order, and no more of them before those
    that came are acknowledged.

    Needs brokers of 5.x. The members of a group either all pop or are all PushConsumers, which may be made to
    pop as well: see AllocateByBroker.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        *configs: a PopConsumerConfig, and a ClientConfig unless a client is shared; instead of their fields
            as keywords, or beside some of them.
        group: the consumer group. All its members must subscribe alike.
        rng: the source of randomness, for tests that replay a run.
        now_ms: the clock that subscriptions are dated with, epoch milliseconds.
        **options: the fields of PopConsumerConfig, and those of ClientConfig unless a client is shared.

    Entering raises:
        ConfigurationError: another consumer of the client that is shared is in the group.

    Raises:
        ConfigurationError: an option is unknown, given twice, or outside of what is allowed.
    """

    config: PopConsumerConfig

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: PopConsumerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        **options: Unpack[PopConsumerOptions],
    ) -> None:
        super().__init__(
            PopConsumerConfig, client, configs=configs, group=group, options=options, rng=rng, now_ms=now_ms
        )
        self._requests = PopRequests(self.client, self._group)
        self._polls = Polls(self._pop)
        self._targets = PopTargets(self.client, self._group)
        self._membership = Membership(
            self.client, self._group, self._subscriptions, ConsumeType.POP, self.config.consume_from
        )
        self._acknowledge_logs = RetryLogs(logger, "acknowledgement", "broker", group=self._group)
        self._stopping = trio.Event()
        self._left = trio.Event()

    async def receive(
        self,
        topic: str | None = None,
        *,
        max_messages: int = MAX_MESSAGES,
        invisible: float = 60.0,
        wait: float = 15.0,
    ) -> list[PoppedMessage]:
        """Take messages, as soon as there are any; each comes again if it is not acknowledged in time.

        The brokers are asked in turn, those of all topics. One broker is asked once, and holds the request as
        long as it has nothing; where there are several, each holds it for a second at the most.

        Args:
            topic: one of those that are subscribed; None for any.
            max_messages: how many at the most, 1 to 32. There may be more on the brokers than come.
            invisible: seconds until what is not acknowledged comes again.
            wait: seconds to wait for the first message. 0 takes what there is.

        Returns:
            The messages, in the order of each queue; none if none came in time.

        Raises:
            ConfigurationError: an argument is outside of what is allowed, or nothing is subscribed.
            ClosedError: the consumer is not open.
            SqlFilterRefusedError: a broker does not accept a SQL filter that is subscribed.
            UnsupportedByBrokerError: a broker is older than 5.0; nothing was asked of it.
            BrokerError: a broker refuses for good, or no broker can serve this now.
            TopicNotFoundError, NoQueueError, NameServerError, ConnectError, ConnectionLostError,
            RequestTimeoutError, ProtocolError: no broker could be asked. A topic or broker that fails while
            others do not is logged.

        When cancelled, no message is lost: what a broker gives to the call is kept for the next one, and
        comes again from the broker if that is too late.
        """
        self._check_open()
        optional(check_topic, topic, "topic")
        max_messages = check_integer(max_messages, "max_messages", lowest=1, highest=MAX_MESSAGES)
        _check_seconds("invisible", invisible)
        _check_seconds("wait", wait)
        if not invisible:
            raise ConfigurationError("invisible is 0; it must be above 0")
        began = trio.current_time()
        deadline = began + wait
        subscriptions = await self._wanted(topic)
        hold = 0.0
        now = began
        while True:
            round_began = now
            messages = await self._ask_all(
                subscriptions, max_messages, invisible, deadline=deadline, hold=hold
            )
            now = trio.current_time()
            if messages and self._hooks.all:
                queues = [message.queue for message in messages]
                return await self._hooks.call_for_received(messages, queues, now - began)
            if messages or deadline - now < LAST_MOMENT_SECONDS:
                return messages
            if hold:  # a broker that does not hold pops answers at once, and shall not be asked without end
                await trio.sleep_until(round_began + WAIT_SECONDS[PullState.STALLED])
                now = trio.current_time()
            hold = TURN_SECONDS

    async def ack(self, *messages: PoppedMessage) -> None:
        """Say that messages were consumed: they do not come again.

        Those of one broker go in one request. One that is late changes nothing: its message has come again,
        or will. Acknowledging twice does no harm.

        Raises:
            ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: a broker did
            not take it. Others may have: acknowledge all of them again.

        When cancelled, some may be acknowledged.
        """
        self._check_open()
        by_broker: dict[str, list[PoppedMessage]] = {}
        for message in messages:
            _check_popped(message)
            by_broker.setdefault(message.receipt.broker_name, []).append(message)
        errors: list[RocketMQError] = []
        for broker_name, its_messages in by_broker.items():
            try:
                await self._requests.acknowledge(broker_name, its_messages)
            except RocketMQError as error:
                errors.append(error)
            else:
                for message in its_messages:
                    self._statistics.of(message.topic).done += 1
        if errors:
            raise errors[0]

    async def change_invisible(self, message: PoppedMessage, seconds: float) -> PoppedMessage:
        """Have a message come again later or sooner than it would.

        Args:
            message: one that is not acknowledged.
            seconds: from now until it comes again.

        Returns:
            The message to go on with: what was returned before cannot be acknowledged any more.

        Raises:
            ConfigurationError: ``seconds`` is below 0. ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: the broker did
            not take it; if no answer came, either of the two times may hold.

        When cancelled, either of the two times may hold.
        """
        self._check_open()
        _check_popped(message)
        _check_seconds("seconds", seconds)
        changed = await self._requests.change_invisible(message, seconds)
        self._statistics.of(message.topic).sent_back += 1
        return changed

    # Whom to ask

    async def _ask_all(
        self,
        subscriptions: Mapping[str, SubscriptionData],
        count: int,
        invisible: float,
        *,
        deadline: float,
        hold: float,
    ) -> list[PoppedMessage]:
        """Ask each broker of the topics once, until messages come."""
        topics = subscriptions.keys()
        await trio.lowlevel.checkpoint()
        if messages := self._polls.take(topics, count):
            return messages
        targets = await self._targets.of(topics)
        errors: list[RocketMQError] = []
        for target in targets:
            left = max(deadline - trio.current_time(), 0.0)
            if len(targets) > 1:
                left = min(hold, left)
            spec = PopSpec(
                subscriptions[target.topic], count, invisible, self._init_mode, self.config.orderly
            )
            try:
                await self._polls.wait(self.nursery, target.broker_name, spec, hold=left, topics=topics)
            except RocketMQError as error:
                self._check_open()
                self._targets.failed(target, error)
                errors.append(error)
            else:
                self._check_open()
                self._targets.answered(target)
            if messages := self._polls.take(topics, count):
                return messages
        if len(errors) == len(targets):
            raise errors[0]
        return []

    async def _wanted(self, topic: str | None) -> Mapping[str, SubscriptionData]:
        """Return the subscriptions of a topic, or of all: those of now, for one call."""
        subscribed = self._subscriptions.topics
        topics = subscribed if topic is None else [topic]
        if not topics or topics[0] not in subscribed:
            what = "nothing is" if topic is None else f"topic {topic!r} is not"
            raise ConfigurationError(f"{what} subscribed: call subscribe() before receive()")
        unsettled = await self._subscriptions.check_filters(topics)
        accepted = {each: self._subscriptions[each] for each in topics if each in self._subscriptions}
        if not accepted and unsettled:
            raise next(iter(unsettled.values()))
        return accepted

    @property
    def _init_mode(self) -> int:
        return INIT_FROM_MIN if self.config.consume_from is ConsumeFrom.FIRST else INIT_FROM_MAX

    # What has come

    async def _pop(self, broker_name: str, spec: PopSpec, hold: float) -> list[PoppedMessage]:
        """Pop, and return what is to be handed out; see to the rest."""
        began = trio.current_time()
        popped = await self._requests.pop(broker_name, spec, hold=hold)
        if popped:
            counts = self._statistics.of(spec.subscription.topic)
            count_popped(counts, popped, trio.current_time() - began)
        sorted_out = triage(popped, spec.subscription, self.config.max_reconsume_times)
        if sorted_out.unwanted or sorted_out.exhausted:
            self.nursery.start_soon(self._see_off, broker_name, sorted_out)
        return sorted_out.deliverable

    async def _see_off(self, broker_name: str, sorted_out: Triage) -> None:
        """Have messages come no more; where that fails they come again, and it is tried again."""
        try:
            if sorted_out.unwanted:
                await self._requests.acknowledge(broker_name, sorted_out.unwanted)
            for message in sorted_out.exhausted:
                await self._requests.send_to_dead_letters(
                    message,
                    failures=message.reconsume_times,
                    max_reconsume_times=self.config.max_reconsume_times,
                )
                counts = self._statistics.of(message.topic)
                counts.failed += 1
                counts.sent_back += 1
        except RocketMQError as error:
            self._acknowledge_logs.failed(broker_name, error)
        else:
            self._acknowledge_logs.succeeded(broker_name)

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Ask the brokers how many messages of each queue the group has not come to.

        What some member has and has not acknowledged may be among them or not: brokers commit what they gave
        as soon as they have made a note of it. Those in the group's retry topic are not.

        Raises:
            ClosedError: the consumer is not open.
            TopicNotFoundError, NameServerError, BrokerError, NoQueueError, ConnectError, ConnectionLostError,
            RequestTimeoutError: nobody can tell.
        """
        self._check_open()
        routes = [await self.client.routes.get(topic) for topic in self._subscriptions]
        brokers, group = self.client.brokers, self.config.group
        return await query_lag(
            self.client,
            [queue for route in routes for queue in route.read_queues],
            partial(brokers.committed_offset, group, zero_if_new=False),
        )

    # Membership

    async def _open(self) -> None:
        await super()._open()
        await self.nursery.start(self._be_member)

    async def _be_member(self, *, task_status: trio.TaskStatus[None]) -> None:
        self._membership.join()
        self.nursery.start_soon(self._membership.keep_comparing_subscriptions)
        try:
            with BrokerRequests(
                self.client,
                self.config.group,
                describe=self._membership.describe,
                properties={"maxReconsumeTimes": str(self.config.max_reconsume_times)},
                statistics=self._statistics,
                nursery=self.nursery,
            ).serve():
                task_status.started()
                await self._stopping.wait()
        finally:
            await self._membership.leave(self.close_timeout)
            self._left.set()

    async def _close(self) -> None:
        self._stopping.set()
        await self._left.wait()
        await super()._close()

    def _subscription_changed(self, _: str) -> None:
        if self._membership.joined.is_set() and self.is_open:
            self.client.heartbeats.submit()


def _check_seconds(name: str, seconds: float | None) -> None:
    """Refuse what cannot be put on the wire as a time."""
    check_timeout(seconds, name)
    if seconds is None or seconds == math.inf:
        raise ConfigurationError(f"{name} is {seconds!r}; it must be a number of seconds")


def _check_popped(message: object) -> None:
    if not isinstance(message, PoppedMessage):
        raise ConfigurationError(
            f"a {type(message).__name__} is no message that receive() returned; of a list, use ack(*messages)"
        )
