"""Access control: users and rules (ACL 2.0 of 5.x), and the versions of ACL files (ACL 1.0 of 4.x)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

import attrs

from rocketmq_py.admin.access_values import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUPER,
    USER_PREFIX,
    AclConfigVersion,
    AclRule,
    AclRuleListing,
    UserListing,
    rules_of,
    user_of,
)
from rocketmq_py.admin.errors import AccessNotFoundError, AlreadyExistsError
from rocketmq_py.admin.existing import require_same_rule, require_same_user
from rocketmq_py.admin.fan_out import (
    PartialResults,
    change_each,
    change_each_queried,
    query_each,
    require_all,
)
from rocketmq_py.admin.operations import Operations, any_address, call_broker, master_address
from rocketmq_py.arguments import check_flag, check_not_blank, check_text, check_texts, optional
from rocketmq_py.client.features import ACL_1, ACL_2_ONLY
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import (
    AccessDeniedError,
    BrokerError,
    ConfigurationError,
    UnsupportedByBrokerError,
)
from rocketmq_py.protocol.bodies import (
    AclInfo,
    BrokerData,
    DataVersion,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    read_acls,
    read_properties,
    read_users,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    CreateAclRequest,
    CreateUserRequest,
    DeleteAclRequest,
    DeleteUserRequest,
    GetAclVersionAnswer,
    GetAclVersionRequest,
    GetBrokerConfigRequest,
    ListAclsRequest,
    ListUsersRequest,
    UpdateUserRequest,
)
from rocketmq_py.protocol.headers.base import Request

ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All")
"""Actions that a rule can allow or deny. Java: ``Action``."""
NO_USERS_REMARKS = ("An system error occurred", "MetadataProvider is not configured")
"""Parts of a broker's remark if it cannot read its users or rules, as without access control."""
RESOURCES = ("Cluster", "Namespace", "Topic", "Group")

Value = TypeVar("Value", bound=Hashable)


class AccessControl(Operations):
    """``admin.access``: the users and ACL rules of the masters of all brokers.

    All methods raise NameServerError if no name server answers. Changes go to all masters and return the
    names of their brokers. They raise AccessDeniedError or another BrokerError if a broker refuses the
    change, UnsupportedByBrokerError for brokers of 4.x and those whose access control is off, and
    SomeBrokersFailedError if the change failed on some of several brokers. A cancellation does not undo the
    changes that brokers have made by then.

    A change first lists users or rules. A broker that does not let the caller list them receives the change
    nevertheless. Only ``if_not_exists`` needs the listing.
    """

    async def users(self, part: str | None = None) -> UserListing:
        """Return the users (5.x), or those whose name contains ``part``. Java: ``listUser``."""
        header = ListUsersRequest(filter=optional(check_text, part, "part"))
        results = await self._query(header, lambda body: [user_of(one) for one in read_users(body)])
        users = _merged(results)
        return UserListing(
            users=tuple(sorted(users, key=lambda user: (user.name, user.brokers))), failures=results.failures
        )

    async def create_user(
        self, name: str, secret: str, *, is_super: bool = False, if_not_exists: bool = False
    ) -> tuple[str, ...]:
        """Create a user. Java: ``createUser``.

        Args:
            name: the name, which is the user's access key.
            secret: the user's secret key.
            is_super: whether the user may do everything.
            if_not_exists: create it only on the brokers that do not have it. It is no error if the others
                have it with these settings, and enabled, so that the call can be repeated.

        Raises:
            AlreadyExistsError: one of the brokers already has the user. Change it with :meth:`alter_user`.
                With ``if_not_exists``, one of them has it with other settings, and ``differences`` says
                which. Nothing was created.
        """
        check_flag(if_not_exists, "if_not_exists")
        info = UserInfo(
            username=check_not_blank(name, "name"),
            password=check_not_blank(secret, "secret"),
            user_type=_wire_flag(check_flag(is_super, "is_super"), SUPER, NORMAL),
        )
        action = f"creating user {name!r}"
        found = await self._find_user(name)
        users = {broker: user for broker, user in found.values.items() if user is not None}
        if users and not if_not_exists:
            raise AlreadyExistsError("user", name, tuple(users))
        if if_not_exists:
            require_all(found, action)
        require_same_user(name, users, info)
        missing: dict[str, None] = {broker: None for broker, user in found.values.items() if user is None}
        to_change = _with_unlisted(PartialResults(missing, found.failures))
        return await self._change_found(CreateUserRequest(username=name), action, to_change, info.encode())

    async def alter_user(
        self,
        name: str,
        *,
        secret: str | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
    ) -> tuple[str, ...]:
        """Change a user. Arguments that are None keep their value. Java: ``updateUser``.

        Raises AccessNotFoundError if no broker has the user.
        """
        info = UserInfo(
            username=check_not_blank(name, "name"),
            password=optional(check_not_blank, secret, "secret"),
            user_type=_wire_flag(optional(check_flag, is_super, "is_super"), SUPER, NORMAL),
            user_status=_wire_flag(optional(check_flag, is_enabled, "is_enabled"), ENABLED, DISABLED),
        )
        found = _required(await self._find_user(name), "user", name)
        header = UpdateUserRequest(username=name)
        return await self._change_found(header, f"changing user {name!r}", found, info.encode())

    async def delete_user(self, name: str) -> tuple[str, ...]:
        """Delete a user and the user's rules. Java: ``deleteUser``.

        Raises AccessNotFoundError if no broker has the user.
        """
        check_not_blank(name, "name")
        found = _required(await self._find_user(name), "user", name)
        return await self._change_found(DeleteUserRequest(username=name), f"deleting user {name!r}", found)

    async def rules(self, user: str | None = None, resource: str | None = None) -> AclRuleListing:
        """Return ACL rules (5.x). Java: ``listAcl``.

        Args:
            user: only rules of users whose name contains this text.
            resource: only rules for resources whose name contains this text.
        """
        header = ListAclsRequest(
            subject_filter=optional(check_text, user, "user"),
            resource_filter=optional(check_text, resource, "resource"),
        )
        results = await self._query(
            header, lambda body: [rule for acl in read_acls(body) for rule in rules_of(acl)]
        )
        rules = _merged(results)
        return AclRuleListing(
            rules=tuple(sorted(rules, key=lambda rule: (rule.user, rule.resource, rule.brokers))),
            failures=results.failures,
        )

    async def put_rule(
        self,
        user: str,
        resource: str,
        actions: Iterable[str],
        *,
        is_allowed: bool = True,
        source_ips: Iterable[str] = (),
        if_not_exists: bool = False,
    ) -> tuple[str, ...]:
        """Allow or deny a user some actions on a resource. Java: ``createAcl``, ``updateAcl``.

        The rule replaces the user's previous rule for the same resource, unless ``if_not_exists``
        is set.

        Args:
            user: the user's name.
            resource: ``Topic:NAME``, ``Group:NAME``, ``Cluster:NAME``, or ``*`` for all. A name that ends
                with ``*`` is a prefix.
            actions: some of ACTIONS.
            is_allowed: whether the actions are allowed. Otherwise they are denied.
            source_ips: limits the rule to these addresses or networks. Empty for all.
            if_not_exists: create it only on the brokers that have no rule for the resource. It is no error if
                the others have this rule, so that the call can be repeated.

        Raises:
            ConfigurationError: an action or the kind of resource does not exist.
            AlreadyExistsError: with ``if_not_exists``, a broker has another rule for the resource, and
                ``differences`` says how it differs. Nothing was changed.
        """
        check_not_blank(user, "user")
        check_flag(if_not_exists, "if_not_exists")
        entry = PolicyEntryInfo(
            resource=_checked_resource(resource),
            actions=_checked_actions(actions),
            source_ips=check_texts(source_ips, "source_ips"),
            decision="Allow" if check_flag(is_allowed, "is_allowed") else "Deny",
        )
        policies = (PolicyInfo(policy_type="Custom", entries=(entry,)),)
        body = AclInfo(subject=USER_PREFIX + user, policies=policies).encode()
        missing = None
        if if_not_exists:
            missing = await self._brokers_without_rule(user, entry)
        header = CreateAclRequest(subject=USER_PREFIX + user)
        return await self._change(header, f"setting a rule of user {user!r}", body, missing)

    async def delete_rules(self, user: str, resource: str | None = None) -> tuple[str, ...]:
        """Delete the rules of a user: all of them, or those for one resource. Java: ``deleteAcl``.

        Raises AccessNotFoundError if no broker has such a rule.
        """
        check_not_blank(user, "user")
        optional(_checked_resource, resource, "resource")
        rules = await self._find_rules(user, resource)
        found = _required(rules, "rule", f"{user} on {resource or 'any resource'}")
        header = DeleteAclRequest(subject=USER_PREFIX + user, policy_type="Custom", resource=resource)
        return await self._change_found(header, f"deleting rules of user {user!r}", found)

    async def acl_config_versions(self) -> PartialResults[str, AclConfigVersion]:
        """Return the version of each broker's ACL files, by broker name (ACL 1.0 of 4.x).

        Brokers whose access control is off, before 4.5.0 and from 5.3.3 on fail with
        UnsupportedByBrokerError. Java: ``clusterAclConfigVersion``.
        """
        brokers = await self._select_brokers()

        async def query(name: str) -> AclConfigVersion:
            address = any_address(brokers[name])
            await self._require_acl_1(address)
            answer = await call_broker(self._client, address, GetAclVersionRequest())
            text = GetAclVersionAnswer.from_fields(answer.fields).version
            version = DataVersion.decode(text.encode())
            return AclConfigVersion(changes=version.counter, changed_ms=version.timestamp)

        return await query_each(brokers, query)

    async def _require_acl_1(self, address: str) -> None:
        """Raise UnsupportedByBrokerError if a broker would not answer, because its access control is off."""
        version = await self._client.brokers.version(address)
        if ACL_1.is_supported_by(version) and version < ACL_2_ONLY:
            answer = await call_broker(self._client, address, GetBrokerConfigRequest())
            if read_properties(answer.body).get("aclEnable") == "false":
                raise UnsupportedByBrokerError(
                    f"{address} keeps no ACL files: its access control is off. Set aclEnable=true in its "
                    "settings, and restart it"
                )

    async def _query(
        self, header: Request, decode: Callable[[bytes], Iterable[Value]]
    ) -> PartialResults[str, tuple[Value, ...]]:
        brokers = await self._select_brokers()

        async def query(name: str) -> tuple[Value, ...]:
            answer = await self._call(brokers[name], header)
            return tuple(decode(answer.body))

        return await query_each(brokers, query)

    async def _call(self, broker: BrokerData, header: Request, body: bytes = b"") -> Command:
        """Send a request to a broker's master. Raises as the class says."""
        address = master_address(broker)
        try:
            return await call_broker(self._client, address, header, body)
        except BrokerError as error:
            remark = error.remark or ""
            if error.code != ResponseCode.SYSTEM_ERROR or not any(one in remark for one in NO_USERS_REMARKS):
                raise
        raise UnsupportedByBrokerError(
            f"{address} keeps no users and rules: its access control is off. Set authenticationEnabled, "
            "authorizationEnabled, authenticationMetadataProvider and authorizationMetadataProvider in its "
            "settings, and restart it. Otherwise its log has the error"
        )

    async def _find_user(self, name: str) -> PartialResults[str, UserInfo | None]:
        """Return the user on each broker, None where it does not exist."""

        def find(body: bytes) -> Iterable[UserInfo | None]:
            return [next((user for user in read_users(body) if user.username == name), None)]

        return _single(await self._query(ListUsersRequest(filter=name), find))

    async def _find_rules(self, user: str, resource: str | None) -> PartialResults[str, AclRule | None]:
        """Return a user's first rule for a resource, or for any, on each broker. None where there is none."""

        def find(body: bytes) -> Iterable[AclRule | None]:
            rules = [
                rule
                for acl in read_acls(body)
                if acl.subject == USER_PREFIX + user
                for rule in rules_of(acl)
                if not rule.is_default and resource in (None, rule.resource)
            ]
            return rules[:1] or [None]

        header = ListAclsRequest(subject_filter=user, resource_filter=None)
        return _single(await self._query(header, find))

    async def _brokers_without_rule(self, user: str, wanted: PolicyEntryInfo) -> list[str]:
        """Return the brokers without a rule for a resource. Raises AlreadyExistsError if one has another."""
        found = require_all(
            await self._find_rules(user, wanted.resource), f"looking for rules of user {user!r}"
        )
        rules = {broker: rule for broker, rule in found.items() if rule is not None}
        require_same_rule(user, rules, wanted)
        return [broker for broker in found if broker not in rules]

    async def _change_found(
        self, header: Request, action: str, found: PartialResults[str, None], body: bytes = b""
    ) -> tuple[str, ...]:
        """Send a change to the masters of the brokers in ``found``, whose failures count as its own."""
        brokers = await self._select_brokers(tuple(found.values))

        async def change(name: str, _: None) -> None:
            await self._call(brokers[name], header, body)

        return tuple(await change_each_queried(found, change, action))

    async def _change(
        self, header: Request, action: str, body: bytes = b"", names: Iterable[str] | None = None
    ) -> tuple[str, ...]:
        """Send a change to all masters, or those of ``names``, and return the names of their brokers."""
        brokers: Mapping[str, BrokerData] = await self._select_brokers(names)

        async def change(name: str) -> None:
            await self._call(brokers[name], header, body)

        return tuple(await change_each(brokers, change, action))


def _single(results: PartialResults[str, tuple[Value, ...]]) -> PartialResults[str, Value]:
    """Return the only value of each broker."""
    return PartialResults({name: values[0] for name, values in results.values.items()}, results.failures)


def _required(found: PartialResults[str, Value | None], kind: str, name: str) -> PartialResults[str, None]:
    """Return the brokers that have a user or rule, or may have it, and the failures of others.

    Raises AccessNotFoundError if all brokers have answered, and none has it.
    """
    having = [broker for broker, value in found.values.items() if value is not None]
    if not having and not found.failures:
        raise AccessNotFoundError(kind, name, tuple(found.values))
    return _with_unlisted(PartialResults(dict.fromkeys(having), found.failures))


def _with_unlisted(found: PartialResults[str, None]) -> PartialResults[str, None]:
    """Add the brokers that refused to list users or rules. The change itself may be allowed."""
    refusals = (AccessDeniedError, UnsupportedByBrokerError)
    unlisted = [name for name, error in found.failures.items() if isinstance(error, refusals)]
    failures = {name: error for name, error in found.failures.items() if name not in unlisted}
    return PartialResults(dict.fromkeys(sorted([*found.values, *unlisted])), failures)


def _merged(results: PartialResults[str, tuple[Value, ...]]) -> list[Value]:
    """Return each user or rule once, with all the brokers that have it."""
    brokers: defaultdict[Value, list[str]] = defaultdict(list)
    for name, values in results.values.items():
        for value in values:
            brokers[value].append(name)
    return [attrs.evolve(value, brokers=tuple(sorted(names))) for value, names in brokers.items()]  # type: ignore[misc]


def _wire_flag(flag: bool | None, if_true: str, if_false: str) -> str | None:
    """Return a flag as brokers expect it. None leaves the user's setting unchanged."""
    if flag is None:
        return None
    return if_true if flag else if_false


def _checked_actions(actions: Iterable[str]) -> tuple[str, ...]:
    known = {action.lower(): action for action in ACTIONS}
    checked = []
    for action in check_texts(actions, "actions"):
        if action.lower() not in known:
            raise ConfigurationError(f"action {action!r} does not exist; actions: {', '.join(ACTIONS)}")
        checked.append(known[action.lower()])
    if not checked:
        raise ConfigurationError("actions is empty; a rule needs at least one action")
    return tuple(dict.fromkeys(checked))


def _checked_resource(resource: str, name: str = "resource") -> str:
    check_text(resource, name)
    kind, _, rest = resource.partition(":")
    if resource != "*" and (kind not in RESOURCES or not rest):
        raise ConfigurationError(
            f"{name} is {resource!r}; it must be Topic:NAME, Group:NAME, Cluster:NAME, a prefix such as "
            "Topic:PREFIX*, or *"
        )
    return resource
