"""Headers of requests about users and their permissions (ACL), which tools send."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Request


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
