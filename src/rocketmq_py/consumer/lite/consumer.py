"""The consumer of lite topics that receives messages on request."""

from __future__ import annotations

from typing import Unpack

import trio

from rocketmq_py.arguments import Duration, check_flag
from rocketmq_py.client.client import Client
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.consumer.lite.base import BaseLiteTopicConsumer
from rocketmq_py.consumer.lite.settings import LiteTopicConsumerOptions, LiteTopicConsumerSettings
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pop.receiver import (
    MAX_MESSAGES,
    ReceivingConsumer,
    check_popped,
    check_receive,
    check_seconds,
)
from rocketmq_py.consumer.pop.requests import PopSpec
from rocketmq_py.protocol.headers import INIT_FROM_MAX
from rocketmq_py.shown_settings import takes_settings


@takes_settings(LiteTopicConsumerSettings, ClientSettings)
class LiteTopicConsumer(ReceivingConsumer, BaseLiteTopicConsumer):
    """Receives messages of lite topics on request. Similar to the ``LiteSimpleConsumer`` of the gRPC clients.

    ::

        async with LiteTopicConsumer("127.0.0.1:9876", group="agents", parent="Sessions") as consumer:
            await consumer.subscribe_lite("session-42")
            for message in await consumer.receive():
                print(message.lite_topic, message.body)
                await consumer.ack(message)

    The messages of each lite topic arrive in order. The broker delivers no more messages of a lite topic to
    the group until the delivered ones are acknowledged, or their invisible time is over. Requires brokers
    from 5.5.0 on, with ``enableLmq`` and ``enableMultiDispatch``.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share, which may have one consumer of lite topics.
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        parent: the parent topic, of type LITE. Java: ``bindTopic``.
        **options: the settings of a LiteTopicConsumer, and those of a Client unless one is shared.

    Entering raises:
        ConfigurationError: the shared client has another consumer of the group, or of lite topics.

    Raises:
        ConfigurationError: an option is unknown, given twice, or out of range, or ``group`` is missing.
    """

    _settings: LiteTopicConsumerSettings

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        parent: str,
        **options: Unpack[LiteTopicConsumerOptions],
    ) -> None:
        super().__init__(
            LiteTopicConsumerSettings, client, group=group, options={**options, "parent": parent}
        )
        self._create_receiver(self._requests)

    @property
    def settings(self) -> LiteTopicConsumerSettings:
        """The settings."""
        return self._settings

    async def receive(
        self, *, max_messages: int = MAX_MESSAGES, invisible: Duration = 60.0, wait: Duration = 15.0
    ) -> list[PoppedMessage]:
        """Receive messages of the subscribed lite topics as soon as there are any.

        The brokers are asked one after the other. A single broker holds the request until messages arrive. If
        there are several brokers, each holds it for at most one second.

        Args:
            max_messages: the maximum number of messages, 1 to 32.
            invisible: seconds until unacknowledged messages are redelivered.
            wait: seconds to wait for the first message. 0 does not wait.

        Returns:
            The messages, in the order of each lite topic. Empty if none arrived in time.

        Raises:
            ConfigurationError: an argument is out of range.
            ClosedError: the consumer is not open.
            UnsupportedByBrokerError: a broker is older than 5.5.0.
            BrokerError: a broker refused with an error that is not retriable, or all brokers failed. If the
                group is not bound to the parent topic, the broker answers INVALID_PARAMETER.
            TopicNotFoundError, NoQueueError, NameServerError, ConnectError, ConnectionLostError,
            RequestTimeoutError, ProtocolError: all brokers failed. The errors of single brokers are logged.

        When cancelled, no message is lost. Messages that arrive for this call are returned by the next one,
        or redelivered by the broker if the next one comes too late.
        """
        self._check_open()
        max_messages, invisible, wait = check_receive(max_messages, invisible, wait)
        spec = PopSpec(self._parent_subscription, max_messages, invisible, INIT_FROM_MAX)
        specs = {self._settings.parent: spec}
        return await self._receiver.receive(specs, max_messages, wait, trio.current_time())

    async def ack(self, *messages: PoppedMessage) -> None:
        """Acknowledge messages, so that they are not redelivered.

        Each message takes a request of its own. All requests run at once. An acknowledgement after the
        invisible time has no effect, and neither has a repeated one.

        Raises:
            ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: a request
            failed. Some messages may be acknowledged. Acknowledge all of them again. The code NO_MESSAGE
            means that a lite topic has expired, and its messages with it.

        When cancelled, some messages may be acknowledged.
        """
        self._check_open()
        for message in messages:
            check_popped(message)
        await self._receiver.acknowledge(messages)

    async def change_invisible(
        self, message: PoppedMessage, invisible: Duration, *, suspend: bool = False
    ) -> PoppedMessage:
        """Change the time at which a message is redelivered.

        Args:
            message: an unacknowledged message.
            invisible: seconds from now until the redelivery. The messages of its lite topic that were
                received with it keep their times, and the lite topic waits for the last of them.
            suspend: applies the time to all messages of its lite topic that were received with it, and does
                not count their redelivery in ``reconsume_times``.

        Returns:
            The message with its new receipt handle. The message passed in can still be acknowledged.

        Raises:
            ConfigurationError: ``invisible`` is negative. ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: the request
            failed. After a timeout or a lost connection, the time may have changed. The code NO_MESSAGE
            means that the lite topic has expired, and the message with it.

        When cancelled, the time may have changed.
        """
        self._check_open()
        check_popped(message)
        seconds = check_seconds("invisible", invisible)
        return await self._receiver.change_invisible(message, seconds, suspend=check_flag(suspend, "suspend"))
