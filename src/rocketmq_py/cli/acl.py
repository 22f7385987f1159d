"""``rocketmq-py acl``: its commands and their options."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from rocketmq_py.cli.access import Access, read_secret, takes_access
from rocketmq_py.cli.console import is_terminal, print_out
from rocketmq_py.cli.options import checked, not_empty
from rocketmq_py.cli.sheet import Column, Form, Sheet, at, show, takes_form
from rocketmq_py.cli.topic import yes_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rocketmq_py.admin import AclRule, Admin, User
    from rocketmq_py.errors import RocketMQError

ACTIONS = click.Choice(
    ["Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All"], case_sensitive=False
)
user_argument: Final = click.argument("user", metavar="USER", callback=checked(not_empty))
resource_argument: Final = click.argument("resource", metavar="RESOURCE", callback=checked(not_empty))
actions_argument: Final = click.argument(
    "actions", metavar="ACTION...", nargs=-1, required=True, type=ACTIONS
)
source_option: Final = click.option(
    "--from", "source_ips", metavar="ADDRESS", multiple=True, callback=checked(not_empty),
    help="Only from this address or network; may be repeated.",
)  # fmt: skip
password_option: Final = click.option(
    "--password", metavar="SECRET", callback=checked(read_secret),
    help="Its secret key, or @FILE: others see command lines. On a terminal it is asked for.",
)  # fmt: skip


@click.group
def acl() -> None:
    """Users of brokers of 5.x and what they may do; the state of accounts of 4.x.

    \b
    RESOURCE is Topic:NAME, Group:NAME or Cluster:NAME, Topic:BEGIN* for all that begin so, or *.
    ACTION is Pub, Sub, Create, Update, Delete, Get, List or All.
    """


@acl.command("list")
@click.option("--user", metavar="PART", help="Only of users with this in their name.")
@click.option("--resource", metavar="PART", help="Only for resources with this in their name.")
@takes_form
@takes_access
def list_rules(access: Access, form: Form, user: str | None, resource: str | None) -> None:
    """Print what users may do."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.access.rules(user, resource)
        columns = [
            Column("USER"),
            Column("RESOURCE"),
            Column("DECISION"),
            Column("ACTIONS"),
            Column("FROM"),
            Column("BROKERS", wide=True),
        ]
        rows = [
            (
                one.user,
                one.resource,
                "allow" if one.is_allowed else "deny",
                one.actions,
                one.source_ips,
                one.brokers,
            )
            for one in listing.rules
        ]
        show(form, [_rule(one) for one in listing.rules], [Sheet(columns, rows)])
        return listing.failures

    administer(access, work)


def _rule(rule: AclRule) -> dict[str, Any]:
    return {
        "user": rule.user,
        "resource": rule.resource,
        "decision": "allow" if rule.is_allowed else "deny",
        "actions": list(rule.actions),
        "from": list(rule.source_ips),
        "default": rule.is_default,
        "brokers": list(rule.brokers),
    }


def _add_command(name: str, text: str, *, is_allowed: bool) -> None:
    """Add the command that allows, or the one that denies."""

    @acl.command(name, help=text)
    @user_argument
    @resource_argument
    @actions_argument
    @source_option
    @takes_form
    @takes_access
    def put_rule(
        access: Access,
        form: Form,
        user: str,
        resource: str,
        actions: tuple[str, ...],
        source_ips: tuple[str, ...],
    ) -> None:
        def put(admin: Admin) -> Awaitable[tuple[str, ...]]:
            return admin.access.put_rule(
                user, resource, actions, is_allowed=is_allowed, source_ips=source_ips
            )

        _change(access, form, user, f"{resource} {'allowed' if is_allowed else 'denied'}", put)


_AND_NO_OTHERS = "a user some actions on a resource: these, and no others that were allowed or denied there."
_add_command("allow", f"Allow {_AND_NO_OTHERS}", is_allowed=True)
_add_command("deny", f"Deny {_AND_NO_OTHERS}", is_allowed=False)


@acl.command()
@user_argument
@click.argument("resource", metavar="[RESOURCE]", required=False)
@yes_option
@takes_form
@takes_access
def remove(access: Access, form: Form, user: str, resource: str | None, yes: bool) -> None:
    """Remove what is allowed and denied to a user: for a resource, or for all."""
    from rocketmq_py.cli.administering import ask_first

    what = resource or "everything"
    ask_first(f"Remove what user {user} may do with {what}", yes=yes)
    _change(access, form, user, f"{what} removed", lambda admin: admin.access.delete_rules(user, resource))


@acl.command()
@takes_form
@takes_access
def version(access: Access, form: Form) -> None:
    """Print which state of its accounts each broker of 4.x has (ACL 1.0)."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        answers = await admin.access.acl_config_versions()
        value = [
            {"broker": name, "changes": one.changes, "changed_ms": one.changed_ms}
            for name, one in answers.values.items()
        ]
        columns = [Column("BROKER"), Column("CHANGES", right=True), Column("LAST CHANGE")]
        rows = [(name, one.changes, at(one.changed_ms)) for name, one in answers.values.items()]
        show(form, value, [Sheet(columns, rows)])
        return answers.failures

    administer(access, work)


@acl.group(short_help="List, create, alter and delete users.")
def user() -> None:
    """List, create, alter and delete users of brokers of 5.x. A user's name is its access key."""


@user.command("list")
@click.argument("part", metavar="[PART]", required=False)
@takes_form
@takes_access
def list_users(access: Access, form: Form, part: str | None) -> None:
    """Print users, or those with PART in their name."""
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.access.users(part)
        columns = [Column("USER"), Column("TYPE"), Column("ENABLED"), Column("BROKERS", wide=True)]
        rows = [(one.name, _type(one), one.is_enabled, one.brokers) for one in listing.users]
        value = [
            {
                "user": one.name,
                "type": _type(one),
                "enabled": one.is_enabled,
                "brokers": list(one.brokers),
            }
            for one in listing.users
        ]
        show(form, value, [Sheet(columns, rows)])
        return listing.failures

    administer(access, work)


def _type(user: User) -> str:
    return "super" if user.is_super else "normal"


@user.command()
@click.argument("name", metavar="USER", callback=checked(not_empty))
@password_option
@click.option("--super", "is_super", is_flag=True, help="It may do everything.")
@takes_form
@takes_access
def create(access: Access, form: Form, name: str, password: str | None, is_super: bool) -> None:
    """Create a user on all brokers."""
    if password is None:
        if not is_terminal(sys.stdin):
            raise click.UsageError("a user needs --password, as nobody can be asked for it here")
        password = click.prompt("Secret key", hide_input=True, confirmation_prompt=True, err=True)
    secret = str(password)
    _change(
        access, form, name, "created", lambda admin: admin.access.create_user(name, secret, is_super=is_super)
    )


@user.command()
@click.argument("name", metavar="USER", callback=checked(not_empty))
@password_option
@click.option("--super/--normal", "is_super", default=None, help="Whether it may do everything.")
@click.option("--enable/--disable", "is_enabled", default=None, help="Whether it is let in.")
@takes_form
@takes_access
def alter(
    access: Access,
    form: Form,
    name: str,
    password: str | None,
    is_super: bool | None,
    is_enabled: bool | None,
) -> None:
    """Change a user on all brokers; what is not given stays as it is."""
    if password is None and is_super is None and is_enabled is None:
        raise click.UsageError("nothing to change: give an option")
    _change(
        access,
        form,
        name,
        "altered",
        lambda admin: admin.access.alter_user(
            name, secret=password, is_super=is_super, is_enabled=is_enabled
        ),
    )


@user.command()
@click.argument("name", metavar="USER", callback=checked(not_empty))
@yes_option
@takes_form
@takes_access
def delete(access: Access, form: Form, name: str, yes: bool) -> None:
    """Delete a user and what it may do on all brokers."""
    from rocketmq_py.cli.administering import ask_first

    ask_first(f"Delete user {name} and what it may do", yes=yes)
    _change(access, form, name, "deleted", lambda admin: admin.access.delete_user(name))


def _change(
    access: Access, form: Form, user: str, what: str, change: Callable[[Admin], Awaitable[tuple[str, ...]]]
) -> None:
    from rocketmq_py.cli.administering import administer

    async def work(admin: Admin) -> None:
        brokers = await change(admin)
        if form in (Form.JSON, Form.JSONL):
            show(form, {"user": user, "brokers": list(brokers)}, [])
        else:
            print_out(f"user {user}: {what} on {', '.join(brokers)}")

    administer(access, work)
