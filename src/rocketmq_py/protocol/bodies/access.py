"""Users, and what they may do (5.x)."""

from __future__ import annotations

from rocketmq_py.protocol import fastjson
from rocketmq_py.protocol.bodies.base import Body, convert
from rocketmq_py.protocol.decoding import decoder


class UserInfo(Body, frozen=True, kw_only=True):
    """A user. Java: ``UserInfo``.

    Attributes:
        username: the name, which is the access key.
        password: the secret key; brokers tell it, too.
        user_type: Super or Normal.
        user_status: enable or disable.
    """

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo(username={self.username!r}, user_type={self.user_type!r})"


class PolicyEntryInfo(Body, frozen=True, kw_only=True):
    """What may be done with a resource. Java: ``AclInfo.PolicyEntryInfo``.

    Attributes:
        resource: such as ``Topic:Orders``, ``Group:bill*`` or ``Cluster:*``.
        actions: Pub, Sub, Create, Update, Delete, Get, List or All.
        source_ips: only from these addresses or networks; empty for all.
        decision: Allow or Deny.
    """

    resource: str
    actions: tuple[str, ...] = ()
    source_ips: tuple[str, ...] = ()
    decision: str | None = None


class PolicyInfo(Body, frozen=True, kw_only=True):
    """Entries of one kind. Java: ``AclInfo.PolicyInfo``.

    Attributes:
        policy_type: Custom, or Default for what holds where no other entry does.
        entries: what may be done.
    """

    policy_type: str | None = None
    entries: tuple[PolicyEntryInfo, ...] = ()


class AclInfo(Body, frozen=True, kw_only=True):
    """What a user may do. Java: ``AclInfo``.

    Attributes:
        subject: such as ``User:alice``.
        policies: by kind.
    """

    subject: str | None = None
    policies: tuple[PolicyInfo, ...] = ()


@decoder("a list of users")
def read_users(data: bytes) -> tuple[UserInfo, ...]:
    """Return the answer to AUTH_LIST_USER, or raise ProtocolError."""
    return convert(fastjson.loads(data), tuple[UserInfo, ...]) if data else ()


@decoder("a list of rules")
def read_acls(data: bytes) -> tuple[AclInfo, ...]:
    """Return the answer to AUTH_LIST_ACL, or raise ProtocolError."""
    return convert(fastjson.loads(data), tuple[AclInfo, ...]) if data else ()
