"""Users, access rules, and authentication of requests (ACL 2.0 of 5.x).

Java: ``DefaultAuthenticationHandler``, ``AuthenticationMetadataManagerImpl``,
``AuthorizationMetadataManagerImpl``.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.credentials import ACCESS_KEY, SIGNATURE, signature
from rocketmq_py.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketmq_py.protocol.bodies.base import Body
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    CreateAclRequest,
    CreateUserRequest,
    DeleteAclRequest,
    DeleteUserRequest,
    ListAclsRequest,
    ListUsersRequest,
    UpdateUserRequest,
)
from rocketmq_py.remoting import Connection

SUPER, NORMAL = "Super", "Normal"
ENABLED, DISABLED = "enable", "disable"
CUSTOM, DEFAULT = "Custom", "Default"
_USER = "User:"
_RESOURCES = ("Unknown", "Any", "Cluster", "Namespace", "Topic", "Group")
_ACTIONS = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
_DECISIONS = ("Allow", "Deny")

_B = TypeVar("_B", bound=Body)


class AccessControl:
    """Authenticates requests by their signature, and answers requests about users and rules.

    Every authenticated user may do everything. Rules are stored and listed, but not enforced, as on a broker
    with ``authorizationEnabled=false``.

    Args:
        access_keys: the secret keys of the first users, by access key. They are super users. Without any,
            requests are not authenticated, and requests about users are refused, as on real brokers.
    """

    def __init__(self, access_keys: Mapping[str, str]) -> None:
        self._users = {
            name: UserInfo(username=name, password=secret, user_type=SUPER, user_status=ENABLED)
            for name, secret in access_keys.items()
        }
        self._rules: dict[str, AclInfo] = {}
        self.is_enabled: bool = bool(access_keys)
        """Whether requests must be authenticated."""

    def authenticate(self, request: Command) -> None:
        """Raise Refusal if the request is not signed by an enabled user."""
        fields = request.fields
        access_key = fields.get(ACCESS_KEY)
        if not access_key:
            raise _refusal("username cannot be null.")
        user = self._users.get(access_key)
        if user is None:
            raise _refusal(f"User:{access_key} is not found.")
        if user.user_status == DISABLED:
            raise _refusal(f"User:{access_key} is disabled.")
        expected = signature(user.password or "", fields, request.body)
        received = fields.get(SIGNATURE, "")
        if not hmac.compare_digest(expected.encode(), received.encode(errors="replace")):
            raise _refusal("check signature failed.")

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        handlers: Mapping[int, Callable[[Command], bytes]] = {
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_CREATE_ACL: self._put_rules,
            RequestCode.AUTH_UPDATE_ACL: self._put_rules,
            RequestCode.AUTH_DELETE_ACL: self._delete_rules,
            RequestCode.AUTH_LIST_ACL: self._list_rules,
        }
        return {code: self._answer_with_body(handle) for code, handle in handlers.items()}

    def _answer_with_body(self, handle: Callable[[Command], bytes]) -> RequestHandler:
        def answer(connection: Connection, request: Command) -> None:
            if not self.is_enabled and request.code == RequestCode.AUTH_LIST_ACL:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    "java.lang.IllegalStateException: The authorizationMetadataProvider is not configured",
                )
            if not self.is_enabled:
                raise Refusal(ResponseCode.SYSTEM_ERROR, "An system error occurred, please try again later.")
            connection.respond(request, ResponseCode.SUCCESS, body=handle(request))

        return answer

    # Users

    def _create_user(self, request: Command) -> bytes:
        name = CreateUserRequest.from_fields(request.fields).username
        user = _decode_user(name, request)
        self._check_may_change(user.user_type, "create", request)
        if not (user.password or "").strip():
            raise _refusal("password can not be blank")
        if name in self._users:
            raise _refusal("The user is existed")
        self._users[name] = msgspec.structs.replace(
            user, user_type=user.user_type or NORMAL, user_status=user.user_status or ENABLED
        )
        return b""

    def _update_user(self, request: Command) -> bytes:
        name = UpdateUserRequest.from_fields(request.fields).username
        user = _decode_user(name, request)
        self._check_may_change(user.user_type, "update", request)
        old = self._users.get(name)
        if old is None:
            raise _refusal("The user is not exist")
        self._check_may_change(old.user_type, "update", request)
        self._users[name] = msgspec.structs.replace(
            old,
            password=user.password if (user.password or "").strip() else old.password,
            user_type=user.user_type or old.user_type,
            user_status=user.user_status or old.user_status,
        )
        return b""

    def _delete_user(self, request: Command) -> bytes:
        name = DeleteUserRequest.from_fields(request.fields).username
        if name in self._users:
            self._check_may_change(self._users[name].user_type, "update", request)
            del self._users[name]
            self._rules.pop(_USER + name, None)
        return b""

    def _list_users(self, request: Command) -> bytes:
        name_filter = ListUsersRequest.from_fields(request.fields).filter or ""
        return _encode_list([user for name, user in sorted(self._users.items()) if name_filter in name])

    def _check_may_change(self, user_type: str | None, verb: str, request: Command) -> None:
        """Raise Refusal if the user is a super user, and the requesting user is not."""
        requester = self._users.get(request.fields.get(ACCESS_KEY, ""))
        if user_type == SUPER and requester is not None and requester.user_type != SUPER:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The super user can only be {verb} by super user")

    # Rules

    def _put_rules(self, request: Command) -> bytes:
        subject = CreateAclRequest.from_fields(request.fields).subject
        acl = AclInfo.decode(request.body) if request.body else AclInfo()
        if not acl.policies:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        subject = acl.subject or subject
        if not subject.startswith(_USER):
            raise _refusal("The subject type is null.")
        new_entries = [
            (_normalize((CUSTOM, DEFAULT), policy.policy_type) or CUSTOM, _validate(entry))
            for policy in acl.policies
            for entry in policy.entries
        ]
        if not new_entries:
            raise _refusal("The policy entries is empty.")
        if subject.removeprefix(_USER) not in self._users:
            raise _refusal(f"The subject of {subject} is not exist.")
        entries = {(kind, entry.resource): entry for kind, entry in self._entries(subject)}
        entries.update({(kind, entry.resource): entry for kind, entry in new_entries})
        self._set_entries(subject, [(kind, entry) for (kind, _), entry in entries.items()])
        return b""

    def _delete_rules(self, request: Command) -> bytes:
        header = DeleteAclRequest.from_fields(request.fields)
        kind = _normalize((CUSTOM, DEFAULT), header.policy_type) or CUSTOM
        if header.subject.removeprefix(_USER) not in self._users:
            raise _refusal("The subject is not exist.")
        if header.subject not in self._rules:
            raise _refusal("The acl is not exist.")
        resource = _normalize_resource(header.resource or "")
        entries = [] if resource is None else self._entries(header.subject)
        self._set_entries(
            header.subject, [each for each in entries if (each[0], each[1].resource) != (kind, resource)]
        )
        return b""

    def _list_rules(self, request: Command) -> bytes:
        header = ListAclsRequest.from_fields(request.fields)
        resource_filter = header.resource_filter or ""
        rules = []
        for subject in sorted(self._rules):
            if (header.subject_filter or "") not in subject:
                continue
            # As in Java, all resources of a subject are listed if its own name contains the resource filter.
            entries = [
                (kind, entry)
                for kind, entry in self._entries(subject)
                if resource_filter in entry.resource or resource_filter in subject
            ]
            if entries:
                rules.append(AclInfo(subject=subject, policies=_policies(entries)))
        return _encode_list(rules)

    def _entries(self, subject: str) -> list[tuple[str, PolicyEntryInfo]]:
        """Return the rules of a subject with the type of their policy."""
        policies = self._rules[subject].policies if subject in self._rules else ()
        return [(policy.policy_type or CUSTOM, entry) for policy in policies for entry in policy.entries]

    def _set_entries(self, subject: str, entries: Sequence[tuple[str, PolicyEntryInfo]]) -> None:
        if entries:
            self._rules[subject] = AclInfo(subject=subject, policies=_policies(entries))
        else:
            self._rules.pop(subject, None)


def _policies(entries: Iterable[tuple[str, PolicyEntryInfo]]) -> tuple[PolicyInfo, ...]:
    by_kind: dict[str, list[PolicyEntryInfo]] = {}
    for kind, entry in entries:
        by_kind.setdefault(kind, []).append(entry)
    return tuple([PolicyInfo(policy_type=kind, entries=tuple(some)) for kind, some in by_kind.items()])


def _decode_user(name: str, request: Command) -> UserInfo:
    """Return the user in the body of a request. Raises Refusal if the name is empty."""
    if not name:
        raise Refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
    user = UserInfo.decode(request.body)
    return msgspec.structs.replace(
        user,
        username=name,
        user_type=_normalize((SUPER, NORMAL), user.user_type),
        user_status=_normalize((ENABLED, DISABLED), user.user_status),
    )


def _validate(entry: PolicyEntryInfo) -> PolicyEntryInfo:
    """Return a rule in Java's spelling. Raises Refusal if it is invalid."""
    resource = _normalize_resource(entry.resource)
    if resource is None:
        raise _refusal("The resource is null.")
    if any(action.lower() == "any" for action in entry.actions):
        raise _refusal("The actions can not be Any.")
    actions = [known for action in entry.actions if (known := _normalize(_ACTIONS, action))]
    if not actions:
        raise _refusal("The actions is empty.")
    for address in entry.source_ips:
        try:
            ipaddress.ip_network(address, strict=False)
        except ValueError:
            raise _refusal("The source ip is invalid.") from None
    decision = _normalize(_DECISIONS, entry.decision)
    if decision is None:
        raise _refusal("The decision is null or illegal.")
    return msgspec.structs.replace(entry, resource=resource, actions=tuple(actions), decision=decision)


def _normalize_resource(text: str) -> str | None:
    """Return a resource in Java's spelling, or None if it is invalid. Java: ``Resource.of``."""
    if text == "*":
        return text
    kind, _, name = text.partition(":")
    known = _normalize(_RESOURCES, kind)
    return None if known is None else f"{known}:{name}"


def _normalize(known: Iterable[str], text: str | None) -> str | None:
    """Return the known value that equals ``text`` except for case; None if there is none."""
    return next((each for each in known if each.lower() == (text or "").lower()), None)


def _encode_list(values: Sequence[_B]) -> bytes:
    return b"[" + b",".join([value.encode() for value in values]) + b"]" if values else b""


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark)
