"""Subscriptions of a consumer: create them, and check SQL filters with the brokers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import (
    BrokerError,
    ConfigurationError,
    NoQueueError,
    RocketMQError,
    SqlFilterRefusedError,
)
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.protocol.bodies import CheckClientConfig, SubscriptionData
from rocketmq_py.protocol.headers import CheckClientConfigRequest
from rocketmq_py.protocol.subscription import ALL, SQL92, make_subscription
from rocketmq_py.remoting.back_off import BackOff

logger: Final = LibraryLogger("rocketmq_py.consumer")

BACK_OFF: Final = BackOff(1.0, longest=20.0)
"""Seconds between attempts to check a SQL filter that no broker could check."""

_WRONG_SEPARATOR = re.compile(r"[,;|\s]")
"""Characters in a tag that suggest a list of tags with the wrong separator."""
_REFUSALS = {
    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
}
"""Codes of brokers that cannot use a subscription."""
_NOT_ENABLED = "does not support consumer to filter"
"""The remark of brokers without ``enablePropertyFilter``. Their response code is unspecific."""


def subscription_of(topic: str, tags: str, sql: str | None, *, version_ms: int) -> SubscriptionData:
    """Create a subscription to messages with some tags or, if ``sql`` is given, with a SQL filter.

    Raises:
        ConfigurationError: ``tags`` contains no tag, ``sql`` is empty, both are given, or one is no string.
    """
    for name, value, example in (("tags", tags, "A || B"), ("sql", "" if sql is None else sql, "price > 10")):
        if not isinstance(value, str):
            raise ConfigurationError(
                f"subscribing to {topic!r}: {name} is {value!r}; it must be a string, such as {example!r}"
            )
    if sql is None:
        if suspicious := [tag for tag in tags.split("||") if _WRONG_SEPARATOR.search(tag.strip())]:
            logger.warning(
                "the subscription to topic %s contains %r, which is a single tag; separate tags with ||",
                topic, suspicious[0].strip(),
            )  # fmt: skip
        return make_subscription(topic, tags, version_ms=version_ms)
    if tags.strip() != ALL:
        raise ConfigurationError(
            f"the subscription to {topic!r} has both tags {tags!r} and a SQL filter. Give only one; "
            f"a SQL filter can select tags too: \"TAGS = 'A' AND ({sql})\""
        )
    return make_subscription(topic, sql, version_ms=version_ms, kind=SQL92)


def filter_of(subscription: SubscriptionData) -> tuple[str, object]:
    """Return a value that is equal for subscriptions that select the same messages of a topic."""
    return subscription.expression_type, frozenset(subscription.tags_set) or subscription.sub_string


async def check_sql_filter(client: ClientCore, group: str, subscription: SubscriptionData) -> None:
    """Ask a broker of the topic whether it accepts a SQL filter. Returns at once for a tag filter.

    The brokers are asked in turn until one answers, first those that can be reached. Those of a cluster are
    assumed to be configured alike.
    Java: ``MQClientInstance.checkClientInBroker``.

    Raises:
        SqlFilterRefusedError: a broker refuses the filter.
        RocketMQError: no broker could be asked.
    """
    if subscription.expression_type != SQL92:
        return
    topic = subscription.topic
    check = CheckClientConfig(client_id=client.client_id, group=group, subscription_data=subscription)
    failure: RocketMQError | None = None
    is_unreachable = client.brokers.is_unreachable
    brokers = (await client.routes.get(topic)).brokers
    for broker_name in sorted(brokers, key=lambda name: (is_unreachable(name), name)):
        try:
            address = client.routes.broker_address(broker_name, any_id=True)
            await client.brokers.call(address, CheckClientConfigRequest(), check)
        except BrokerError as error:
            if error.code in _REFUSALS or _NOT_ENABLED in (error.remark or ""):
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
    """The subscriptions in effect, by topic.

    Tag filters take effect at once, SQL filters when a broker has accepted them. Until then the previous
    subscription to the topic stays in effect, if there is one. A refused SQL filter never takes effect.

    Args:
        client: sends the requests.
        group: the consumer group.
        on_change: called with the topic when a subscription takes effect or is removed.

    Attributes:
        refused: the errors of refused SQL filters, by topic.
    """

    def __init__(self, client: ClientCore, group: str, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        self.refused: dict[str, SqlFilterRefusedError] = {}
        self._client = client
        self._group = group
        self._accepted: dict[str, SubscriptionData] = {}
        self._unchecked: dict[str, SubscriptionData] = {}
        self._filter_added = trio.lowlevel.ParkingLot()
        self._retry_logs = RetryLogs(logger, "SQL filter check", "topic", group=group)

    def __getitem__(self, topic: str) -> SubscriptionData:
        return self._accepted[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._accepted)

    def __len__(self) -> int:
        return len(self._accepted)

    @property
    def topics(self) -> list[str]:
        """All subscribed topics, including those whose SQL filter is unchecked or refused."""
        return list(dict.fromkeys([*self._accepted, *self._unchecked]))

    def raise_refusal(self) -> None:
        """Raise the error of a refused SQL filter, if there is one."""
        for error in self.refused.values():
            raise error.with_traceback(None)

    def put(self, subscription: SubscriptionData) -> None:
        """Add a subscription, or replace the one to the same topic."""
        topic = subscription.topic
        self.refused.pop(topic, None)
        if subscription.expression_type == SQL92:
            self._unchecked[topic] = subscription
            self._filter_added.unpark_all()
        else:
            self._unchecked.pop(topic, None)
            self._accept(subscription)

    def remove(self, topic: str) -> bool:
        """Remove the subscription to a topic. Returns whether there was one."""
        self.refused.pop(topic, None)
        was_unchecked = self._unchecked.pop(topic, None) is not None
        was_accepted = self._accepted.pop(topic, None) is not None
        if was_accepted:
            self._on_change(topic)
        return was_unchecked or was_accepted

    def replace(self, subscriptions: Collection[SubscriptionData]) -> None:
        """Replace all subscriptions by these, whose filters have been accepted. Does not call on_change."""
        self.refused.clear()
        self._unchecked.clear()
        self._accepted = {subscription.topic: subscription for subscription in subscriptions}

    async def check_filters(self, topics: Collection[str] | None = None) -> dict[str, RocketMQError]:
        """Ask the brokers about the unchecked SQL filters of these topics (None for all).

        Returns:
            The errors of the checks that no broker could answer, by topic.

        Raises:
            SqlFilterRefusedError: a broker refuses a filter.
        """
        failures: dict[str, RocketMQError] = {}
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
                failures[topic] = error
            else:
                self._retry_logs.succeeded(topic)
                if self._unchecked.get(topic) is subscription:
                    del self._unchecked[topic]
                    self._accept(subscription)
        return failures

    async def keep_checking_filters(self) -> None:
        """Check SQL filters as they are added, until cancelled. Checks that no broker answers are retried.

        Raises:
            SqlFilterRefusedError: a broker refuses a filter. A later call does not check that filter again.
        """
        attempts = 1
        while True:
            topics = [topic for topic in self._unchecked if topic not in self.refused]
            if not topics:
                attempts = 1
                await self._filter_added.park()
                continue
            failures = await self.check_filters(topics)
            if not failures:
                continue
            for topic, error in failures.items():
                self._retry_logs.failed(topic, error)
            with trio.move_on_after(BACK_OFF.after(attempts)):
                await self._filter_added.park()
            if not all(error._not_reached for error in failures.values()):
                attempts += 1

    def _accept(self, subscription: SubscriptionData) -> None:
        self._accepted[subscription.topic] = subscription
        self._on_change(subscription.topic)
