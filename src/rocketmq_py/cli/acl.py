"""``rocketmq-py acl``: users and ACL rules."""

from __future__ import annotations

import sys
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import click

from rocketmq_py.cli.admin_runner import run_admin
from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.console import is_terminal
from rocketmq_py.cli.option_values import checked, not_empty, read_secret
from rocketmq_py.cli.options import if_not_exists_option, yes_option
from rocketmq_py.cli.prompts import ask_for_secret, confirm
from rocketmq_py.cli.tables import (
    Field,
    Listing,
    OutputFormat,
    format_time,
    output_option,
    print_change,
    print_creation,
    print_result,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rocketmq_py.admin import Admin
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
    help="Limit the rule to this address or network. Repeatable.",
)  # fmt: skip
password_option: Final = click.option(
    "--password", metavar="SECRET", callback=checked(read_secret),
    help="Secret key. Prefer @FILE: command lines are visible to other users.",
)  # fmt: skip

RULES: Final = Listing(
    Field("user", "USER"),
    Field("resource", "RESOURCE"),
    Field("is_allowed", "DECISION", cell=lambda is_allowed: "allow" if is_allowed else "deny"),
    Field("actions", "ACTIONS"),
    Field("source_ips", "FROM"),
    Field("is_default"),
    Field("brokers", "BROKERS", wide=True),
)
USERS: Final = Listing(
    Field("name", "USER"),
    Field("is_super", "TYPE", cell=lambda is_super: "super" if is_super else "normal"),
    Field("is_enabled", "ENABLED"),
    Field("brokers", "BROKERS", wide=True),
)
VERSIONS: Final = Listing(
    Field("broker_name", "BROKER", itemgetter(0)),
    Field("changes", "CHANGES", lambda item: item[1].changes, right=True),
    Field("changed_ms", "LAST CHANGE", lambda item: item[1].changed_ms, cell=format_time),
)


@click.group
def acl() -> None:
    """Manage users and ACL rules of 5.x brokers, and show the ACL versions of 4.x brokers.

    \b
    RESOURCE is Topic:NAME, Group:NAME, Cluster:NAME, a prefix such as Topic:PREFIX*, or *.
    ACTION is Pub, Sub, Create, Update, Delete, Get, List or All.
    """


@acl.command("list")
@click.option("--user", metavar="PART", help="Only rules of users whose name contains PART.")
@click.option("--resource", metavar="PART", help="Only rules for resources whose name contains PART.")
@output_option
@access_options
def list_rules(access: Access, output: OutputFormat, user: str | None, resource: str | None) -> None:
    """List ACL rules."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.access.rules(user, resource)
        print_result(output, RULES.values(listing.rules), [RULES.table(listing.rules)])
        return listing.failures

    run_admin(access, work)


def _add_command(name: str, text: str, *, is_allowed: bool) -> None:
    """Add the command ``allow`` or ``deny``."""

    @acl.command(name, help=text)
    @user_argument
    @resource_argument
    @actions_argument
    @source_option
    @if_not_exists_option
    @output_option
    @access_options
    def put_rule(
        access: Access,
        output: OutputFormat,
        user: str,
        resource: str,
        actions: tuple[str, ...],
        source_ips: tuple[str, ...],
        if_not_exists: bool,
    ) -> None:
        async def work(admin: Admin) -> None:
            brokers = await admin.access.put_rule(
                user,
                resource,
                actions,
                is_allowed=is_allowed,
                source_ips=source_ips,
                if_not_exists=if_not_exists,
            )
            if brokers or not if_not_exists:
                change = f"{resource} {'allowed' if is_allowed else 'denied'}"
                print_change(output, "user", user, change, brokers)
            else:
                print_creation(output, "rule", f"{user} on {resource}", brokers)

        run_admin(access, work)


_REPLACES = "a user some actions on a resource. Replaces the user's previous rule for it."
_add_command("allow", f"Allow {_REPLACES}", is_allowed=True)
_add_command("deny", f"Deny {_REPLACES}", is_allowed=False)


@acl.command("delete")
@user_argument
@click.argument("resource", metavar="[RESOURCE]", required=False)
@yes_option
@output_option
@access_options
def delete_rules(access: Access, output: OutputFormat, user: str, resource: str | None, yes: bool) -> None:
    """Delete the rules of a user: all of them, or those for RESOURCE."""
    rules = f"the rules for {resource}" if resource else "all rules"
    confirm(f"Delete {rules} of user {user}", yes=yes)
    _change(access, output, user, f"{rules} deleted", lambda admin: admin.access.delete_rules(user, resource))


@acl.command()
@output_option
@access_options
def version(access: Access, output: OutputFormat) -> None:
    """Show the version of the ACL files of each 4.x broker (ACL 1.0)."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        results = await admin.access.acl_config_versions()
        versions = results.values.items()
        print_result(output, VERSIONS.values(versions), [VERSIONS.table(versions)])
        return results.failures

    run_admin(access, work)


@acl.group(short_help="List, create, alter and delete users.")
def user() -> None:
    """List, create, alter and delete users of 5.x brokers. The name of a user is the access key."""


@user.command("list")
@click.argument("part", metavar="[PART]", required=False)
@output_option
@access_options
def list_users(access: Access, output: OutputFormat, part: str | None) -> None:
    """List users, or those whose name contains PART."""

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        listing = await admin.access.users(part)
        print_result(output, USERS.values(listing.users), [USERS.table(listing.users)])
        return listing.failures

    run_admin(access, work)


@user.command()
@click.argument("name", metavar="USER", callback=checked(not_empty))
@password_option
@click.option("--super", "is_super", is_flag=True, help="Create a super user, who may do everything.")
@if_not_exists_option
@output_option
@access_options
def create(
    access: Access, output: OutputFormat, name: str, password: str | None, is_super: bool, if_not_exists: bool
) -> None:
    """Create a user on all brokers. Prompts for the secret key without --password."""
    if password is None:
        if not is_terminal(sys.stdin):
            raise click.UsageError("give --password, since standard input is not a terminal")
        password = ask_for_secret("Secret key", confirmation_prompt=True)
    secret = password

    async def work(admin: Admin) -> None:
        created = await admin.access.create_user(name, secret, is_super=is_super, if_not_exists=if_not_exists)
        print_creation(output, "user", name, created)

    run_admin(access, work)


@user.command()
@click.argument("name", metavar="USER", callback=checked(not_empty))
@password_option
@click.option("--super/--normal", "is_super", default=None, help="Whether the user may do everything.")
@click.option("--enable/--disable", "is_enabled", default=None, help="Whether brokers accept the user.")
@output_option
@access_options
def alter(
    access: Access,
    output: OutputFormat,
    name: str,
    password: str | None,
    is_super: bool | None,
    is_enabled: bool | None,
) -> None:
    """Change a user on all brokers. Options left out keep their value."""
    if password is None and is_super is None and is_enabled is None:
        raise click.UsageError("nothing to change: give at least one option")
    _change(
        access,
        output,
        name,
        "altered",
        lambda admin: admin.access.alter_user(
            name, secret=password, is_super=is_super, is_enabled=is_enabled
        ),
    )


@user.command()
@click.argument("name", metavar="USER", callback=checked(not_empty))
@yes_option
@output_option
@access_options
def delete(access: Access, output: OutputFormat, name: str, yes: bool) -> None:
    """Delete a user and the user's rules on all brokers."""
    confirm(f"Delete user {name} and the user's rules", yes=yes)
    _change(access, output, name, "deleted", lambda admin: admin.access.delete_user(name))


def _change(
    access: Access,
    output: OutputFormat,
    user: str,
    change: str,
    request: Callable[[Admin], Awaitable[tuple[str, ...]]],
) -> None:
    """Make a change of a user and print it. ``request`` returns the names of the brokers."""

    async def work(admin: Admin) -> None:
        print_change(output, "user", user, change, await request(admin))

    run_admin(access, work)
