"""Headers of administration: brokers, name servers, topics, and how groups are doing."""

from __future__ import annotations

from typing import ClassVar

import attrs

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.client import ResetOffsetRequest
from rocketmq_py.protocol.headers.fields import Header, Int32, Request, wire


@attrs.frozen(kw_only=True)
class CreateTopicRequest(Request):
    """Create a topic on a broker, or change it. Java: ``CreateTopicRequestHeader``.

    Attributes:
        topic: its name.
        default_topic: the topic that Java's client names here; brokers do not use it.
        read_queue_nums: queues that consumers read.
        write_queue_nums: queues that producers write.
        perm: bits: 4 readable, 2 writable, 1 inherited.
        topic_filter_type: SINGLE_TAG or MULTI_TAG.
        topic_sys_flag: the topic's system flag.
        order: whether queues keep their places when a broker is lost.
        attributes: changes as ``+name=value,-name`` (5.x), such as ``+message.type=FIFO``.
        force: whether checks of the broker are passed over (5.x).
    """

    code: ClassVar[int] = RequestCode.UPDATE_AND_CREATE_TOPIC

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


@attrs.frozen(kw_only=True)
class DeleteTopicInBrokerRequest(Request):
    """Delete a topic on a broker. Java: ``DeleteTopicRequestHeader``."""

    code: ClassVar[int] = RequestCode.DELETE_TOPIC_IN_BROKER

    topic: str


@attrs.frozen(kw_only=True)
class DeleteTopicInNameServerRequest(Request):
    """Have a name server forget a topic. Java: ``DeleteTopicFromNamesrvRequestHeader``.

    Attributes:
        topic: its name.
        cluster_name: only the brokers of this cluster (5.x); None for all.
    """

    code: ClassVar[int] = RequestCode.DELETE_TOPIC_IN_NAMESRV

    topic: str
    cluster_name: str | None = None


@attrs.frozen(kw_only=True)
class GetTopicStatsInfoRequest(Request):
    """Ask for the offsets of a topic's queues. Java: ``GetTopicStatsInfoRequestHeader``."""

    code: ClassVar[int] = RequestCode.GET_TOPIC_STATS_INFO

    topic: str


@attrs.frozen(kw_only=True)
class GetConsumerConnectionListRequest(Request):
    """Ask for a group's connections and subscriptions. Java: ``GetConsumerConnectionListRequestHeader``."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_CONNECTION_LIST

    consumer_group: str


@attrs.frozen(kw_only=True)
class GetConsumeStatsRequest(Request):
    """Ask how far a group has come. Java: ``GetConsumeStatsRequestHeader``.

    Attributes:
        consumer_group: the group.
        topic: only this topic; None for all that the group consumes.
        topic_list: only these topics, with ``;`` between (5.x).
    """

    code: ClassVar[int] = RequestCode.GET_CONSUME_STATS

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@attrs.frozen(kw_only=True)
class QueryConsumeTimeSpanRequest(Request):
    """Ask how far behind a group is, in time. Java: ``QueryConsumeTimeSpanRequestHeader``."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUME_TIME_SPAN

    topic: str
    group: str


@attrs.frozen(kw_only=True)
class QueryTopicConsumeByWhoRequest(Request):
    """Ask which groups consume a topic: a ``GroupList``. Java: ``QueryTopicConsumeByWhoRequestHeader``."""

    code: ClassVar[int] = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO

    topic: str


@attrs.frozen(kw_only=True)
class GetAllTopicConfigRequest(Request):
    """Ask for the settings of all topics: a ``TopicConfigTable``. Java: ``GetAllTopicConfigRequestHeader``.

    Without fields a broker gives all; with them, brokers of 5.x give a part.

    Attributes:
        topic_seq: the place of the first topic of the part.
        data_version: that of the first part, as JSON; if it is out of date, a broker starts again.
        max_topic_num: how many topics a part has at most.
    """

    code: ClassVar[int] = RequestCode.GET_ALL_TOPIC_CONFIG

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@attrs.frozen(kw_only=True)
class GetAllTopicConfigAnswer(Header):
    """How many topics there are in all parts (5.x). Java: ``GetAllTopicConfigResponseHeader``."""

    total_topic_num: Int32 | None = None


@attrs.frozen(kw_only=True)
class GetTopicConfigRequest(Request):
    """Ask for the settings of a topic (5.x): a ``TopicConfig``. Java: ``GetTopicConfigRequestHeader``.

    Attributes:
        topic: its name.
        logical: whether a topic with queues on other brokers is meant as a whole; True if it is missing.
    """

    code: ClassVar[int] = RequestCode.GET_TOPIC_CONFIG

    topic: str
    logical: bool | None = attrs.field(default=None, metadata=wire("lo"))


@attrs.frozen(kw_only=True)
class GetBrokerRuntimeInfoRequest(Request):
    """Ask a broker how it is doing: a ``KeyValueTable``."""

    code: ClassVar[int] = RequestCode.GET_BROKER_RUNTIME_INFO


@attrs.frozen(kw_only=True)
class GetBrokerConfigRequest(Request):
    """Ask a broker for its settings, as ``properties.read_properties`` reads them."""

    code: ClassVar[int] = RequestCode.GET_BROKER_CONFIG


@attrs.frozen(kw_only=True)
class UpdateBrokerConfigRequest(Request):
    """Change settings of a broker; the body holds them as text."""

    code: ClassVar[int] = RequestCode.UPDATE_BROKER_CONFIG


@attrs.frozen(kw_only=True)
class GetNameServerConfigRequest(Request):
    """Ask a name server for its settings, which come as a broker's do."""

    code: ClassVar[int] = RequestCode.GET_NAMESRV_CONFIG


@attrs.frozen(kw_only=True)
class UpdateNameServerConfigRequest(Request):
    """Change settings of a name server; the body holds them as text."""

    code: ClassVar[int] = RequestCode.UPDATE_NAMESRV_CONFIG


@attrs.frozen(kw_only=True)
class WipeWritePermissionRequest(Request):
    """Have a name server tell producers to stop sending to a broker.

    Java: ``WipeWritePermOfBrokerRequestHeader``.

    Attributes:
        broker: the broker's name.
    """

    code: ClassVar[int] = RequestCode.WIPE_WRITE_PERM_OF_BROKER

    broker: str = attrs.field(metadata=wire("brokerName"))


@attrs.frozen(kw_only=True)
class AddWritePermissionRequest(Request):
    """Undo a :class:`WipeWritePermissionRequest`. Java: ``AddWritePermOfBrokerRequestHeader``.

    Attributes:
        broker: the broker's name.
    """

    code: ClassVar[int] = RequestCode.ADD_WRITE_PERM_OF_BROKER

    broker: str = attrs.field(metadata=wire("brokerName"))


@attrs.frozen(kw_only=True)
class WipeWritePermissionAnswer(Header):
    """How many topics were changed. Java: ``WipeWritePermOfBrokerResponseHeader``."""

    wipe_topic_count: Int32


@attrs.frozen(kw_only=True)
class AddWritePermissionAnswer(Header):
    """How many topics were changed. Java: ``AddWritePermOfBrokerResponseHeader``."""

    add_topic_count: Int32


@attrs.frozen(kw_only=True)
class PutKvConfigRequest(Request):
    """Set a value that name servers keep. Java: ``PutKVConfigRequestHeader``.

    Attributes:
        kv_namespace: whose values these are, such as ORDER_TOPIC_CONFIG: no tenant's namespace.
        key: the key.
        value: the value.
    """

    code: ClassVar[int] = RequestCode.PUT_KV_CONFIG

    kv_namespace: str = attrs.field(metadata=wire("namespace"))
    key: str
    value: str


@attrs.frozen(kw_only=True)
class DeleteKvConfigRequest(Request):
    """Forget a value that name servers keep. Java: ``DeleteKVConfigRequestHeader``.

    Attributes:
        kv_namespace: as in :class:`PutKvConfigRequest`.
        key: the key.
    """

    code: ClassVar[int] = RequestCode.DELETE_KV_CONFIG

    kv_namespace: str = attrs.field(metadata=wire("namespace"))
    key: str


@attrs.frozen(kw_only=True)
class PutSubscriptionGroupRequest(Request):
    """Create a group on a broker, or change it; the body is its ``SubscriptionGroupConfig``."""

    code: ClassVar[int] = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


@attrs.frozen(kw_only=True)
class GetAllSubscriptionGroupRequest(Request):
    """Ask for the settings of all groups: a ``SubscriptionGroupTable``.

    Java: ``GetAllSubscriptionGroupRequestHeader``. The parts are those of :class:`GetAllTopicConfigRequest`.
    """

    code: ClassVar[int] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@attrs.frozen(kw_only=True)
class GetAllSubscriptionGroupAnswer(Header):
    """How many groups there are in all parts (5.x). Java: ``GetAllSubscriptionGroupResponseHeader``."""

    total_group_num: Int32 | None = None


@attrs.frozen(kw_only=True)
class DeleteSubscriptionGroupRequest(Request):
    """Delete a group on a broker. Java: ``DeleteSubscriptionGroupRequestHeader``.

    Attributes:
        group: the group.
        clean_offset: whether its offsets are forgotten too (5.x).
        remove_offset: what 4.x calls that.
    """

    code: ClassVar[int] = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group: str = attrs.field(metadata=wire("groupName"))
    clean_offset: bool = False
    remove_offset: bool = False


@attrs.frozen(kw_only=True)
class GetAllProducerInfoRequest(Request):
    """Ask for all producers that are connected to a broker: a ``ProducerTable``."""

    code: ClassVar[int] = RequestCode.GET_ALL_PRODUCER_INFO


@attrs.frozen(kw_only=True)
class InvokeBrokerToResetOffsetRequest(ResetOffsetRequest):
    """Have a broker set where a group goes on. Java: ``ResetOffsetRequestHeader``."""

    code: ClassVar[int] = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


@attrs.frozen(kw_only=True)
class GetSubscriptionGroupConfigRequest(Request):
    """Ask for the settings of a group (5.x): a ``SubscriptionGroupConfig``.

    Java: ``GetSubscriptionGroupConfigRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str


@attrs.frozen(kw_only=True)
class GetProducerConnectionListRequest(Request):
    """Ask for a group's producers: a ``ProducerConnection``.

    Java: ``GetProducerConnectionListRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.GET_PRODUCER_CONNECTION_LIST

    producer_group: str


@attrs.frozen(kw_only=True)
class QueryTopicsByConsumerRequest(Request):
    """Ask for the topics that a group has offsets for: a ``TopicList``.

    Java: ``QueryTopicsByConsumerRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.QUERY_TOPICS_BY_CONSUMER

    group: str


@attrs.frozen(kw_only=True)
class QuerySubscriptionByConsumerRequest(Request):
    """Ask what of a topic a group wants: a ``GroupSubscription``.

    Java: ``QuerySubscriptionByConsumerRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER

    group: str
    topic: str


@attrs.frozen(kw_only=True)
class CloneGroupOffsetRequest(Request):
    """Give a group the offsets of another one. Java: ``CloneGroupOffsetRequestHeader``.

    Attributes:
        src_group: whose offsets these are.
        dest_group: who gets them.
        topic: those for this topic; brokers do nothing without one.
        offline: whether also those for topics that the group does not subscribe now.
    """

    code: ClassVar[int] = RequestCode.CLONE_GROUP_OFFSET

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@attrs.frozen(kw_only=True)
class GetKvConfigRequest(Request):
    """Ask for a value that name servers keep. Java: ``GetKVConfigRequestHeader``.

    Attributes:
        kv_namespace: as in :class:`PutKvConfigRequest`.
        key: the key.
    """

    code: ClassVar[int] = RequestCode.GET_KV_CONFIG

    kv_namespace: str = attrs.field(metadata=wire("namespace"))
    key: str


@attrs.frozen(kw_only=True)
class GetKvListRequest(Request):
    """Ask for all values of a namespace: a ``KeyValueTable``. Java: ``GetKVListByNamespaceRequestHeader``.

    Attributes:
        kv_namespace: as in :class:`PutKvConfigRequest`.
    """

    code: ClassVar[int] = RequestCode.GET_KVLIST_BY_NAMESPACE

    kv_namespace: str = attrs.field(metadata=wire("namespace"))
