"""Administration of clusters: topics, groups, offsets, messages, clients, brokers and access control.

Begin with :class:`Admin`. Each of its attributes is a class of operations in a module of its own, such as
``admin.topics``, which is :class:`Topics`. Modules with ``values`` in their names hold the results. Requests
to several brokers go through ``fan_out``. Nothing here prints: the command line does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.lazy import lazy_names

if TYPE_CHECKING:
    from rocketmq_py.admin.access_values import AclRule as AclRule
    from rocketmq_py.admin.access_values import User as User
    from rocketmq_py.admin.admin import Admin as Admin
    from rocketmq_py.admin.errors import AccessNotFoundError as AccessNotFoundError
    from rocketmq_py.admin.errors import AlreadyExistsError as AlreadyExistsError
    from rocketmq_py.admin.errors import GroupNotFoundError as GroupNotFoundError
    from rocketmq_py.admin.errors import SomeBrokersFailedError as SomeBrokersFailedError
    from rocketmq_py.admin.group_values import GroupDescription as GroupDescription
    from rocketmq_py.admin.message_values import DeadLetter as DeadLetter
    from rocketmq_py.admin.message_values import MessageTrack as MessageTrack
    from rocketmq_py.admin.message_values import TraceEvent as TraceEvent
    from rocketmq_py.admin.message_values import TraceKind as TraceKind
    from rocketmq_py.admin.message_values import TrackType as TrackType
    from rocketmq_py.admin.resends import RESENT_FROM as RESENT_FROM
    from rocketmq_py.admin.resends import RESENT_OFFSET_MESSAGE_ID as RESENT_OFFSET_MESSAGE_ID
    from rocketmq_py.admin.topic_values import MessageType as MessageType
    from rocketmq_py.admin.topic_values import Permission as Permission
    from rocketmq_py.admin.topic_values import TopicDescription as TopicDescription
else:
    __all__, __getattr__, __dir__ = lazy_names(
        globals(),
        {
            "access_values": ("AclRule", "User"),
            "admin": ("Admin",),
            "errors": (
                "AccessNotFoundError",
                "AlreadyExistsError",
                "GroupNotFoundError",
                "SomeBrokersFailedError",
            ),
            "group_values": ("GroupDescription",),
            "message_values": ("DeadLetter", "MessageTrack", "TraceEvent", "TraceKind", "TrackType"),
            "resends": ("RESENT_FROM", "RESENT_OFFSET_MESSAGE_ID"),
            "topic_values": ("MessageType", "Permission", "TopicDescription"),
        },
    )
