"""Users, and what is noted of what they may do (ACL 2.0 of 5.x).

Java: ``AuthenticationMetadataManagerImpl``, ``AuthorizationMetadataManagerImpl``. As on a broker with
``authorizationEnabled=false``, rules are kept and told, and bind nobody.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.credentials import ACCESS_KEY
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

Value = TypeVar("Value", bound=Body)


class Accounts:
    """Answers what tools ask about users and rules.

    Args:
        access_keys: the secret keys of the first users, super users all, by their access keys. Without any
            the broker checks nobody and knows no users, and refuses to be asked about them, as real ones do.
    """

    def __init__(self, access_keys: Mapping[str, str]) -> None:
        self._is_on = bool(access_keys)
        self._users = {
            name: UserInfo(username=name, password=secret, user_type=SUPER, user_status=ENABLED)
            for name, secret in access_keys.items()
        }
        self._rules: dict[str, AclInfo] = {}

    def user(self, name: str) -> UserInfo | None:
        """Return a user, with its password."""
        return self._users.get(name)

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
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
        return {code: self._answering(handle) for code, handle in handlers.items()}

    def _answering(self, handle: Callable[[Command], bytes]) -> RequestHandler:
        def answer(connection: Connection, request: Command) -> None:
            if not self._is_on:
                raise Refusal(ResponseCode.SYSTEM_ERROR, "An system error occurred, please try again later.")
            connection.respond(request, ResponseCode.SUCCESS, body=handle(request))

        return answer

    # Users

    def _create_user(self, request: Command) -> bytes:
        name = CreateUserRequest.from_fields(request.fields).username
        user = _user(name, request)
        self._check_is_super(request, user.user_type, "create")
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
        user = _user(name, request)
        self._check_is_super(request, user.user_type, "update")
        old = self._users.get(name)
        if old is None:
            raise _refusal("The user is not exist")
        self._check_is_super(request, old.user_type, "update")
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
            self._check_is_super(request, self._users[name].user_type, "update")
            del self._users[name]
            self._rules.pop(_USER + name, None)
        return b""

    def _list_users(self, request: Command) -> bytes:
        part = ListUsersRequest.from_fields(request.fields).filter or ""
        return _listed([user for name, user in sorted(self._users.items()) if part in name])

    def _check_is_super(self, request: Command, user_type: str | None, verb: str) -> None:
        """Raise Refusal if it is about a super user, and who asks is none."""
        asking = self._users.get(request.fields.get(ACCESS_KEY, ""))
        if user_type == SUPER and asking is not None and asking.user_type != SUPER:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The super user can only be {verb} by super user")

    # Rules

    def _put_rules(self, request: Command) -> bytes:
        subject = CreateAclRequest.from_fields(request.fields).subject
        new = AclInfo.decode(request.body) if request.body else AclInfo()
        if not new.policies:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        subject = new.subject or subject
        if not subject.startswith(_USER):
            raise _refusal("The subject type is null.")
        entries = [
            (_one_of((CUSTOM, DEFAULT), policy.policy_type) or CUSTOM, _checked(entry))
            for policy in new.policies
            for entry in policy.entries
        ]
        if not entries:
            raise _refusal("The policy entries is empty.")
        if subject.removeprefix(_USER) not in self._users:
            raise _refusal(f"The subject of {subject} is not exist.")
        kept = {(kind, entry.resource): entry for kind, entry in self._entries(subject)}
        kept.update({(kind, entry.resource): entry for kind, entry in entries})
        self._keep(subject, [(kind, entry) for (kind, _), entry in kept.items()])
        return b""

    def _delete_rules(self, request: Command) -> bytes:
        header = DeleteAclRequest.from_fields(request.fields)
        kind = _one_of((CUSTOM, DEFAULT), header.policy_type) or CUSTOM
        if header.subject.removeprefix(_USER) not in self._users:
            raise _refusal("The subject is not exist.")
        if header.subject not in self._rules:
            raise _refusal("The acl is not exist.")
        resource = _resource(header.resource or "")
        kept = [] if resource is None else self._entries(header.subject)
        self._keep(header.subject, [one for one in kept if (one[0], one[1].resource) != (kind, resource)])
        return b""

    def _list_rules(self, request: Command) -> bytes:
        header = ListAclsRequest.from_fields(request.fields)
        part = header.resource_filter or ""
        rules = []
        for subject in sorted(self._rules):
            if (header.subject_filter or "") not in subject:
                continue
            # As in Java, who has the filter of resources in the own name is shown with all of them.
            entries = [
                (kind, entry)
                for kind, entry in self._entries(subject)
                if part in entry.resource or part in subject
            ]
            if entries:
                rules.append(AclInfo(subject=subject, policies=_policies(entries)))
        return _listed(rules)

    def _entries(self, subject: str) -> list[tuple[str, PolicyEntryInfo]]:
        policies = self._rules[subject].policies if subject in self._rules else ()
        return [(policy.policy_type or CUSTOM, entry) for policy in policies for entry in policy.entries]

    def _keep(self, subject: str, entries: Sequence[tuple[str, PolicyEntryInfo]]) -> None:
        if entries:
            self._rules[subject] = AclInfo(subject=subject, policies=_policies(entries))
        else:
            self._rules.pop(subject, None)


def _policies(entries: Iterable[tuple[str, PolicyEntryInfo]]) -> tuple[PolicyInfo, ...]:
    by_kind: dict[str, list[PolicyEntryInfo]] = {}
    for kind, entry in entries:
        by_kind.setdefault(kind, []).append(entry)
    return tuple([PolicyInfo(policy_type=kind, entries=tuple(some)) for kind, some in by_kind.items()])


def _user(name: str, request: Command) -> UserInfo:
    """Return the user that a request's body is about."""
    if not name:
        raise Refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
    info = UserInfo.decode(request.body)
    return msgspec.structs.replace(
        info,
        username=name,
        user_type=_one_of((SUPER, NORMAL), info.user_type),
        user_status=_one_of((ENABLED, DISABLED), info.user_status),
    )


def _checked(entry: PolicyEntryInfo) -> PolicyEntryInfo:
    """Return an entry as Java writes it. Raises Refusal."""
    resource = _resource(entry.resource)
    if resource is None:
        raise _refusal("The resource is null.")
    if any(action.lower() == "any" for action in entry.actions):
        raise _refusal("The actions can not be Any.")
    actions = [known for action in entry.actions if (known := _one_of(_ACTIONS, action))]
    if not actions:
        raise _refusal("The actions is empty.")
    for address in entry.source_ips:
        try:
            ipaddress.ip_network(address, strict=False)
        except ValueError:
            raise _refusal("The source ip is invalid.") from None
    decision = _one_of(_DECISIONS, entry.decision)
    if decision is None:
        raise _refusal("The decision is null or illegal.")
    return msgspec.structs.replace(entry, resource=resource, actions=tuple(actions), decision=decision)


def _resource(text: str) -> str | None:
    """Return a resource as Java writes it; None if it is none. Java: ``Resource.of``."""
    if text == "*":
        return text
    kind, _, name = text.partition(":")
    known = _one_of(_RESOURCES, kind)
    return None if known is None else f"{known}:{name}"


def _one_of(known: Iterable[str], text: str | None) -> str | None:
    return next((one for one in known if one.lower() == (text or "").lower()), None)


def _listed(values: Sequence[Value]) -> bytes:
    return b"[" + b",".join([value.encode() for value in values]) + b"]" if values else b""


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark)
