"""The push consumer: messages come to the handler by themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Unpack

from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.instance import ClientInstance, wall_clock_ms
from rocketmq_py.client.member import Member
from rocketmq_py.consumer.config import PushConsumerConfig, PushConsumerOptions
from rocketmq_py.consumer.handling import Handler
from rocketmq_py.consumer.session import Session
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_topic, retry_topic
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.protocol.subscription import ALL, subscribe

HALF_AN_HOUR_MS = 30 * 60 * 1000


class PushConsumer(Member):
    """Consumes as a member of a group, which shares the topics' queues. Java: ``DefaultMQPushConsumer``.

    ::

        async with PushConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            await consumer.run(handle)  # async def handle(message); raise = deliver again

    Each message goes to one member of the group, at least once: again if the handler raises, and again
    if it was handled but its offset could not be committed any more.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        group: the consumer group. All its members must subscribe alike.
        rng: the source of randomness, for tests that replay a run.
        now_ms: the clock that subscriptions are dated with, epoch milliseconds.
        **options: the fields of PushConsumerConfig, and those of ClientConfig unless a client is shared.

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
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        own, shared = split_options(options, PushConsumerConfig, ClientConfig)
        self.config = PushConsumerConfig(group=group, **own)
        super().__init__(client, rng, shared)
        self.close_timeout = self.config.close_timeout
        self._now_ms = now_ms
        self._made_ms = now_ms()
        self._session: Session | None = None
        self._paused = False
        retries = retry_topic(group)
        self._subscriptions: dict[str, SubscriptionData] = {
            retries: subscribe(retries, ALL, version_ms=self._made_ms)
        }

    def subscribe(self, topic: str, expression: str = ALL) -> None:
        """Consume a topic from now on, or other tags of it than before.

        A topic that does not exist is waited for. May be called before and while the consumer runs.

        Args:
            topic: the topic.
            expression: tags with ``||`` between, or ``*`` for all messages.

        Raises:
            ConfigurationError: no topic can have this name, or the expression names no tag.
        """
        self._subscriptions[check_topic(topic)] = subscribe(topic, expression, version_ms=self._now_ms())
        self._announce()

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more; nothing happens if it is not subscribed."""
        if topic != retry_topic(self.config.group):
            self._subscriptions.pop(topic, None)
            self._announce()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now, sorted: those of its group's retry topic as well."""
        return [] if self._session is None else self._session.queues()

    async def run(self, handle: Handler) -> None:
        """Join the group and hand its messages to ``handle``, until :meth:`stop` or until cancelled.

        Messages of different queues, and of the same queue, are handled at the same time, up to
        ``concurrency`` of them. A broker or name server that fails does not end this: it is logged, and
        tried again.

        Args:
            handle: called with each ReceivedMessage. An async function runs as a task; any other callable
                in a worker thread. When it returns, the message is done with. When it raises an
                Exception, that is logged, and the message is given back to the broker, which delivers it
                to the group again later, ``max_reconsume_times`` times before it goes to the dead
                letters. Anything else that it raises (SystemExit, KeyboardInterrupt) ends the run.

        Raises:
            ClosedError: the consumer is not open.
            ConfigurationError: it runs already, or another consumer of this client is in the group.

        When cancelled, handlers that are running are cancelled, and their messages are delivered again.
        What was handled is committed, and the group left, before this returns; that takes about a third
        of ``close_timeout`` at the most. It may be run again afterwards.
        """
        self._check_open()
        if self._session is not None:
            raise ConfigurationError("this PushConsumer runs already")
        if self.client.heartbeats.has_consumer(self.config.group):
            raise ConfigurationError(
                f"a consumer of this client is in group {self.config.group!r} already: "
                "give each its own client, by opening it with an address"
            )
        timestamp_ms = self.config.consume_timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = self._made_ms - HALF_AN_HOUR_MS
        session = Session(self.client, self.config, self._subscriptions, timestamp_ms, handle)
        session.pause(self._paused)
        self._session = session
        try:
            await session.run()
        except BaseExceptionGroup as group:
            raise _only(group) from None
        finally:
            self._session = None

    def stop(self) -> None:
        """End :meth:`run`: nothing more is handed out, and it returns when the handlers have ended.

        They have half of ``close_timeout`` for that, then they are cancelled. May be called by a handler.
        """
        if self._session is not None:
            self._session.stop()

    def pause(self) -> None:
        """Pull no more until :meth:`resume`; what has been pulled is still handled. Java: ``suspend``."""
        self._set_paused(True)

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._set_paused(False)

    def _announce(self) -> None:
        if self._session is not None:
            self._session.rebalancer.announce()

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused
        if self._session is not None:
            self._session.pause(paused)

    async def _close(self) -> None:
        session = self._session
        if session is not None:
            session.stop()
            await session.ended.wait()
        await super()._close()


def _only(error: BaseException) -> BaseException:
    """Return what a group of errors comes down to, if that is a single one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
