"""Headers of requests about topics and their settings. Tools send most of them."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Request


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
