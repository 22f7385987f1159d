"""Users and the rules of their permissions (5.x)."""

from __future__ import annotations

from rocketmq_py.protocol import fastjson
from rocketmq_py.protocol.bodies.base import Body, convert
from rocketmq_py.protocol.decode_errors import decoder


class UserInfo(Body, frozen=True, kw_only=True):
    """A user. Java: ``UserInfo``.

    Attributes:
        username: the name, which is the access key.
        password: the secret key. Brokers include it in their answers.
        user_type: Super or Normal.
        user_status: enable or disable.
    """

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        # Without the password, which must not get into logs.
        return f"UserInfo(username={self.username!r}, user_type={self.user_type!r})"


class PolicyEntryInfo(Body, frozen=True, kw_only=True):
    """A rule: the permissions of a user on one resource. Java: ``AclInfo.PolicyEntryInfo``.

    Attributes:
        resource: the resource, such as ``Topic:Orders``, ``Group:bill*`` or ``Cluster:*``.
        actions: Pub, Sub, Create, Update, Delete, Get, List or All.
        source_ips: the addresses or networks from which the entry applies; empty for all.
        decision: Allow or Deny.
    """

    resource: str
    actions: tuple[str, ...] = ()
    source_ips: tuple[str, ...] = ()
    decision: str | None = None


class PolicyInfo(Body, frozen=True, kw_only=True):
    """A user's rules of one policy type. Java: ``AclInfo.PolicyInfo``.

    Attributes:
        policy_type: Custom, or Default for entries that apply if no Custom entry does.
        entries: the rules, one for each resource.
    """

    policy_type: str | None = None
    entries: tuple[PolicyEntryInfo, ...] = ()


class AclInfo(Body, frozen=True, kw_only=True):
    """All rules of a user. Java: ``AclInfo``.

    Attributes:
        subject: the user, such as ``User:alice``.
        policies: the rules, one item for each policy type.
    """

    subject: str | None = None
    policies: tuple[PolicyInfo, ...] = ()


@decoder("a list of users")
def read_users(data: bytes) -> tuple[UserInfo, ...]:
    """Return the users in the answer to AUTH_LIST_USER, or raise ProtocolError. No body means no users."""
    return convert(fastjson.loads(data), tuple[UserInfo, ...]) if data else ()


@decoder("a list of rules")
def read_acls(data: bytes) -> tuple[AclInfo, ...]:
    """Return each user's rules in the answer to AUTH_LIST_ACL, or raise ProtocolError. No body means none."""
    return convert(fastjson.loads(data), tuple[AclInfo, ...]) if data else ()
