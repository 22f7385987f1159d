"""The settings of consumer groups (Java: ``SubscriptionGroupManager``)."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.topics import group_fault
from rocketmq_py.protocol.bodies import SubscriptionGroupConfig

_OWN_GROUPS = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
)  # fmt: skip


class SubscriptionGroupTable:
    """The groups that the broker knows; ``autoCreateSubscriptionGroup`` makes unknown ones known.

    Attributes:
        changes: how often a group was added, changed or forgotten.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._groups = {name: SubscriptionGroupConfig(group_name=name) for name in _OWN_GROUPS}
        self.changes: int = 0

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._groups.values())

    def knows(self, group: str) -> bool:
        """Tell whether the group is known, without making it so."""
        return group in self._groups

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group's settings; None if it is unknown. It is not created."""
        return self._groups.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group's settings; None if it is unknown and is not created, or its name is not allowed."""
        found = self._groups.get(group)
        if found is None and self._config.auto_create_subscription_group and group_fault(group) is None:
            found = SubscriptionGroupConfig(group_name=group)
            self.put(found)
        return found

    def put(self, group: SubscriptionGroupConfig) -> None:
        """Add a group, or change it."""
        self._groups[group.group_name] = group
        self.changes += 1

    def delete(self, group: str) -> None:
        """Forget a group; nothing happens if it is not known."""
        if self._groups.pop(group, None) is not None:
            self.changes += 1
