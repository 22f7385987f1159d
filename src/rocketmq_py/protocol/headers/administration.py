"""Headers of administration, which tools send: topics, groups, servers, users and their permissions."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Request
from rocketmq_py.protocol.headers.client import ResetOffsetRequest

# Topics


class CreateTopicRequest(Request, frozen=True, kw_only=True):
    """Create or change a topic on a broker. Java: ``CreateTopicRequestHeader``.

    Attributes:
        topic: its name.
        default_topic: the topic that Java's client names here; brokers do not use it.
        read_queue_nums: the number of queues for consumers.
        write_queue_nums: the number of queues for producers.
        perm: bits: 4 readable, 2 writable, 1 inherited.
        topic_filter_type: SINGLE_TAG or MULTI_TAG.
        topic_sys_flag: the topic's system flag.
        order: whether the topic is ordered: its queues stay on their brokers even when one is lost.
        attributes: changes as ``+name=value,-name`` (5.x), such as ``+message.type=FIFO``.
        force: whether to skip the broker's checks (5.x).
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


class DeleteTopicInBrokerRequest(Request, frozen=True, kw_only=True):
    """Delete a topic on a broker. Java: ``DeleteTopicRequestHeader``."""

    code: ClassVar[int] = RequestCode.DELETE_TOPIC_IN_BROKER

    topic: str


class DeleteTopicInNameServerRequest(Request, frozen=True, kw_only=True):
    """Delete a topic's route on a name server. Java: ``DeleteTopicFromNamesrvRequestHeader``.

    Attributes:
        topic: its name.
        cluster_name: only the brokers of this cluster (5.x); None for all.
    """

    code: ClassVar[int] = RequestCode.DELETE_TOPIC_IN_NAMESRV

    topic: str
    cluster_name: str | None = None


class GetTopicStatsInfoRequest(Request, frozen=True, kw_only=True):
    """Get the offsets of a topic's queues: a ``TopicStats``. Java: ``GetTopicStatsInfoRequestHeader``."""

    code: ClassVar[int] = RequestCode.GET_TOPIC_STATS_INFO

    topic: str


class QueryTopicConsumeByWhoRequest(Request, frozen=True, kw_only=True):
    """List the groups of a topic: a ``GroupList``. Java: ``QueryTopicConsumeByWhoRequestHeader``."""

    code: ClassVar[int] = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO

    topic: str


class GetAllTopicConfigRequest(Request, frozen=True, kw_only=True):
    """Get the settings of all topics: a ``TopicConfigTable``. Java: ``GetAllTopicConfigRequestHeader``.

    Without fields a broker returns all topics. With them, brokers of 5.x return one page.

    Attributes:
        topic_seq: the index of the page's first topic.
        data_version: the version of the first page, as JSON. If it is outdated, the broker starts again.
        max_topic_num: the largest number of topics on a page.
    """

    code: ClassVar[int] = RequestCode.GET_ALL_TOPIC_CONFIG

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigAnswer(Header, frozen=True, kw_only=True):
    """The number of topics on all pages (5.x). Java: ``GetAllTopicConfigResponseHeader``."""

    total_topic_num: Int32 | None = None


class GetTopicConfigRequest(Request, frozen=True, kw_only=True):
    """Get the settings of a topic (5.x): a ``TopicConfig``. Java: ``GetTopicConfigRequestHeader``.

    Attributes:
        topic: its name.
        logical: whether a topic with queues on several brokers is meant as a whole. Brokers assume True.
    """

    code: ClassVar[int] = RequestCode.GET_TOPIC_CONFIG

    topic: str
    logical: bool | None = msgspec.field(default=None, name="lo")


# Groups


class GetConsumerConnectionListRequest(Request, frozen=True, kw_only=True):
    """Get a group's connections and subscriptions. Java: ``GetConsumerConnectionListRequestHeader``."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_CONNECTION_LIST

    consumer_group: str


class GetConsumeStatsRequest(Request, frozen=True, kw_only=True):
    """Get a group's offsets and rate: a ``ConsumeStats``. Java: ``GetConsumeStatsRequestHeader``.

    Attributes:
        consumer_group: the group.
        topic: only this topic; None for all topics of the group.
        topic_list: only these topics, separated by ``;`` (5.x).
    """

    code: ClassVar[int] = RequestCode.GET_CONSUME_STATS

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class QueryConsumeTimeSpanRequest(Request, frozen=True, kw_only=True):
    """Get a group's delay on a topic: ``ConsumeTimeSpans``. Java: ``QueryConsumeTimeSpanRequestHeader``."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUME_TIME_SPAN

    topic: str
    group: str


class PutSubscriptionGroupRequest(Request, frozen=True, kw_only=True):
    """Create or change a group on a broker; the body is a ``SubscriptionGroupConfig``."""

    code: ClassVar[int] = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


class GetAllSubscriptionGroupRequest(Request, frozen=True, kw_only=True):
    """Get the settings of all groups: a ``SubscriptionGroupTable``.

    Java: ``GetAllSubscriptionGroupRequestHeader``. Pages work as in :class:`GetAllTopicConfigRequest`.
    """

    code: ClassVar[int] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptionGroupAnswer(Header, frozen=True, kw_only=True):
    """The number of groups on all pages (5.x). Java: ``GetAllSubscriptionGroupResponseHeader``."""

    total_group_num: Int32 | None = None


class DeleteSubscriptionGroupRequest(Request, frozen=True, kw_only=True):
    """Delete a group on a broker. Java: ``DeleteSubscriptionGroupRequestHeader``.

    Attributes:
        group: the group.
        clean_offset: whether to delete its offsets too (5.x).
        remove_offset: the same for 4.x.
    """

    code: ClassVar[int] = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group: str = msgspec.field(name="groupName")
    clean_offset: bool = False
    remove_offset: bool = False


class GetAllProducerInfoRequest(Request, frozen=True, kw_only=True):
    """List the producers that are connected to a broker: a ``ProducerTable``."""

    code: ClassVar[int] = RequestCode.GET_ALL_PRODUCER_INFO


class InvokeBrokerToResetOffsetRequest(ResetOffsetRequest, frozen=True, kw_only=True):
    """Reset a group's offsets through a broker. Java: ``ResetOffsetRequestHeader``."""

    code: ClassVar[int] = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


class GetSubscriptionGroupConfigRequest(Request, frozen=True, kw_only=True):
    """Get the settings of a group (5.x): a ``SubscriptionGroupConfig``.

    Java: ``GetSubscriptionGroupConfigRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str


class GetProducerConnectionListRequest(Request, frozen=True, kw_only=True):
    """Get the connections of a producer group: a ``ProducerConnection``.

    Java: ``GetProducerConnectionListRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.GET_PRODUCER_CONNECTION_LIST

    producer_group: str


class QueryTopicsByConsumerRequest(Request, frozen=True, kw_only=True):
    """List the topics on which a group has offsets: a ``TopicList``.

    Java: ``QueryTopicsByConsumerRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.QUERY_TOPICS_BY_CONSUMER

    group: str


class QuerySubscriptionByConsumerRequest(Request, frozen=True, kw_only=True):
    """Get a group's subscription to a topic: a ``GroupSubscription``.

    Java: ``QuerySubscriptionByConsumerRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER

    group: str
    topic: str


class CloneGroupOffsetRequest(Request, frozen=True, kw_only=True):
    """Copy a group's offsets to another group. Java: ``CloneGroupOffsetRequestHeader``.

    Attributes:
        src_group: the group to copy from.
        dest_group: the group to copy to.
        topic: the topic whose offsets to copy. Brokers do nothing without one.
        offline: whether to include topics that the group does not subscribe at present.
    """

    code: ClassVar[int] = RequestCode.CLONE_GROUP_OFFSET

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


# Brokers and name servers


class GetBrokerRuntimeInfoRequest(Request, frozen=True, kw_only=True):
    """Get a broker's runtime statistics: a ``KeyValueTable``."""

    code: ClassVar[int] = RequestCode.GET_BROKER_RUNTIME_INFO


class GetBrokerConfigRequest(Request, frozen=True, kw_only=True):
    """Get a broker's settings, for ``bodies.read_properties``."""

    code: ClassVar[int] = RequestCode.GET_BROKER_CONFIG


class UpdateBrokerConfigRequest(Request, frozen=True, kw_only=True):
    """Change a broker's settings; the body is made by ``bodies.write_properties``."""

    code: ClassVar[int] = RequestCode.UPDATE_BROKER_CONFIG


class GetNameServerConfigRequest(Request, frozen=True, kw_only=True):
    """Get a name server's settings, for ``bodies.read_properties``."""

    code: ClassVar[int] = RequestCode.GET_NAMESRV_CONFIG


class UpdateNameServerConfigRequest(Request, frozen=True, kw_only=True):
    """Change a name server's settings; the body is made by ``bodies.write_properties``."""

    code: ClassVar[int] = RequestCode.UPDATE_NAMESRV_CONFIG


class WipeWritePermissionRequest(Request, frozen=True, kw_only=True):
    """Remove the write permission of a broker from all routes, so that producers stop sending to it.

    Java: ``WipeWritePermOfBrokerRequestHeader``.

    Attributes:
        broker: the broker's name.
    """

    code: ClassVar[int] = RequestCode.WIPE_WRITE_PERM_OF_BROKER

    broker: str = msgspec.field(name="brokerName")


class AddWritePermissionRequest(Request, frozen=True, kw_only=True):
    """Undo a :class:`WipeWritePermissionRequest`. Java: ``AddWritePermOfBrokerRequestHeader``.

    Attributes:
        broker: the broker's name.
    """

    code: ClassVar[int] = RequestCode.ADD_WRITE_PERM_OF_BROKER

    broker: str = msgspec.field(name="brokerName")


class WipeWritePermissionAnswer(Header, frozen=True, kw_only=True):
    """The number of changed topics. Java: ``WipeWritePermOfBrokerResponseHeader``."""

    wipe_topic_count: Int32


class AddWritePermissionAnswer(Header, frozen=True, kw_only=True):
    """The number of changed topics. Java: ``AddWritePermOfBrokerResponseHeader``."""

    add_topic_count: Int32


class GetKvListRequest(Request, frozen=True, kw_only=True):
    """Get all values of a namespace: a ``KeyValueTable``. Java: ``GetKVListByNamespaceRequestHeader``.

    Attributes:
        kv_namespace: the namespace of the keys, such as ORDER_TOPIC_CONFIG. Unrelated to tenants' namespaces.
    """

    code: ClassVar[int] = RequestCode.GET_KVLIST_BY_NAMESPACE

    kv_namespace: str = msgspec.field(name="namespace")


class GetKvConfigRequest(Request, frozen=True, kw_only=True):
    """Get a value of the name servers' configuration. Java: ``GetKVConfigRequestHeader``.

    Attributes:
        kv_namespace: as in :class:`GetKvListRequest`.
        key: the key.
    """

    code: ClassVar[int] = RequestCode.GET_KV_CONFIG

    kv_namespace: str = msgspec.field(name="namespace")
    key: str


class DeleteKvConfigRequest(GetKvConfigRequest, frozen=True, kw_only=True):
    """Delete a value of the name servers' configuration. Java: ``DeleteKVConfigRequestHeader``."""

    code: ClassVar[int] = RequestCode.DELETE_KV_CONFIG


class PutKvConfigRequest(GetKvConfigRequest, frozen=True, kw_only=True):
    """Set a value of the name servers' configuration. Java: ``PutKVConfigRequestHeader``.

    Attributes:
        value: the value.
    """

    code: ClassVar[int] = RequestCode.PUT_KV_CONFIG

    value: str


# Users and their permissions


class CreateUserRequest(Request, frozen=True, kw_only=True):
    """Create a user (5.x); the body is a ``UserInfo``. Java: ``CreateUserRequestHeader``."""

    code: ClassVar[int] = RequestCode.AUTH_CREATE_USER

    username: str


class UpdateUserRequest(Request, frozen=True, kw_only=True):
    """Change a user (5.x); the body is a ``UserInfo``. Java: ``UpdateUserRequestHeader``."""

    code: ClassVar[int] = RequestCode.AUTH_UPDATE_USER

    username: str


class DeleteUserRequest(Request, frozen=True, kw_only=True):
    """Delete a user and its permissions (5.x). Java: ``DeleteUserRequestHeader``."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_USER

    username: str


class ListUsersRequest(Request, frozen=True, kw_only=True):
    """List users (5.x). The answer is a list of ``UserInfo``, or empty. Java: ``ListUsersRequestHeader``.

    Attributes:
        filter: lists only users whose name contains this.
    """

    code: ClassVar[int] = RequestCode.AUTH_LIST_USER

    filter: str | None = None


class CreateAclRequest(Request, frozen=True, kw_only=True):
    """Grant permissions to a user (5.x); the body is an ``AclInfo``. Java: ``CreateAclRequestHeader``.

    Attributes:
        subject: the user, such as ``User:alice``.
    """

    code: ClassVar[int] = RequestCode.AUTH_CREATE_ACL

    subject: str


class DeleteAclRequest(Request, frozen=True, kw_only=True):
    """Revoke permissions of a user (5.x). Java: ``DeleteAclRequestHeader``.

    Attributes:
        subject: the user, such as ``User:alice``.
        policy_type: Custom or Default. Brokers assume Custom if it is missing.
        resource: revokes only permissions on this resource; None for all.
    """

    code: ClassVar[int] = RequestCode.AUTH_DELETE_ACL

    subject: str
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequest(Request, frozen=True, kw_only=True):
    """List permissions (5.x). The answer is a list of ``AclInfo``, or empty. Java: ``ListAclsRequestHeader``.

    Attributes:
        subject_filter: lists only subjects whose name contains this.
        resource_filter: lists only resources whose name contains this.
    """

    code: ClassVar[int] = RequestCode.AUTH_LIST_ACL

    subject_filter: str | None = None
    resource_filter: str | None = None


class GetAclVersionRequest(Request, frozen=True, kw_only=True):
    """Get the version of a 4.x broker's ACL files. Java has no header class for it."""

    code: ClassVar[int] = RequestCode.GET_BROKER_CLUSTER_ACL_INFO


class GetAclVersionAnswer(Header, frozen=True, kw_only=True):
    """The version of a broker's ACL files. Java: ``GetBrokerAclConfigResponseHeader``.

    Attributes:
        version: a ``DataVersion`` as JSON.
        all_versions: the version of each file, as a JSON object by path (from 4.9.4 on).
    """

    version: str
    all_versions: str | None = msgspec.field(default=None, name="allAclFileVersion")
