"""Access: users and what they may do (ACL 2.0 of 5.x), and the state of accounts (ACL 1.0 of 4.x)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

import attrs

from rocketmq_py.admin.asking import Answers, Listing, ask_each, have_each_do
from rocketmq_py.admin.calling import call
from rocketmq_py.admin.part import Part, any_of, master_of
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
"""What a rule may be about. Java: ``Action``."""
RESOURCES = ("Cluster", "Namespace", "Topic", "Group")
_ENABLED, _DISABLED = "enable", "disable"
_SUPER, _NORMAL = "Super", "Normal"
_USER = "User:"

Value = TypeVar("Value", bound=Hashable)


@attrs.frozen(kw_only=True)
class User:
    """A user, as some brokers have it. Java: ``UserInfo``; secrets stay with the brokers.

    Attributes:
        name: the name, which is its access key.
        is_super: whether it may do everything.
        is_enabled: whether it is let in.
        brokers: the names of the brokers that have it like this, sorted.
    """

    name: str
    is_super: bool
    is_enabled: bool
    brokers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Rule:
    """What a user may do with a resource, or may not, as some brokers have it. Java: ``AclInfo``.

    Attributes:
        user: its name.
        resource: such as ``Topic:Orders``, ``Group:bill*``, ``Cluster:*``, or ``*`` for all.
        actions: some of ACTIONS.
        is_allowed: whether it may do them.
        source_ips: only from these addresses or networks; empty for all.
        is_default: whether it holds only where no other rule does.
        brokers: the names of the brokers that have it like this, sorted.
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
    """Users. ``failures`` has the error of each broker that did not answer, by its name."""

    users: tuple[User, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[User, ...]:
        return self.users


@attrs.frozen(kw_only=True)
class RuleListing(Listing[Rule]):
    """Rules. ``failures`` has the error of each broker that did not answer, by its name."""

    rules: tuple[Rule, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[Rule, ...]:
        return self.rules


@attrs.frozen(kw_only=True)
class AccountsVersion:
    """Which state of its file of accounts a broker of 4.x has. Java: ``clusterAclConfigVersion``.

    Attributes:
        changes: how often they have changed since the broker started.
        changed_ms: when they did so last, epoch milliseconds.
    """

    changes: int
    changed_ms: int


class Access(Part):
    """``admin.access``: what there is on masters, and changes on all of them.

    All methods raise NameServerError if no name server answers. What changes something raises
    AccessDeniedError or another BrokerError if a broker refuses it, UnsupportedByBrokerError for brokers of
    4.x, and SomeBrokersFailedError if not all of several did it. A cancellation leaves what is done by then.
    """

    async def users(self, part: str | None = None) -> UserListing:
        """Return the users of 5.x, or those with ``part`` in their name. Java: ``listUser``."""
        header = ListUsersRequest(filter=optional(check_text, part, "part"))
        answers = await self._ask(header, lambda body: [_user(one) for one in read_users(body)])
        users = _merged(answers)
        return UserListing(
            users=tuple(sorted(users, key=lambda user: (user.name, user.brokers))), failures=answers.failures
        )

    async def create_user(self, name: str, secret: str, *, is_super: bool = False) -> tuple[str, ...]:
        """Create a user; return the names of the brokers that have it now. Java: ``createUser``.

        Args:
            name: its name, which is its access key.
            secret: its secret key.
            is_super: whether it may do everything.
        """
        info = UserInfo(
            username=check_not_blank(name, "name"),
            password=check_not_blank(secret, "secret"),
            user_type=_word(check_flag(is_super, "is_super"), _SUPER, _NORMAL),
        )
        return await self._tell(CreateUserRequest(username=name), f"creating user {name!r}", info.encode())

    async def alter_user(
        self,
        name: str,
        *,
        secret: str | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
    ) -> tuple[str, ...]:
        """Change a user; what is not given stays. Return the names of the brokers. Java: ``updateUser``."""
        info = UserInfo(
            username=check_not_blank(name, "name"),
            password=optional(check_not_blank, secret, "secret"),
            user_type=_word(optional(check_flag, is_super, "is_super"), _SUPER, _NORMAL),
            user_status=_word(optional(check_flag, is_enabled, "is_enabled"), _ENABLED, _DISABLED),
        )
        return await self._tell(UpdateUserRequest(username=name), f"changing user {name!r}", info.encode())

    async def delete_user(self, name: str) -> tuple[str, ...]:
        """Delete a user, with its rules; return the names of the brokers. Java: ``deleteUser``.

        Brokers do not say that they never had it.
        """
        check_not_blank(name, "name")
        return await self._tell(DeleteUserRequest(username=name), f"deleting user {name!r}")

    async def rules(self, user: str | None = None, resource: str | None = None) -> RuleListing:
        """Return what users may do. Java: ``listAcl``.

        Args:
            user: only of those with this in their name.
            resource: only for resources with this in their name.
        """
        header = ListAclsRequest(
            subject_filter=optional(check_text, user, "user"),
            resource_filter=optional(check_text, resource, "resource"),
        )
        answers = await self._ask(
            header, lambda body: [rule for acl in read_acls(body) for rule in _rules(acl)]
        )
        rules = _merged(answers)
        return RuleListing(
            rules=tuple(sorted(rules, key=lambda rule: (rule.user, rule.resource, rule.brokers))),
            failures=answers.failures,
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
        """Say what a user may do with a resource, or may not; return the names of the brokers.

        It takes the place of what held for the user and this resource. Java: ``createAcl``, ``updateAcl``.

        Args:
            user: its name.
            resource: ``Topic:NAME``, ``Group:NAME``, ``Cluster:NAME``, with ``*`` at the end for all that
                begin like this, or ``*``.
            actions: some of ACTIONS.
            is_allowed: whether it may do them.
            source_ips: only from these addresses or networks; empty for all.

        Raises:
            ConfigurationError: there is no such action or kind of resource.
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
        return await self._tell(header, f"setting what user {user!r} may do", body)

    async def delete_rules(self, user: str, resource: str | None = None) -> tuple[str, ...]:
        """Delete what is said of a user, or of it and one resource; return the names of the brokers.

        Java: ``deleteAcl``.
        """
        check_not_blank(user, "user")
        optional(_checked_resource, resource, "resource")
        header = DeleteAclRequest(subject=_USER + user, policy_type="Custom", resource=resource)
        return await self._tell(header, f"deleting what user {user!r} may do")

    async def accounts_versions(self) -> Answers[str, AccountsVersion]:
        """Return by broker which state of its file of accounts it has (ACL 1.0 of 4.x).

        Brokers of 5.x from 5.3.3 on have an UnsupportedByBrokerError. Java: ``clusterAclConfigVersion``.
        """
        brokers = await self._chosen()

        async def ask(name: str) -> AccountsVersion:
            answer = await call(self._client, any_of(brokers[name]), GetAclVersionRequest())
            text = GetAclVersionAnswer.from_fields(answer.fields).version
            version = DataVersion.decode(text.encode())
            return AccountsVersion(changes=version.counter, changed_ms=version.timestamp)

        return await ask_each(brokers, ask)

    async def _ask(
        self, header: Request, read: Callable[[bytes], Iterable[Value]]
    ) -> Answers[str, tuple[Value, ...]]:
        brokers = await self._chosen()

        async def ask(name: str) -> tuple[Value, ...]:
            return tuple(read((await call(self._client, master_of(brokers[name]), header)).body))

        return await ask_each(brokers, ask)

    async def _tell(self, header: Request, what: str, body: bytes = b"") -> tuple[str, ...]:
        brokers: Mapping[str, BrokerData] = await self._chosen()
        done = await have_each_do(
            brokers, lambda name: call(self._client, master_of(brokers[name]), header, body), what
        )
        return tuple(done)


def _merged(answers: Answers[str, tuple[Value, ...]]) -> list[Value]:
    """Return each value once, with all the brokers that have it."""
    brokers: defaultdict[Value, list[str]] = defaultdict(list)
    for name, values in answers.values.items():
        for value in values:
            brokers[value].append(name)
    return [attrs.evolve(value, brokers=tuple(sorted(names))) for value, names in brokers.items()]  # type: ignore[misc]


def _user(info: UserInfo) -> User:
    return User(
        name=info.username or "",
        is_super=info.user_type == "Super",
        is_enabled=info.user_status != _DISABLED,
    )


def _rules(acl: AclInfo) -> list[Rule]:
    return [
        Rule(
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


def _word(flag: bool | None, if_true: str, if_false: str) -> str | None:
    """Return the broker's word for a flag; None leaves the user's setting as it is."""
    if flag is None:
        return None
    return if_true if flag else if_false


def _checked_actions(actions: Iterable[str]) -> tuple[str, ...]:
    known = {action.lower(): action for action in ACTIONS}
    checked = []
    for action in check_texts(actions, "actions"):
        if action.lower() not in known:
            raise ConfigurationError(f"there is no action {action!r}; there is {', '.join(ACTIONS)}")
        checked.append(known[action.lower()])
    if not checked:
        raise ConfigurationError("a rule needs an action")
    return tuple(dict.fromkeys(checked))


def _checked_resource(resource: str, name: str = "resource") -> str:
    check_text(resource, name)
    kind, _, rest = resource.partition(":")
    if resource != "*" and (kind not in RESOURCES or not rest):
        raise ConfigurationError(
            f"{resource!r} is no resource such as Topic:NAME, Group:NAME, Cluster:NAME, Topic:BEGIN* or *"
        )
    return resource
