"""The test broker: delivers messages to handlers in memory."""

from __future__ import annotations

import time
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload
from unittest.mock import AsyncMock

import anyio
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from rocketmq_py.integrations.faststream.broker import RocketMQBroker
from rocketmq_py.integrations.faststream.commands import RocketMQPublishCommand
from rocketmq_py.integrations.faststream.messages import RawMessage
from rocketmq_py.integrations.faststream.producing import RocketMQProducer
from rocketmq_py.integrations.faststream.publisher import DefaultPublisher
from rocketmq_py.integrations.faststream.subscriber import RocketMQSubscriber
from rocketmq_py.message import Message, ReceivedMessage, SendResult, SendStatus
from rocketmq_py.properties import encode_properties
from rocketmq_py.property_names import KEY_SEPARATOR, KEYS, PRIORITY, SHARDING_KEY, TAGS, UNIQUE_KEY
from rocketmq_py.protocol.subscription import matches

DEFAULT_TIMEOUT = 3.0
"""Seconds that a request without a timeout waits for its handler."""


class TestRocketMQBroker(TestBroker[RocketMQBroker, EnterType], broker=RocketMQBroker):
    """Delivers what a broker publishes to its own handlers, without a connection.

    ::

        async with TestRocketMQBroker(broker) as test_broker:
            await test_broker.publish({"order": 7}, "Orders")
            bill.mock.assert_called_once_with({"order": 7})

    Handlers run inside of ``publish``, which raises their exceptions. A message goes to one subscriber of
    each group whose tags match. Delays, SQL filters and redeliveries have no effect.
    ``rocketmq_py.testing.run_broker`` has a broker with all of these.

    Args:
        *brokers: the brokers.
        with_real: use the brokers' connections, and only record the calls of handlers.
        connect_only: do not start the subscribers.
    """

    @overload
    def __init__(
        self: TestRocketMQBroker[RocketMQBroker],
        broker: RocketMQBroker,
        /,
        *,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: TestRocketMQBroker[tuple[RocketMQBroker, ...]],
        *brokers: RocketMQBroker,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    def __init__(
        self, *brokers: RocketMQBroker, with_real: bool = False, connect_only: bool | None = None
    ) -> None:
        super().__init__(*brokers, with_real=with_real, connect_only=connect_only)

    def create_publisher_fake_subscriber(
        self, broker: RocketMQBroker, publisher: DefaultPublisher
    ) -> tuple[RocketMQSubscriber, bool]:
        """Return a subscriber of a publisher's topic, and whether it is one of the program's own."""
        for subscriber in subscribers_of(self.brokers):
            if publisher.topic in subscriber.topics:
                return subscriber, True
        topic = publisher.topic.removeprefix(broker.config.prefix)
        return (
            broker.subscriber(topic, group=f"test-of-{topic}"[:120], batch=publisher.batch, persistent=False),
            False,
        )

    @contextmanager
    def _patch_producer(self, broker: RocketMQBroker) -> Generator[None, None, None]:
        producer = InMemoryProducer(broker, self.brokers)
        with change_producer(broker.config.broker_config, producer):
            yield

    async def _fake_connect(  # type: ignore[override]
        self, broker: RocketMQBroker, *args: Any, **kwargs: Any
    ) -> AsyncMock:
        return AsyncMock()


class InMemoryProducer(RocketMQProducer):
    """Passes messages to the subscribers of brokers.

    Args:
        broker: the broker that publishes.
        brokers: the brokers whose subscribers receive.
    """

    def __init__(self, broker: RocketMQBroker, brokers: Sequence[RocketMQBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self.set_encoding(broker.config.fd_config._serializer, broker.config.broker_codec)
        self._brokers = brokers
        self._sent = 0

    async def publish(self, cmd: RocketMQPublishCommand) -> SendResult:
        """Have the message processed. Raises the exception of a handler."""
        [result] = await self._deliver(cmd.destination, [await self.encode_message(cmd)])
        return result

    async def publish_batch(self, cmd: RocketMQPublishCommand) -> Sequence[SendResult]:
        """Have the messages processed. Raises the exception of a handler."""
        messages = await self.encode_batch(cmd)
        return await self._deliver(cmd.destination, messages) if messages else ()

    async def request(self, cmd: RocketMQPublishCommand) -> ReceivedMessage:
        """Have the message processed, and return the handler's result as the reply.

        Raises:
            SubscriberNotFound: no subscriber matches.
            TimeoutError: the handler takes too long.
        """
        message = self._received(await self.encode_message(cmd))
        for subscriber in self._matching(cmd.destination, [message]):
            with anyio.fail_after(cmd.timeout or DEFAULT_TIMEOUT):
                response = await subscriber.process_message(_item(subscriber, [message]))
            reply = RocketMQPublishCommand.from_cmd(response.as_publish_command())
            reply.destination = cmd.destination
            reply.correlation_id = reply.correlation_id or cmd.correlation_id
            sent = await self.encode_message(reply)
            # Replies have only a body and properties, see Producer.reply().
            return self._received(Message(sent.topic, sent.body, properties=sent.properties))
        raise SubscriberNotFound(f"no subscriber receives this request to {cmd.destination}")

    async def _deliver(self, topic: str, messages: Sequence[Message]) -> list[SendResult]:
        received = [self._received(message) for message in messages]
        for subscriber in self._matching(topic, received):
            own = [message for message in received if _matches(subscriber, message)]
            if subscriber.subscription.batch:
                await subscriber.process_message(_item(subscriber, own))
            else:
                for message in own:
                    await subscriber.process_message(message)
        return [
            SendResult(
                SendStatus.SEND_OK,
                message.message_id,
                message.offset_message_id,
                message.queue,
                message.queue_offset,
            )
            for message in received
        ]

    def _matching(self, topic: str, messages: Sequence[ReceivedMessage]) -> Iterator[RocketMQSubscriber]:
        """Yield one subscriber of each group that receives one of the messages."""
        groups: set[str] = set()
        for subscriber in subscribers_of(self._brokers):
            group = subscriber.subscription.group
            if group in groups or topic not in subscriber.topics:
                continue
            if any(_matches(subscriber, message) for message in messages):
                groups.add(group)
                yield subscriber

    def _received(self, message: Message) -> ReceivedMessage:
        """Return a message as a consumer receives it."""
        self._sent += 1
        own = {UNIQUE_KEY: f"{self._sent:032X}"}
        if message.tags:
            own[TAGS] = message.tags
        if message.keys:
            own[KEYS] = KEY_SEPARATOR.join(message.keys)
        if message.sharding_key:
            own[SHARDING_KEY] = message.sharding_key
        if message.priority is not None:
            own[PRIORITY] = str(message.priority)
        now_ms = int(time.time() * 1000)
        return ReceivedMessage(
            topic=message.topic,
            body=message.body,
            broker_name="test-broker",
            queue_id=0,
            queue_offset=self._sent - 1,
            commit_log_offset=self._sent,
            flag=message.flag,
            system_flag=0,
            born_time_ms=now_ms,
            born_address=bytes(8),
            store_time_ms=now_ms,
            store_address=bytes(8),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=zlib.crc32(message.body),
            store_size=len(message.body),
            encoded_properties=encode_properties({**message.properties, **own}).encode(),
        )


def subscribers_of(brokers: Sequence[RocketMQBroker]) -> Iterator[RocketMQSubscriber]:
    """Yield the subscribers of brokers."""
    for broker in brokers:
        for subscriber in broker.subscribers:
            assert isinstance(subscriber, RocketMQSubscriber)
            yield subscriber


def _matches(subscriber: RocketMQSubscriber, message: ReceivedMessage) -> bool:
    return matches(subscriber.subscription.filter(message.topic), message._encoded_properties)


def _item(subscriber: RocketMQSubscriber, messages: Sequence[ReceivedMessage]) -> RawMessage:
    return tuple(messages) if subscriber.subscription.batch else messages[0]
