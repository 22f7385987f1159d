"""Access control: users and rules (ACL 2.0 of 5.x), and the versions of ACL files (ACL 1.0 of 4.x)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

import attrs

from rocketmq_py.admin.fan_out import Listing, PartialResults, change_each, query_each
from rocketmq_py.admin.operations import Operations, any_address, call_broker, master_address
from rocketmq_py.arguments import check_flag, check_not_blank, check_text, check_texts, optional
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.protocol.bodies import (
    AclInfo,
    BrokerData,
    DataVersion,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    read_acls,
    read_users,
)
from rocketmq_py.protocol.headers import (
    CreateAclRequest,
    CreateUserRequest,
    DeleteAclRequest,
    DeleteUserRequest,
    GetAclVersionAnswer,
    GetAclVersionRequest,
    ListAclsRequest,
    ListUsersRequest,
    UpdateUserRequest,
)
from rocketmq_py.protocol.headers.base import Request

ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All")
"""Actions that a rule can allow or deny. Java: ``Action``."""
RESOURCES = ("Cluster", "Namespace", "Topic", "Group")
_ENABLED, _DISABLED = "enable", "disable"
_SUPER, _NORMAL = "Super", "Normal"
_USER = "User:"

Value = TypeVar("Value", bound=Hashable)


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


class AccessControl(Operations):
    """``admin.access``: the users and ACL rules of the masters of all brokers.

    All methods raise NameServerError if no name server answers. Changes go to all masters and return the
    names of their brokers. They raise AccessDeniedError or another BrokerError if a broker refuses the
    change, UnsupportedByBrokerError for brokers of 4.x, and SomeBrokersFailedError if the change failed on
    some of several brokers. A cancellation does not undo the changes that brokers have made by then.
    """

    async def users(self, part: str | None = None) -> UserListing:
        """Return the users (5.x), or those whose name contains ``part``. Java: ``listUser``."""
        header = ListUsersRequest(filter=optional(check_text, part, "part"))
        results = await self._query(header, lambda body: [_user(one) for one in read_users(body)])
        users = _merged(results)
        return UserListing(
            users=tuple(sorted(users, key=lambda user: (user.name, user.brokers))), failures=results.failures
        )

    async def create_user(self, name: str, secret: str, *, is_super: bool = False) -> tuple[str, ...]:
        """Create a user. Java: ``createUser``.

        Args:
            name: the name, which is the user's access key.
            secret: the user's secret key.
            is_super: whether the user may do everything.
        """
        info = UserInfo(
            username=check_not_blank(name, "name"),
            password=check_not_blank(secret, "secret"),
            user_type=_wire_flag(check_flag(is_super, "is_super"), _SUPER, _NORMAL),
        )
        return await self._change(CreateUserRequest(username=name), f"creating user {name!r}", info.encode())

    async def alter_user(
        self,
        name: str,
        *,
        secret: str | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
    ) -> tuple[str, ...]:
        """Change a user. Arguments that are None keep their value. Java: ``updateUser``."""
        info = UserInfo(
            username=check_not_blank(name, "name"),
            password=optional(check_not_blank, secret, "secret"),
            user_type=_wire_flag(optional(check_flag, is_super, "is_super"), _SUPER, _NORMAL),
            user_status=_wire_flag(optional(check_flag, is_enabled, "is_enabled"), _ENABLED, _DISABLED),
        )
        return await self._change(UpdateUserRequest(username=name), f"changing user {name!r}", info.encode())

    async def delete_user(self, name: str) -> tuple[str, ...]:
        """Delete a user and the user's rules. Java: ``deleteUser``.

        Deleting a user that does not exist is no error: brokers do not report it.
        """
        check_not_blank(name, "name")
        return await self._change(DeleteUserRequest(username=name), f"deleting user {name!r}")

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
            header, lambda body: [rule for acl in read_acls(body) for rule in _rules(acl)]
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
    ) -> tuple[str, ...]:
        """Allow or deny a user some actions on a resource. Java: ``createAcl``, ``updateAcl``.

        The rule replaces the user's previous rule for the same resource.

        Args:
            user: the user's name.
            resource: ``Topic:NAME``, ``Group:NAME``, ``Cluster:NAME``, or ``*`` for all. A name that ends
                with ``*`` is a prefix.
            actions: some of ACTIONS.
            is_allowed: whether the actions are allowed. Otherwise they are denied.
            source_ips: limits the rule to these addresses or networks. Empty for all.

        Raises:
            ConfigurationError: an action or the kind of resource does not exist.
        """
        check_not_blank(user, "user")
        entry = PolicyEntryInfo(
            resource=_checked_resource(resource),
            actions=_checked_actions(actions),
            source_ips=check_texts(source_ips, "source_ips"),
            decision="Allow" if check_flag(is_allowed, "is_allowed") else "Deny",
        )
        policies = (PolicyInfo(policy_type="Custom", entries=(entry,)),)
        body = AclInfo(subject=_USER + user, policies=policies).encode()
        header = CreateAclRequest(subject=_USER + user)
        return await self._change(header, f"setting a rule of user {user!r}", body)

    async def delete_rules(self, user: str, resource: str | None = None) -> tuple[str, ...]:
        """Delete the rules of a user: all of them, or those for one resource. Java: ``deleteAcl``."""
        check_not_blank(user, "user")
        optional(_checked_resource, resource, "resource")
        header = DeleteAclRequest(subject=_USER + user, policy_type="Custom", resource=resource)
        return await self._change(header, f"deleting rules of user {user!r}")

    async def acl_config_versions(self) -> PartialResults[str, AclConfigVersion]:
        """Return the version of each broker's ACL files, by broker name (ACL 1.0 of 4.x).

        Brokers from 5.3.3 on fail with UnsupportedByBrokerError. Java: ``clusterAclConfigVersion``.
        """
        brokers = await self._select_brokers()

        async def query(name: str) -> AclConfigVersion:
            answer = await call_broker(self._client, any_address(brokers[name]), GetAclVersionRequest())
            text = GetAclVersionAnswer.from_fields(answer.fields).version
            version = DataVersion.decode(text.encode())
            return AclConfigVersion(changes=version.counter, changed_ms=version.timestamp)

        return await query_each(brokers, query)

    async def _query(
        self, header: Request, decode: Callable[[bytes], Iterable[Value]]
    ) -> PartialResults[str, tuple[Value, ...]]:
        brokers = await self._select_brokers()

        async def query(name: str) -> tuple[Value, ...]:
            answer = await call_broker(self._client, master_address(brokers[name]), header)
            return tuple(decode(answer.body))

        return await query_each(brokers, query)

    async def _change(self, header: Request, action: str, body: bytes = b"") -> tuple[str, ...]:
        """Send a change to all masters and return the names of their brokers."""
        brokers: Mapping[str, BrokerData] = await self._select_brokers()

        async def change(name: str) -> None:
            await call_broker(self._client, master_address(brokers[name]), header, body)

        return tuple(await change_each(brokers, change, action))


def _merged(results: PartialResults[str, tuple[Value, ...]]) -> list[Value]:
    """Return each user or rule once, with all the brokers that have it."""
    brokers: defaultdict[Value, list[str]] = defaultdict(list)
    for name, values in results.values.items():
        for value in values:
            brokers[value].append(name)
    return [attrs.evolve(value, brokers=tuple(sorted(names))) for value, names in brokers.items()]  # type: ignore[misc]


def _user(info: UserInfo) -> User:
    return User(
        name=info.username or "",
        is_super=info.user_type == _SUPER,
        is_enabled=info.user_status != _DISABLED,
    )


def _rules(acl: AclInfo) -> list[AclRule]:
    return [
        AclRule(
            user=(acl.subject or "").removeprefix(_USER),
            resource=entry.resource,
            actions=entry.actions,
            is_allowed=entry.decision == "Allow",
            source_ips=entry.source_ips,
            is_default=policy.policy_type == "Default",
        )
        for policy in acl.policies
        for entry in policy.entries
    ]


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
