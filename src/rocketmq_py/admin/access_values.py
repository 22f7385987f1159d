"""Values of access control: users and rules (ACL 2.0 of 5.x), and versions of ACL files (ACL 1.0 of 4.x)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from rocketmq_py.admin.fan_out import Listing
from rocketmq_py.errors import RocketMQError
from rocketmq_py.protocol.bodies import AclInfo, UserInfo

ENABLED: Final = "enable"
DISABLED: Final = "disable"
SUPER: Final = "Super"
NORMAL: Final = "Normal"
USER_PREFIX: Final = "User:"


@attrs.frozen(kw_only=True)
class User:
    """A user, without its secret key, which brokers also return. Java: ``UserInfo``.

    Attributes:
        name: the name, which is the user's access key.
        is_super: whether the user may do everything.
        is_enabled: whether the user is enabled. Brokers reject a user that is not.
        brokers: the names of the brokers that have this user with these values, sorted.
    """

    name: str
    is_super: bool
    is_enabled: bool
    brokers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class AclRule:
    """A rule that allows or denies a user some actions on a resource. Java: ``AclInfo``.

    Attributes:
        user: the user's name.
        resource: such as ``Topic:Orders``, ``Group:bill*``, ``Cluster:*``, or ``*`` for all.
        actions: some of ACTIONS.
        is_allowed: whether the actions are allowed. Otherwise they are denied.
        source_ips: the addresses or networks that the rule is limited to. Empty for all.
        is_default: whether the rule applies only where no other rule does.
        brokers: the names of the brokers that have this rule, sorted.
    """

    user: str
    resource: str
    actions: tuple[str, ...]
    is_allowed: bool
    source_ips: tuple[str, ...] = ()
    is_default: bool = False
    brokers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class UserListing(Listing[User]):
    """Users, sorted by name. ``failures`` has the error of each broker that did not answer, by its name."""

    users: tuple[User, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[User, ...]:
        return self.users


@attrs.frozen(kw_only=True)
class AclRuleListing(Listing[AclRule]):
    """Rules, sorted by user and resource.

    ``failures`` has the error of each broker that did not answer, by its name.
    """

    rules: tuple[AclRule, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[AclRule, ...]:
        return self.rules


@attrs.frozen(kw_only=True)
class AclConfigVersion:
    """The version of a 4.x broker's ACL files. Java: ``clusterAclConfigVersion``.

    Attributes:
        changes: number of changes since the broker started.
        changed_ms: time of the last change, epoch milliseconds.
    """

    changes: int
    changed_ms: int


def user_of(info: UserInfo) -> User:
    """Return the user in a broker's answer."""
    return User(
        name=info.username or "",
        is_super=info.user_type == SUPER,
        is_enabled=info.user_status != DISABLED,
    )


def rules_of(acl: AclInfo) -> list[AclRule]:
    """Return the rules in a broker's answer."""
    return [
        AclRule(
            user=(acl.subject or "").removeprefix(USER_PREFIX),
            resource=entry.resource,
            actions=entry.actions,
            is_allowed=entry.decision == "Allow",
            source_ips=entry.source_ips,
            is_default=policy.policy_type == "Default",
        )
        for policy in acl.policies
        for entry in policy.entries
    ]
