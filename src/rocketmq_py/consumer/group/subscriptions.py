"""What a consumer has subscribed, and whether the brokers accept its SQL filters."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import msgspec
import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.errors import (
    BrokerError,
    ConfigurationError,
    NoQueueError,
    RocketMQError,
    SqlFilterRefusedError,
    SubscriptionError,
)
from rocketmq_py.protocol.bodies import CheckClientConfig, SubscriptionData
from rocketmq_py.protocol.headers import CheckClientConfigRequest
from rocketmq_py.protocol.subscription import ALL, SQL92, make_subscription

logger: Final = logging.getLogger("rocketmq_py.consumer")

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 20.0
"""Between two tries to find a broker that says whether it accepts a SQL filter: doubled each time."""

_SEPARATOR = re.compile(r"[,;|\s]")
"""What stands in one tag when its author meant several."""
_NOT_ENABLED = "does not support consumer to filter"
"""What brokers without ``enablePropertyFilter`` say, with a code that says nothing."""


def subscription_of(topic: str, tags: str, sql: str | None, *, version_ms: int) -> SubscriptionData:
    """Return a subscription to the messages of some tags or, if ``sql`` is given, to those it is true of.

    Raises:
        ConfigurationError: ``tags`` names no tag, ``sql`` is empty, both are given, or one is no text.
    """
    for name, value in (("tags", tags), ("sql", "" if sql is None else sql)):
        if not isinstance(value, str):
            raise ConfigurationError(f"subscribing to {topic!r}: {name} is {value!r}; it must be a text")
    if sql is None:
        if odd := [tag for tag in tags.split("||") if _SEPARATOR.search(tag.strip())]:
            logger.warning(
                "topic %s is subscribed with the tag %r: it is one tag; several have || between them",
                topic, odd[0].strip(),
            )  # fmt: skip
        return make_subscription(topic, tags, version_ms=version_ms)
    if tags.strip() != ALL:
        raise ConfigurationError(
            f"the subscription to {topic!r} has tags {tags!r} and a SQL filter: give one; "
            f"a SQL filter may ask for tags as well, \"TAGS = 'A' AND ({sql})\""
        )
    return make_subscription(topic, sql, version_ms=version_ms, kind=SQL92)


async def check_sql_filter(client: Client, group: str, subscription: SubscriptionData) -> None:
    """Ask a broker of the topic whether it accepts a SQL filter; nothing is asked about tags.

    The brokers are asked in turn until one tells: those of a cluster are taken to be set up alike. Java:
    ``MQClientInstance.checkClientInBroker``.

    Raises:
        SqlFilterRefusedError: it does not.
        RocketMQError: nobody could tell.
    """
    if subscription.expression_type != SQL92:
        return
    topic, namespace = subscription.topic, client.namespace
    check = CheckClientConfig(
        client_id=client.client_id,
        group=namespace.wrap_group(group),
        subscription_data=msgspec.structs.replace(subscription, topic=namespace.wrap_topic(topic)),
    )
    failure: RocketMQError | None = None
    for broker_name in sorted((await client.routes.get(topic)).brokers):
        try:
            address = client.brokers.channel(client.routes.broker_address(broker_name, any_id=True))
            await client.brokers.call(address, CheckClientConfigRequest(), check.encode())
        except BrokerError as error:
            if isinstance(error, SubscriptionError) or _NOT_ENABLED in (error.remark or ""):
                raise SqlFilterRefusedError(
                    topic, subscription.sub_string, error.code, error.remark, error.address
                ) from None
            failure = failure or error
        except RocketMQError as error:
            failure = failure or error
        else:
            return
    raise failure or NoQueueError(f"topic {topic!r} has no broker")


class Subscriptions(Mapping[str, SubscriptionData]):
    """What a consumer has subscribed, by topic: tags at once, SQL filters when a broker has accepted them.

    Until then the topic has what was subscribed before, if anything was. A SQL filter that is refused is kept
    aside until something else is subscribed.

    Args:
        client: how brokers are asked.
        group: the consumer's group.
        on_change: called with a topic of which something else is wanted now.

    Attributes:
        refused: why SQL filters were refused, by topic.
    """

    def __init__(self, client: Client, group: str, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        self.refused: dict[str, SqlFilterRefusedError] = {}
        self._client = client
        self._group = group
        self._accepted: dict[str, SubscriptionData] = {}
        self._unchecked: dict[str, SubscriptionData] = {}
        self._more = trio.lowlevel.ParkingLot()
        self._retry_logs = RetryLogs(logger, "SQL filter check", "topic", group=group)

    def __getitem__(self, topic: str) -> SubscriptionData:
        return self._accepted[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._accepted)

    def __len__(self) -> int:
        return len(self._accepted)

    @property
    def wanted(self) -> list[str]:
        """The topics that are subscribed, with SQL filters that were accepted or with others."""
        return list(dict.fromkeys([*self._accepted, *self._unchecked]))

    def raise_refusal(self) -> None:
        """Raise the SqlFilterRefusedError of a SQL filter that was refused, if there is one."""
        for error in self.refused.values():
            raise error.with_traceback(None)

    def put(self, subscription: SubscriptionData) -> None:
        """Subscribe, or subscribe differently."""
        topic = subscription.topic
        self.refused.pop(topic, None)
        if subscription.expression_type == SQL92:
            self._unchecked[topic] = subscription
            self._more.unpark_all()
        else:
            self._unchecked.pop(topic, None)
            self._accept(subscription)

    def remove(self, topic: str) -> bool:
        """Unsubscribe; return whether the topic was subscribed."""
        self.refused.pop(topic, None)
        was_unchecked = self._unchecked.pop(topic, None) is not None
        was_accepted = self._accepted.pop(topic, None) is not None
        if was_accepted:
            self._on_change(topic)
        return was_unchecked or was_accepted

    def replace(self, subscriptions: Collection[SubscriptionData]) -> None:
        """Have these, which are accepted, and no other."""
        self.refused.clear()
        self._unchecked.clear()
        self._accepted = {subscription.topic: subscription for subscription in subscriptions}

    async def check(self, topics: Collection[str] | None = None) -> dict[str, RocketMQError]:
        """Ask about the SQL filters that no broker has accepted yet: of these topics, or of all.

        Returns:
            Why nobody could tell, by topic.

        Raises:
            SqlFilterRefusedError: a broker does not accept one.
        """
        unsettled: dict[str, RocketMQError] = {}
        for topic, subscription in list(self._unchecked.items()):
            if topics is not None and topic not in topics:
                continue
            try:
                await check_sql_filter(self._client, self._group, subscription)
            except SqlFilterRefusedError as error:
                if self._unchecked.get(topic) is subscription:
                    self.refused[topic] = error
                    raise
            except RocketMQError as error:
                unsettled[topic] = error
            else:
                self._retry_logs.succeeded(topic)
                if self._unchecked.get(topic) is subscription:
                    del self._unchecked[topic]
                    self._accept(subscription)
        return unsettled

    async def keep_checked(self) -> None:
        """Ask about each SQL filter that comes, until cancelled; where nobody can tell, again and again.

        Raises:
            SqlFilterRefusedError: a broker does not accept one. That one is not asked about any more.
        """
        pause = FIRST_RETRY_SECONDS
        while True:
            topics = [topic for topic in self._unchecked if topic not in self.refused]
            if not topics:
                pause = FIRST_RETRY_SECONDS
                await self._more.park()
                continue
            unsettled = await self.check(topics)
            if not unsettled:
                continue
            for topic, error in unsettled.items():
                self._retry_logs.failed(topic, error)
            with trio.move_on_after(pause):
                await self._more.park()
            pause = min(pause * 2, LAST_RETRY_SECONDS)

    def _accept(self, subscription: SubscriptionData) -> None:
        self._accepted[subscription.topic] = subscription
        self._on_change(subscription.topic)
