"""Administration: topics, groups and offsets, brokers and name servers. Requests and values, no printing."""

from rocketmq_py.admin.admin import Admin
from rocketmq_py.admin.asking import Answers
from rocketmq_py.admin.broker_values import BrokerListing, BrokerStatus
from rocketmq_py.admin.brokers import Brokers
from rocketmq_py.admin.group_values import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupSettings,
    GroupSummary,
    QueueLag,
    Subscription,
    SubscriptionConflict,
    TopicLag,
)
from rocketmq_py.admin.groups import Groups
from rocketmq_py.admin.name_servers import NameServers
from rocketmq_py.admin.offsets import OffsetMove, Offsets, ResetTo
from rocketmq_py.admin.topic_values import (
    MessageType,
    Permission,
    TopicDescription,
    TopicListing,
    TopicQueue,
    TopicSettings,
    TopicSummary,
)
from rocketmq_py.admin.topics import Topics

__all__ = [
    "Admin",
    "Answers",
    "BrokerListing",
    "BrokerStatus",
    "Brokers",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupSettings",
    "GroupSummary",
    "Groups",
    "MessageType",
    "NameServers",
    "OffsetMove",
    "Offsets",
    "Permission",
    "QueueLag",
    "ResetTo",
    "Subscription",
    "SubscriptionConflict",
    "TopicDescription",
    "TopicLag",
    "TopicListing",
    "TopicQueue",
    "TopicSettings",
    "TopicSummary",
    "Topics",
]
