"""The pop consumer, which receives messages on request and acknowledges them one by one (5.x)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Unpack

import trio

from rocketmq_py.arguments import Duration, optional
from rocketmq_py.client.client import Client
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.consumer.group.base_consumer import GroupConsumer
from rocketmq_py.consumer.group.concurrent_queries import query_lag
from rocketmq_py.consumer.group.membership import Membership
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pop.receiver import (
    MAX_MESSAGES,
    ReceivingConsumer,
    check_popped,
    check_receive,
    check_seconds,
)
from rocketmq_py.consumer.pop.requests import PopRequests, PopSpec
from rocketmq_py.consumer.pop.settings import PopConsumerOptions, PopConsumerSettings
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_topic
from rocketmq_py.position import Position
from rocketmq_py.protocol.bodies import ConsumeType, SubscriptionData
from rocketmq_py.protocol.headers import INIT_FROM_MAX, INIT_FROM_MIN
from rocketmq_py.shown_settings import takes_settings


@takes_settings(PopConsumerSettings, ClientSettings)
class PopConsumer(ReceivingConsumer, GroupConsumer):
    """Receives messages of a group on request. Similar to the ``SimpleConsumer`` of Java's 5.x client.

    ::

        async with PopConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            for message in await consumer.receive():
                ...
                await consumer.ack(message)

    A received message is invisible to the other members for a time. Brokers track the acknowledgement of each
    message, so no queues are assigned, and a group may have more members than queues. A message that is not
    acknowledged in time is redelivered to any member of the group. After ``max_reconsume_times`` redeliveries
    it becomes a dead letter.

    With ``orderly=True`` the messages of each queue arrive in order, and the broker delivers no more messages
    of a queue until the delivered ones are acknowledged.

    Requires brokers of 5.x. The members of a group must be either all PopConsumers or all PushConsumers.
    PushConsumers can pop as well, see AllocateByBroker.

    Args:
        client: name servers as ``host:port;host:port``, or an open client to share. None reads NAMESRV_ADDR,
            or uses 127.0.0.1:9876 if that is not set.
        group: the consumer group. All members must have the same subscriptions.
        **options: the settings of a PopConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or invalid.

    Entering raises:
        ConfigurationError: another consumer of the shared client is in the group.
    """

    _settings: PopConsumerSettings

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        **options: Unpack[PopConsumerOptions],
    ) -> None:
        super().__init__(PopConsumerSettings, client, group=group, options=options)
        self._create_receiver(PopRequests(self._client, self._group, self._counters))
        self._membership = Membership(
            self._client, self._group, self._subscriptions, ConsumeType.POP, self._settings.consume_from
        )
        self._stopping = trio.Event()

    @property
    def settings(self) -> PopConsumerSettings:
        """The settings."""
        return self._settings

    async def receive(
        self,
        topic: str | None = None,
        *,
        max_messages: int = MAX_MESSAGES,
        invisible: Duration = 60.0,
        wait: Duration = 15.0,
    ) -> list[PoppedMessage]:
        """Receive messages as soon as there are any. Unacknowledged messages are redelivered.

        The brokers of the topics are asked one after the other. A single broker holds the request until
        messages arrive. If there are several brokers, each holds it for at most one second.

        Args:
            topic: a subscribed topic. None receives from all subscribed topics.
            max_messages: the maximum number of messages, 1 to 32. Fewer may be returned even if the brokers
                have more.
            invisible: seconds until unacknowledged messages are redelivered.
            wait: seconds to wait for the first message. 0 does not wait.

        Returns:
            The messages, in the order of each queue. Empty if none arrived in time.

        Raises:
            ConfigurationError: an argument is out of range, or the topic is not subscribed.
            ClosedError: the consumer is not open.
            SqlFilterRefusedError: a broker does not accept a subscribed SQL filter.
            UnsupportedByBrokerError: a broker is older than 5.0 or behind a proxy, or all topics are static.
            BrokerError: a broker refused with an error that is not retriable, or all brokers failed.
            TopicNotFoundError, NoQueueError, NameServerError, ConnectError, ConnectionLostError,
            RequestTimeoutError, ProtocolError: all brokers failed. If only some topics or brokers fail, their
            errors are logged. Brokers that cannot be reached, or limit the rate (FlowControlError), are an
            error only after ``wait`` seconds.

        When cancelled, no message is lost. Messages that arrive for this call are returned by the next one,
        or redelivered by the broker if the next one comes too late.
        """
        self._check_open()
        optional(check_topic, topic, "topic")
        max_messages, invisible, wait = check_receive(max_messages, invisible, wait)
        started = trio.current_time()
        subscriptions = await self._subscriptions_of(topic)
        specs = {
            name: PopSpec(subscription, max_messages, invisible, self._init_mode, self._settings.orderly)
            for name, subscription in subscriptions.items()
        }
        return await self._receiver.receive(specs, max_messages, wait, started)

    async def ack(self, *messages: PoppedMessage) -> None:
        """Acknowledge messages, so that they are not redelivered.

        Messages of the same broker are acknowledged in one request. An acknowledgement after the invisible
        time has no effect, and neither has a repeated one.

        Raises:
            ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: a request
            failed. Some messages may be acknowledged. Acknowledge all of them again.

        When cancelled, some messages may be acknowledged.
        """
        self._check_open()
        for message in messages:
            check_popped(message)
        await self._receiver.acknowledge(messages)

    async def change_invisible(self, message: PoppedMessage, invisible: Duration) -> PoppedMessage:
        """Change the time at which a message is redelivered.

        Args:
            message: an unacknowledged message.
            invisible: seconds from now until the redelivery.

        Returns:
            The message with its new receipt handle. The message passed in cannot be acknowledged any more.

        Raises:
            ConfigurationError: ``invisible`` is negative. ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: the request
            failed. After a timeout or a lost connection, the time may have changed.

        When cancelled, the time may have changed.
        """
        self._check_open()
        check_popped(message)
        return await self._receiver.change_invisible(message, check_seconds("invisible", invisible))

    async def _reject(self, message: PoppedMessage) -> None:
        """Make a message a dead letter at once. For integrations. Raises as :meth:`ack`."""
        self._check_open()
        await self._receiver.reject(message)

    async def _subscriptions_of(self, topic: str | None) -> Mapping[str, SubscriptionData]:
        """Return the current subscriptions of a topic, or of all topics for None."""
        subscribed = self._subscriptions.topics
        topics = subscribed if topic is None else [topic]
        if not topics or topics[0] not in subscribed:
            missing = "no topic is" if topic is None else f"topic {topic!r} is not"
            raise ConfigurationError(f"{missing} subscribed: call subscribe() before receive()")
        failed = await self._subscriptions.check_filters(topics)
        accepted = {each: self._subscriptions[each] for each in topics if each in self._subscriptions}
        if accepted:
            return accepted
        if failed:
            raise next(iter(failed.values()))
        return await self._subscriptions_of(topic)  # they were changed during the check

    @property
    def _init_mode(self) -> int:
        return INIT_FROM_MIN if self._settings.consume_from == Position.earliest else INIT_FROM_MAX

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Ask the brokers for the group's lag in each queue.

        Received but unacknowledged messages may or may not count, because brokers commit the offset soon
        after the delivery. Messages in the group's retry topic do not count.

        Raises:
            ClosedError: the consumer is not open.
            TopicNotFoundError, NameServerError, BrokerError, NoQueueError, ConnectError, ConnectionLostError,
            RequestTimeoutError: a request failed.
        """
        self._check_open()
        # A copy of the topics, because another task may subscribe in the meantime.
        routes = [await self._client.routes.find(topic) for topic in list(self._subscriptions)]
        brokers, group = self._client.brokers, self._settings.group
        return await query_lag(
            self._client,
            [queue for route in routes for queue in route.read_queues],
            partial(brokers.committed_offset, group, zero_if_new=False),
        )

    # Membership

    async def _open(self) -> None:
        await super()._open()
        self._nursery.start_soon(self._membership.keep_comparing_subscriptions)

    def _subscription_changed(self, _: str) -> None:
        if self._membership.joined.is_set():
            self._client.heartbeats.request_round()
