"""Administration of clusters: topics, groups, offsets, messages, clients, brokers and access control.

Begin with :class:`Admin`. Each of its attributes is a class of operations in a module of its own, such as
``admin.topics``, which is :class:`Topics`. Modules with ``values`` in their names hold the results. Requests
to several brokers go through ``fan_out``. Nothing here prints: the command line does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.lazy import lazy_attributes

if TYPE_CHECKING:
    from rocketmq_py.admin.access_control import (
        AccessControl,
        AclConfigVersion,
        AclRule,
        AclRuleListing,
        User,
        UserListing,
    )
    from rocketmq_py.admin.admin import Admin
    from rocketmq_py.admin.brokers import BrokerListing, Brokers, BrokerStatus, NameServers
    from rocketmq_py.admin.clients import (
        AssignedQueue,
        ClientDescription,
        ClientListing,
        Clients,
        ClientSummary,
        ConsumeRates,
        MemberDescription,
    )
    from rocketmq_py.admin.dead_letters import (
        RESENT_FROM,
        RESENT_MESSAGE_ID,
        DeadLetter,
        DeadLetterListing,
        DeadLetterQueues,
    )
    from rocketmq_py.admin.fan_out import Listing, PartialResults
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
    from rocketmq_py.admin.lite_topics import LiteTopics
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
    from rocketmq_py.admin.message_values import (
        DirectConsumeResult,
        MessageListing,
        MessageTrack,
        TraceEvent,
        TraceKind,
        TraceListing,
        TrackListing,
        TrackType,
    )
    from rocketmq_py.admin.messages import Messages
    from rocketmq_py.admin.offsets import OffsetReset, Offsets, ResetTo
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
else:
    __getattr__ = lazy_attributes(
        globals(),
        {
            "access_control": (
                "AccessControl",
                "AclConfigVersion",
                "AclRule",
                "AclRuleListing",
                "User",
                "UserListing",
            ),
            "admin": ("Admin",),
            "brokers": (
                "BrokerListing",
                "BrokerStatus",
                "Brokers",
                "NameServers",
            ),
            "clients": (
                "AssignedQueue",
                "ClientDescription",
                "ClientListing",
                "ClientSummary",
                "Clients",
                "ConsumeRates",
                "MemberDescription",
            ),
            "dead_letters": (
                "RESENT_FROM",
                "RESENT_MESSAGE_ID",
                "DeadLetter",
                "DeadLetterListing",
                "DeadLetterQueues",
            ),
            "fan_out": (
                "Listing",
                "PartialResults",
            ),
            "group_values": (
                "GroupDescription",
                "GroupListing",
                "GroupMember",
                "GroupSettings",
                "GroupSummary",
                "QueueLag",
                "Subscription",
                "SubscriptionConflict",
                "TopicLag",
            ),
            "groups": ("Groups",),
            "lite_topics": ("LiteTopics",),
            "lite_values": (
                "LiteBroker",
                "LiteBrokers",
                "LiteClient",
                "LiteLagReport",
                "LiteSubscriptionDescription",
                "LiteTopic",
                "LiteTopicLag",
                "LiteTopicOffsets",
                "ParentTopic",
            ),
            "message_values": (
                "DirectConsumeResult",
                "MessageListing",
                "MessageTrack",
                "TraceEvent",
                "TraceKind",
                "TraceListing",
                "TrackListing",
                "TrackType",
            ),
            "messages": ("Messages",),
            "offsets": (
                "OffsetReset",
                "Offsets",
                "ResetTo",
            ),
            "topic_values": (
                "MessageType",
                "Permission",
                "TopicDescription",
                "TopicListing",
                "TopicQueue",
                "TopicSettings",
                "TopicSummary",
            ),
            "topics": ("Topics",),
        },
    )


__all__ = [
    "RESENT_FROM",
    "RESENT_MESSAGE_ID",
    "AccessControl",
    "AclConfigVersion",
    "AclRule",
    "AclRuleListing",
    "Admin",
    "AssignedQueue",
    "BrokerListing",
    "BrokerStatus",
    "Brokers",
    "ClientDescription",
    "ClientListing",
    "ClientSummary",
    "Clients",
    "ConsumeRates",
    "DeadLetter",
    "DeadLetterListing",
    "DeadLetterQueues",
    "DirectConsumeResult",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupSettings",
    "GroupSummary",
    "Groups",
    "Listing",
    "LiteBroker",
    "LiteBrokers",
    "LiteClient",
    "LiteLagReport",
    "LiteSubscriptionDescription",
    "LiteTopic",
    "LiteTopicLag",
    "LiteTopicOffsets",
    "LiteTopics",
    "MemberDescription",
    "MessageListing",
    "MessageTrack",
    "MessageType",
    "Messages",
    "NameServers",
    "OffsetReset",
    "Offsets",
    "ParentTopic",
    "PartialResults",
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
    "TraceEvent",
    "TraceKind",
    "TraceListing",
    "TrackListing",
    "TrackType",
    "User",
    "UserListing",
]
