"""The requests of tools for the state of lite topics (Java: ``LiteManagerProcessor``)."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.lite.lite_expiry import EXPIRATION
from rocketmq_py.broker.lite.lite_requests import LITE_TYPE, LitePopProcessor
from rocketmq_py.broker.lite.subscriptions import BIND_TOPIC
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.consume_queue import ConsumeQueue
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.names import lite_queue, split_lite_queue
from rocketmq_py.protocol.bodies import (
    BrokerLiteInfo,
    GroupOffset,
    LiteClientInfo,
    LiteGroupInfo,
    LiteLag,
    LiteTopicInfo,
    ParentTopicInfo,
    TopicOffset,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    GetLiteClientInfoRequest,
    GetLiteGroupInfoRequest,
    GetLiteTopicInfoRequest,
    GetParentTopicInfoRequest,
    TriggerLiteDispatchRequest,
)
from rocketmq_py.remoting import Connection

MAX_LISTED = 10_000
"""The largest number of lite topics in an answer."""
_MAX_QUEUES = 20_000
"""maxLmqConsumeQueueNum. It is not enforced, as on real brokers."""


class LiteInfoProcessor:
    """Answers the requests of tools.

    Args:
        state: the broker's tables.
        pops: has the popped messages and the subscriptions.
    """

    def __init__(self, state: BrokerState, pops: LitePopProcessor) -> None:
        self._state = state
        self._pops = pops

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.GET_BROKER_LITE_INFO: self._describe_broker,
            RequestCode.GET_PARENT_TOPIC_INFO: self._describe_parent,
            RequestCode.GET_LITE_TOPIC_INFO: self._describe_lite_topic,
            RequestCode.GET_LITE_CLIENT_INFO: self._describe_client,
            RequestCode.GET_LITE_GROUP_INFO: self._describe_group,
            RequestCode.TRIGGER_LITE_DISPATCH: self._offer_again,
        }

    def _describe_broker(self, connection: Connection, request: Command) -> None:
        state, pops = self._state, self._pops
        parents = [topic for topic in state.topics if topic.attributes.get("message.type") == LITE_TYPE]
        queues = len(state.store.lite_queues())
        info = BrokerLiteInfo(
            store_type="default",
            max_lmq_num=_MAX_QUEUES,
            current_lmq_num=queues,
            lite_subscription_count=pops.subscriptions.count,
            order_info_count=pops.ordered_pops.count,
            cq_table_size=queues + len(list(state.topics)),
            offset_table_size=state.offsets.count,
            event_map_size=len(pops.dispatcher.offers),
            topic_meta={topic.topic_name: _expiration(topic) for topic in parents},
            group_meta=self._groups_by_parent(),
        )
        connection.respond(request, ResponseCode.SUCCESS, body=info.encode())

    def _describe_parent(self, connection: Connection, request: Command) -> None:
        header = GetParentTopicInfoRequest.from_fields(request.fields)
        topic = self._check_parent(header.topic)
        queues = self._state.store.lite_queues()
        info = ParentTopicInfo(
            topic=header.topic,
            ttl=_expiration(topic),
            groups=self._groups_by_parent().get(header.topic, ()),
            lmq_num=len(queues),
            lite_topic_count=sum(split_lite_queue(queue.topic)[0] == header.topic for queue in queues),
        )
        connection.respond(request, ResponseCode.SUCCESS, body=info.encode())

    def _describe_lite_topic(self, connection: Connection, request: Command) -> None:
        header = GetLiteTopicInfoRequest.from_fields(request.fields)
        self._check_parent(header.parent_topic)
        name = lite_queue(header.parent_topic, header.lite_topic)
        queue = self._state.store.find_lite_queue(name)
        offsets = TopicOffset()
        if queue is not None:
            offsets = TopicOffset(
                min_offset=queue.start,
                max_offset=queue.end,
                last_update_timestamp=_store_time(queue, queue.end - 1, 0),
            )
        subscribers = self._pops.subscriptions.subscribers_of(name)
        info = LiteTopicInfo(
            parent_topic=header.parent_topic,
            lite_topic=header.lite_topic,
            subscriber=tuple(subscriber for of_group in subscribers.values() for subscriber in of_group),
            topic_offset=offsets,
            sharding_to_broker=True,
        )
        connection.respond(request, ResponseCode.SUCCESS, body=info.encode())

    def _describe_client(self, connection: Connection, request: Command) -> None:
        header = GetLiteClientInfoRequest.from_fields(request.fields)
        parent, group = header.parent_topic, header.group
        self._check_parent(parent)
        if self._bind_topic(group) != parent:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"Subscription [{group}]-[{parent}] not match.")
        subscription = self._pops.subscriptions.find(header.client_id)
        offers = self._pops.dispatcher.offers.get(header.client_id)
        queues = [] if subscription is None else list(subscription.queues)
        info = LiteClientInfo(
            parent_topic=parent,
            group=group,
            client_id=header.client_id,
            last_access_time=-1 if offers is None else offers.popped_at_ms,
            lite_topic_count=-1 if subscription is None else len(queues),
            lite_topic_set=tuple(queues[: max(0, min(header.max_count, MAX_LISTED))]),
        )
        connection.respond(request, ResponseCode.SUCCESS, body=info.encode())

    def _describe_group(self, connection: Connection, request: Command) -> None:
        header = GetLiteGroupInfoRequest.from_fields(request.fields)
        parent = self._check_group(header.group)
        if header.lite_topic:
            info = self._lag_in_topic(header.group, parent, header.lite_topic)
        else:
            info = self._lag_of_group(header.group, parent, header.top_k)
        connection.respond(request, ResponseCode.SUCCESS, body=info.encode())

    def _lag_in_topic(self, group: str, parent: str, lite_topic: str) -> LiteGroupInfo:
        queue = self._state.store.find_lite_queue(lite_queue(parent, lite_topic))
        committed = None if queue is None else self._state.offsets.committed(group, queue.topic, 0)
        lag, waiting_since, offsets = (-1, -1, None) if queue is None else (0, -1, None)
        if queue is not None and committed is not None:
            lag = queue.end - committed
            waiting_since = _store_time(queue, committed, -1)
            offsets = GroupOffset(
                broker_offset=queue.end,
                consumer_offset=committed,
                last_timestamp=_store_time(queue, committed - 1, 0),
            )
        return LiteGroupInfo(
            group=group,
            parent_topic=parent,
            lite_topic=lite_topic,
            total_lag_count=lag,
            earliest_unconsumed_timestamp=waiting_since,
            lite_topic_offset_wrapper=offsets,
        )

    def _lag_of_group(self, group: str, parent: str, top: int) -> LiteGroupInfo:
        lags = []
        for queue in self._state.store.lite_queues():
            committed = self._state.offsets.committed(group, queue.topic, 0)
            of_parent, lite_topic = split_lite_queue(queue.topic)
            if of_parent == parent and committed is not None and committed < queue.end:
                lags.append(
                    LiteLag(
                        lite_topic=lite_topic,
                        lag_count=queue.end - committed,
                        earliest_unconsumed_timestamp=_store_time(queue, committed, -1),
                    )
                )
        by_time = sorted(lags, key=lambda lag: lag.earliest_unconsumed_timestamp)
        return LiteGroupInfo(
            group=group,
            parent_topic=parent,
            total_lag_count=sum(lag.lag_count for lag in lags),
            earliest_unconsumed_timestamp=by_time[0].earliest_unconsumed_timestamp if by_time else -1,
            lag_count_top_k=tuple(sorted(lags, key=lambda lag: -lag.lag_count)[:top]),
            lag_timestamp_top_k=tuple(by_time[:top]),
        )

    def _offer_again(self, connection: Connection, request: Command) -> None:
        header = TriggerLiteDispatchRequest.from_fields(request.fields)
        self._check_group(header.group)
        state, pops = self._state, self._pops
        for subscription in pops.subscriptions.of_group(header.group):
            if header.client_id not in (None, "", subscription.client_id):
                continue
            for name in subscription.queues:
                queue = state.store.find_lite_queue(name)
                committed = state.offsets.committed(header.group, name, 0)
                if queue is not None and (-1 if committed is None else committed) < queue.end:
                    pops.dispatcher.offer_to_client(subscription.subscriber, name)
        connection.respond(request, ResponseCode.SUCCESS)

    # Checks

    def _check_parent(self, name: str) -> TopicConfig:
        topic = self._state.topics.get(name)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{name}] not exist.")
        if topic.attributes.get("message.type") != LITE_TYPE:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"Topic [{name}] type not match.")
        return topic

    def _check_group(self, group: str) -> str:
        """Return the parent topic of a group."""
        parent = self._bind_topic(group)
        if not parent:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"Group [{group}] is not a LITE group.")
        return parent

    def _bind_topic(self, group: str) -> str | None:
        config = self._state.subscription_groups.get_or_create(group)
        if config is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{group}] not exist.")
        return config.attributes.get(BIND_TOPIC)

    def _groups_by_parent(self) -> dict[str, tuple[str, ...]]:
        groups: dict[str, tuple[str, ...]] = {}
        for group in self._state.subscription_groups:
            parent = group.attributes.get(BIND_TOPIC)
            if parent:
                groups[parent] = (*groups.get(parent, ()), group.group_name)
        return groups


def _expiration(topic: TopicConfig) -> int:
    return int(topic.attributes.get(EXPIRATION, "-1"))


def _store_time(queue: ConsumeQueue, offset: int, missing: int) -> int:
    """Return the store time of the message at an offset, or ``missing`` if there is none."""
    return queue[offset].store_time_ms if queue.start <= offset < queue.end else missing
