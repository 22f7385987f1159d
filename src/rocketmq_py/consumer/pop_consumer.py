"""The pop consumer: messages are taken when they are asked for, and acknowledged one by one (5.x)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Unpack

import trio

from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.instance import ClientInstance, wall_clock_ms
from rocketmq_py.client.member import Member
from rocketmq_py.consumer.config import ConsumeFrom
from rocketmq_py.consumer.pop_calls import PopCalls, Wanted
from rocketmq_py.consumer.pop_config import PopConsumerConfig, PopConsumerOptions
from rocketmq_py.consumer.pop_message import PoppedMessage
from rocketmq_py.consumer.pop_places import TURN_SECONDS, Places
from rocketmq_py.consumer.pop_polls import Polls
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.names import check_topic
from rocketmq_py.protocol.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, SubscriptionData
from rocketmq_py.protocol.headers import INIT_FROM_MAX, INIT_FROM_MIN
from rocketmq_py.protocol.subscription import ALL, TAG, matches, subscribe

logger = logging.getLogger("rocketmq_py.consumer")

MAX_MESSAGES = 32
"""Messages that a broker gives at once."""
LAST_MOMENT_SECONDS = 0.1
"""Brokers answer a little before a pop's time is up; what is left then is not worth asking again."""
LEAVE_SHARE = 0.6
"""Part of ``close_timeout`` for taking leave; what is left is for the client, which closes afterwards."""


class PopConsumer(Member):
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

    Needs brokers of 5.x. The members of a group either all pop or are all PushConsumers.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        group: the consumer group. All its members must subscribe alike.
        rng: the source of randomness, for tests that replay a run.
        now_ms: the clock that subscriptions are dated with, epoch milliseconds.
        **options: the fields of PopConsumerConfig, and those of ClientConfig unless a client is shared.

    Entering raises:
        ConfigurationError: another consumer of the client that is shared is in the group.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
    """

    def __init__(
        self,
        client: ClientInstance | str | None = None,
        *,
        group: str,
        rng: random.Random | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        **options: Unpack[PopConsumerOptions],
    ) -> None:
        own, shared = split_options(options, PopConsumerConfig, ClientConfig)
        self.config = PopConsumerConfig(group=group, **own)
        super().__init__(client, rng, shared)
        self.close_timeout = self.config.close_timeout
        self._now_ms = now_ms
        self._calls = PopCalls(self.client, group)
        self._polls = Polls(self._pop)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._places = Places(self.client, group)
        self._is_member = False

    def subscribe(self, topic: str, expression: str = ALL, *, kind: str = TAG) -> None:
        """Consume a topic from now on, or other messages of it than before.

        Args:
            topic: the topic.
            expression: tags with ``||`` between, or ``*`` for all messages; for SQL92 a condition. What does
                not match is done with for the whole group.
            kind: ``"TAG"`` or ``"SQL92"``, which brokers have to allow (enablePropertyFilter).

        Raises:
            ConfigurationError: no topic can have this name, or the expression is empty.
        """
        self._subscriptions[check_topic(topic)] = subscribe(
            topic, expression, version_ms=self._now_ms(), kind=kind
        )
        self._announce()

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more; nothing happens if it is not subscribed."""
        self._subscriptions.pop(topic, None)
        self._announce()

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
            UnsupportedByBrokerError: a broker is older than 5.0; nothing was asked of it.
            BrokerError: a broker refuses for good, or no broker can serve this now.
            TopicNotFoundError, NoQueueError, NameServerError, ConnectError, ConnectionLostError,
            RequestTimeoutError, ProtocolError: no broker could be asked. A topic or broker that fails while
            others do not is logged.

        When cancelled, no message is lost: what a broker gives to the call is kept for the next one, and
        comes again from the broker if that is too late.
        """
        self._check_open()
        subscriptions = self._wanted(topic)
        if not 1 <= max_messages <= MAX_MESSAGES:
            raise ConfigurationError(f"max_messages is {max_messages}; 1 to {MAX_MESSAGES} are allowed")
        if not invisible > 0 or not wait >= 0:
            raise ConfigurationError(
                f"invisible is {invisible} and wait {wait}: the first must be above 0, the other 0 or more"
            )
        deadline = trio.current_time() + wait
        hold = 0.0
        while True:
            messages = await self._ask_all(
                subscriptions, max_messages, invisible, deadline=deadline, hold=hold
            )
            if messages or deadline - trio.current_time() < LAST_MOMENT_SECONDS:
                return messages
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
            by_broker.setdefault(message.receipt.broker_name, []).append(message)
        errors: list[RocketMQError] = []
        for broker_name, its_messages in by_broker.items():
            try:
                await self._calls.acknowledge(broker_name, its_messages)
            except RocketMQError as error:
                errors.append(error)
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
        if not seconds >= 0:
            raise ConfigurationError(f"seconds is {seconds}; it must be 0 or more")
        return await self._calls.change_invisible(message, seconds)

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
        places = await self._places.of(topics)
        errors: list[RocketMQError] = []
        for place in places:
            left = max(deadline - trio.current_time(), 0.0)
            if len(places) > 1:
                left = min(hold, left)
            wanted = Wanted(subscriptions[place.topic], count, invisible, self._init_mode)
            try:
                await self._polls.wait(self.nursery, place.broker_name, wanted, hold=left, topics=topics)
            except RocketMQError as error:
                self._check_open()
                self._places.failed(place, error)
                errors.append(error)
            else:
                self._check_open()
                self._places.answered(place)
            if messages := self._polls.take(topics, count):
                return messages
        if len(errors) == len(places):
            raise errors[0]
        return []

    def _wanted(self, topic: str | None) -> Mapping[str, SubscriptionData]:
        """Return the subscriptions of a topic, or of all: those of now, for one call."""
        topics = list(self._subscriptions) if topic is None else [topic]
        if not topics or topics[0] not in self._subscriptions:
            what = "nothing is" if topic is None else f"topic {topic!r} is not"
            raise ConfigurationError(f"{what} subscribed: call subscribe() before receive()")
        return {each: self._subscriptions[each] for each in topics}

    @property
    def _init_mode(self) -> int:
        return INIT_FROM_MIN if self.config.consume_from is ConsumeFrom.FIRST else INIT_FROM_MAX

    # What has come

    async def _pop(self, broker_name: str, wanted: Wanted, hold: float) -> list[PoppedMessage]:
        """Pop, and return what is to be handed out; see to the rest."""
        popped = await self._calls.pop(broker_name, wanted, hold=hold)
        limit = self.config.max_reconsume_times
        # Brokers compare only hashes of the tags.
        unwanted = [each for each in popped if not matches(wanted.subscription, each.tags)]
        given_up = [each for each in popped if each not in unwanted and each.reconsume_times > limit]
        if unwanted or given_up:
            self.nursery.start_soon(self._see_off, broker_name, unwanted, given_up)
        return [each for each in popped if each not in unwanted and each not in given_up]

    async def _see_off(
        self, broker_name: str, unwanted: list[PoppedMessage], given_up: list[PoppedMessage]
    ) -> None:
        """Have messages come no more; where that fails they come again, and it is tried again."""
        try:
            if unwanted:
                await self._calls.acknowledge(broker_name, unwanted)
            for message in given_up:
                await self._calls.bury(message, max_reconsume_times=self.config.max_reconsume_times)
                logger.warning(
                    "group %s: message %s of topic %s was delivered %d times: it is a dead letter now",
                    self.config.group, message.message_id, message.topic, message.reconsume_times,
                )  # fmt: skip
        except RocketMQError as error:
            logger.warning("group %s: messages are not done with: %s", self.config.group, error)

    # Membership

    async def _open(self) -> None:
        await super()._open()
        group = self.config.group
        if self.client.heartbeats.has_consumer(group):
            raise ConfigurationError(
                f"a consumer of this client is in group {group!r} already: "
                "give each its own client, by opening it with an address"
            )
        self.client.heartbeats.add_consumer(group, self._describe)
        self._is_member = True

    async def _close(self) -> None:
        if self._is_member:
            with trio.move_on_after(self.config.close_timeout * LEAVE_SHARE):
                await self.client.heartbeats.remove_consumer(self.config.group)
        await super()._close()

    def _announce(self) -> None:
        if self._is_member and self.is_open:
            self.client.heartbeats.send_soon()

    def _describe(self) -> ConsumerData:
        first = self.config.consume_from is ConsumeFrom.FIRST
        return ConsumerData(
            group_name=self.config.group,
            consume_type=ConsumeType.POP,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET if first else ConsumeFromWhere.LAST_OFFSET,
            subscription_data_set=tuple(self._subscriptions.values()),
        )
