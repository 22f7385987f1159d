"""Administration: topics, groups, offsets, messages, clients, access, servers; no printing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.lazy import lazy_attributes

if TYPE_CHECKING:
    from rocketmq_py.admin.access import Access, AccountsVersion, Rule, RuleListing, User, UserListing
    from rocketmq_py.admin.admin import Admin
    from rocketmq_py.admin.asking import Answers
    from rocketmq_py.admin.broker_values import BrokerListing, BrokerStatus
    from rocketmq_py.admin.brokers import Brokers
    from rocketmq_py.admin.client_values import (
        ClientDescription,
        ClientListing,
        ClientSummary,
        LockedQueue,
        MemberDescription,
        TopicRates,
    )
    from rocketmq_py.admin.clients import Clients
    from rocketmq_py.admin.dead_letters import RESENT_FROM, RESENT_MESSAGE_ID, DeadLetterQueues
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
    from rocketmq_py.admin.message_values import (
        DeadLetter,
        DeadLetters,
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
    from rocketmq_py.admin.name_servers import NameServers
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
            "access": (
                "Access",
                "AccountsVersion",
                "Rule",
                "RuleListing",
                "User",
                "UserListing",
            ),
            "admin": ("Admin",),
            "asking": ("Answers",),
            "broker_values": (
                "BrokerListing",
                "BrokerStatus",
            ),
            "brokers": ("Brokers",),
            "client_values": (
                "ClientDescription",
                "ClientListing",
                "ClientSummary",
                "LockedQueue",
                "MemberDescription",
                "TopicRates",
            ),
            "clients": ("Clients",),
            "dead_letters": (
                "RESENT_FROM",
                "RESENT_MESSAGE_ID",
                "DeadLetterQueues",
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
            "message_values": (
                "DeadLetter",
                "DeadLetters",
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
            "name_servers": ("NameServers",),
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
    "Access",
    "AccountsVersion",
    "Admin",
    "Answers",
    "BrokerListing",
    "BrokerStatus",
    "Brokers",
    "ClientDescription",
    "ClientListing",
    "ClientSummary",
    "Clients",
    "DeadLetter",
    "DeadLetterQueues",
    "DeadLetters",
    "DirectConsumeResult",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupSettings",
    "GroupSummary",
    "Groups",
    "LockedQueue",
    "MemberDescription",
    "MessageListing",
    "MessageTrack",
    "MessageType",
    "Messages",
    "NameServers",
    "OffsetReset",
    "Offsets",
    "Permission",
    "QueueLag",
    "ResetTo",
    "Rule",
    "RuleListing",
    "Subscription",
    "SubscriptionConflict",
    "TopicDescription",
    "TopicLag",
    "TopicListing",
    "TopicQueue",
    "TopicRates",
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
