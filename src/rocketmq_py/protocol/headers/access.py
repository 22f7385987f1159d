"""Headers of what tools ask about users and what they may do."""

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
    """Delete a user (5.x), with all that it may do. Java: ``DeleteUserRequestHeader``."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_USER

    username: str


class ListUsersRequest(Request, frozen=True, kw_only=True):
    """Ask for users (5.x): a list of ``UserInfo``, or nothing. Java: ``ListUsersRequestHeader``.

    Attributes:
        filter: only those with this in their name.
    """

    code: ClassVar[int] = RequestCode.AUTH_LIST_USER

    filter: str | None = None


class CreateAclRequest(Request, frozen=True, kw_only=True):
    """Say what a user may do (5.x); the body is an ``AclInfo``. Java: ``CreateAclRequestHeader``.

    Attributes:
        subject: such as ``User:alice``.
    """

    code: ClassVar[int] = RequestCode.AUTH_CREATE_ACL

    subject: str


class DeleteAclRequest(Request, frozen=True, kw_only=True):
    """Forget what a user may do (5.x). Java: ``DeleteAclRequestHeader``.

    Attributes:
        subject: such as ``User:alice``.
        policy_type: Custom or Default; Custom if it is missing.
        resource: only with this; None for all.
    """

    code: ClassVar[int] = RequestCode.AUTH_DELETE_ACL

    subject: str
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequest(Request, frozen=True, kw_only=True):
    """Ask what users may do (5.x): a list of ``AclInfo``, or nothing. Java: ``ListAclsRequestHeader``.

    Attributes:
        subject_filter: only of those with this in their name.
        resource_filter: only with resources with this in their name.
    """

    code: ClassVar[int] = RequestCode.AUTH_LIST_ACL

    subject_filter: str | None = None
    resource_filter: str | None = None


class GetAclVersionRequest(Request, frozen=True, kw_only=True):
    """Ask which state of its file of accounts a broker of 4.x has. It has no header in Java."""

    code: ClassVar[int] = RequestCode.GET_BROKER_CLUSTER_ACL_INFO


class GetAclVersionAnswer(Header, frozen=True, kw_only=True):
    """Which state of its files a broker has. Java: ``GetBrokerAclConfigResponseHeader``.

    Attributes:
        version: a ``DataVersion`` as JSON.
        all_versions: the same of each file, as a JSON object by path (from 4.9.4 on).
    """

    version: str
    all_versions: str | None = msgspec.field(default=None, name="allAclFileVersion")
