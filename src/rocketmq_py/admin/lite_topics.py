"""Lite topics (5.5): their numbers, offsets, subscribers and lag."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from rocketmq_py.admin.fan_out import PartialResults, change_each, query_each, require_all
from rocketmq_py.admin.lite_values import (
    LiteBroker,
    LiteBrokers,
    LiteClient,
    LiteLagReport,
    LiteSubscriptionDescription,
    LiteTopic,
    LiteTopicLag,
    LiteTopicOffsets,
    ParentTopic,
)
from rocketmq_py.admin.operations import Operations, call_broker, master_address
from rocketmq_py.arguments import check_integer, check_not_blank, optional
from rocketmq_py.codes import RequestCode
from rocketmq_py.names import check_group, check_lite_topic, check_topic, split_lite_queue
from rocketmq_py.protocol.bodies import (
    BrokerData,
    BrokerLiteInfo,
    LiteClientInfo,
    LiteGroupInfo,
    LiteTopicInfo,
    ParentTopicInfo,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    GetBrokerLiteInfoRequest,
    GetLiteClientInfoRequest,
    GetLiteGroupInfoRequest,
    GetLiteTopicInfoRequest,
    GetParentTopicInfoRequest,
    Request,
    TriggerLiteDispatchRequest,
)

MAX_LITE_TOPICS = 10_000
"""The largest number of lite topics that a broker lists for a client."""
MAX_LARGEST = 1000

Value = TypeVar("Value")


class LiteTopics(Operations):
    """Describes lite topics, and offers their waiting messages again. Requires brokers from 5.5.0 on.

    All methods raise NameServerError if no name server answers. Brokers that fail are in ``failures``. If
    none of several brokers answers, SomeBrokersFailedError is raised. A single broker's own error is raised,
    such as UnsupportedByBrokerError from a broker before 5.5.0.
    """

    async def brokers(self) -> LiteBrokers:
        """Return the numbers of lite topics of each broker."""
        results = await self._query(
            await self._select_brokers(), GetBrokerLiteInfoRequest(), BrokerLiteInfo.decode
        )
        found = {
            name: LiteBroker(
                broker_name=name,
                lite_queues=info.current_lmq_num,
                subscriptions=info.lite_subscription_count,
                popped=info.order_info_count,
                clients=info.event_map_size,
                expirations={topic: _minutes(info.topic_meta[topic]) for topic in sorted(info.topic_meta)},
                groups={topic: tuple(sorted(info.group_meta[topic])) for topic in sorted(info.group_meta)},
            )
            for name, info in results.values.items()
        }
        return LiteBrokers(brokers=found, failures=results.failures)

    async def describe_parent(self, parent: str) -> ParentTopic:
        """Return the expiration, the groups and the number of lite topics of a parent topic.

        Raises:
            ConfigurationError: the name is not valid.
            TopicNotFoundError: the topic does not exist.
            BrokerError: the topic has another type than LITE.
        """
        brokers = await self._brokers_of(check_topic(parent, "parent"))
        results = await self._query(brokers, GetParentTopicInfoRequest(topic=parent), ParentTopicInfo.decode)
        groups = {group for info in results.values.values() for group in info.groups}
        expirations = [info.ttl for info in results.values.values()]
        return ParentTopic(
            parent=parent,
            expiration=_minutes(expirations[0]) if expirations else None,
            groups=tuple(sorted(groups)),
            lite_topics={name: info.lite_topic_count for name, info in results.values.items()},
            failures=results.failures,
        )

    async def describe(self, parent: str, lite_topic: str) -> LiteTopic:
        """Return the offsets and the subscribers of a lite topic. Without messages, its offsets are 0.

        Raises the errors of :meth:`describe_parent`.
        """
        header = GetLiteTopicInfoRequest(parent_topic=parent, lite_topic=check_lite_topic(lite_topic))
        brokers = await self._brokers_of(check_topic(parent, "parent"))
        results = await self._query(brokers, header, LiteTopicInfo.decode)
        found = {name: _offsets(info) for name, info in results.values.items()}
        return LiteTopic(parent=parent, lite_topic=lite_topic, brokers=found, failures=results.failures)

    async def describe_client(
        self, parent: str, group: str, client_id: str, *, max_lite_topics: int = 1000
    ) -> LiteSubscriptionDescription:
        """Return the lite topics that a client subscribes to.

        Args:
            parent: the parent topic.
            group: the client's group, which is bound to the parent topic.
            client_id: the client.
            max_lite_topics: the largest number of lite topics to list for each broker, up to 10,000.

        Raises the errors of :meth:`describe_parent`. BrokerError also if the group is not bound to the topic.
        """
        header = GetLiteClientInfoRequest(
            parent_topic=parent,
            group=check_group(group),
            client_id=check_not_blank(client_id, "client_id"),
            max_count=check_integer(max_lite_topics, "max_lite_topics", lowest=0, highest=MAX_LITE_TOPICS),
        )
        brokers = await self._brokers_of(check_topic(parent, "parent"))
        results = await self._query(brokers, header, LiteClientInfo.decode)
        found = {
            name: LiteClient(
                count=info.lite_topic_count,
                lite_topics=tuple(sorted(split_lite_queue(queue)[1] for queue in info.lite_topic_set)),
                last_pop_ms=_time(info.last_access_time),
            )
            for name, info in results.values.items()
            if info.lite_topic_count >= 0  # -1 if the client has no subscription on this broker
        }
        return LiteSubscriptionDescription(client_id=client_id, brokers=found, failures=results.failures)

    async def lag(self, group: str, lite_topic: str | None = None, *, largest: int = 10) -> LiteLagReport:
        """Return the lag of a group in its lite topics.

        Brokers do not count lite topics that the group has never consumed.

        Args:
            group: the group.
            lite_topic: one lite topic. None for all of them.
            largest: the number of lite topics to list, those with the largest lag.

        Raises:
            ConfigurationError: an argument is not valid.
            BrokerError: the group is not bound to a parent topic.
        """
        optional(check_lite_topic, lite_topic, "lite_topic")
        count = check_integer(largest, "largest", lowest=0, highest=MAX_LARGEST)
        header = GetLiteGroupInfoRequest(group=check_group(group), lite_topic=lite_topic, top_k=count)
        results = await self._query(await self._select_brokers(), header, LiteGroupInfo.decode)
        lags = [
            LiteTopicLag(
                lite_topic=split_lite_queue(one.lite_topic)[1],
                broker_name=name,
                lag=one.lag_count,
                waiting_since_ms=_time(one.earliest_unconsumed_timestamp),
            )
            for name, info in results.values.items()
            for one in info.lag_count_top_k
        ]
        if lite_topic is not None:
            lags = [
                LiteTopicLag(
                    lite_topic=lite_topic,
                    broker_name=name,
                    lag=info.total_lag_count,
                    waiting_since_ms=_time(info.earliest_unconsumed_timestamp),
                )
                for name, info in results.values.items()
                if info.lite_topic_offset_wrapper is not None
            ]
        parents = [info.parent_topic for info in results.values.values()]
        return LiteLagReport(
            group=group,
            parent=parents[0] if parents else "",
            lag=sum(max(info.total_lag_count, 0) for info in results.values.values()),
            largest=tuple(sorted(lags, key=lambda one: -one.lag)[:count]),
            failures=results.failures,
        )

    async def offer_again(self, group: str, client_id: str | None = None) -> tuple[str, ...]:
        """Make brokers offer all waiting messages of a group to its clients again.

        Brokers offer new messages without it. Use it if messages of a subscribed lite topic are not
        delivered. Java: ``triggerLiteDispatch``.

        Args:
            group: the group.
            client_id: one of its clients. None for all of them.

        Returns:
            The names of the brokers.

        Raises:
            ConfigurationError: an argument is not valid.
            BrokerError: the group is not bound to a parent topic.
            SomeBrokersFailedError: the request failed on some of several brokers. With a single one its own
                error is raised.
        """
        optional(check_not_blank, client_id, "client_id")
        header = TriggerLiteDispatchRequest(group=check_group(group), client_id=client_id)
        brokers = await self._select_brokers()
        await change_each(
            brokers, lambda name: self._call(brokers[name], header), f"offering messages of group {group!r}"
        )
        return tuple(brokers)

    async def _brokers_of(self, topic: str) -> Mapping[str, BrokerData]:
        """Return the brokers that have a topic."""
        route = await self._client.routes.refresh(topic)
        return await self._select_brokers(route.brokers)

    async def _query(
        self, brokers: Mapping[str, BrokerData], header: Request, decode: Callable[[bytes], Value]
    ) -> PartialResults[str, Value]:
        """Send a request to each broker. If none of them answers, raise as ``require_all`` does."""

        async def query(name: str) -> Value:
            return await self._client.brokers.read(master_address(brokers[name]), header, decode)

        results = await query_each(brokers, query)
        if not results.values:
            require_all(results, f"request {RequestCode(header.code).name}")
        return results

    def _call(self, broker: BrokerData, header: Request) -> Awaitable[Command]:
        return call_broker(self._client, master_address(broker), header)


def _offsets(info: LiteTopicInfo) -> LiteTopicOffsets:
    subscribers: dict[str, tuple[str, ...]] = {}
    for one in sorted(info.subscriber, key=lambda one: (one.group, one.client_id)):
        subscribers[one.group] = (*subscribers.get(one.group, ()), one.client_id)
    return LiteTopicOffsets(
        min_offset=info.topic_offset.min_offset,
        max_offset=info.topic_offset.max_offset,
        last_message_ms=_time(info.topic_offset.last_update_timestamp),
        is_home=info.sharding_to_broker,
        subscribers=subscribers,
    )


def _minutes(expiration: int) -> int | None:
    return expiration if expiration > 0 else None


def _time(time_ms: int) -> int | None:
    return time_ms if time_ms > 0 else None
