"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from rocketmq_py.cli.completion import complete_groups, complete_topics
from rocketmq_py.cli.option_values import checked, not_empty, parse_property, parse_time_position
from rocketmq_py.names import check_group, check_topic

Function = TypeVar("Function", bound=Callable[..., Any])

topic_argument: Final = click.argument(
    "topic", metavar="TOPIC", callback=checked(check_topic), shell_complete=complete_topics
)
group_argument: Final = click.argument(
    "group", metavar="GROUP", callback=checked(check_group), shell_complete=complete_groups
)


def topic_option(
    text: str,
    *,
    name: str = "topic",
    check: Callable[[str], str] = check_topic,
    required: bool = False,
    multiple: bool = False,
) -> Callable[[Function], Function]:
    """Return a decorator that adds ``-t`` and ``--topic`` to a command.

    Args:
        text: the help of the option.
        name: the parameter that receives the topic, or topics.
        check: returns a valid value. It raises ValueError for others.
        required: whether the command needs the option.
        multiple: whether it may be repeated.
    """
    return click.option(
        "-t", "--topic", name, metavar="TOPIC", callback=checked(check), shell_complete=complete_topics,
        required=required, multiple=multiple, help=text,
    )  # fmt: skip


def group_option(
    text: str, *, name: str = "group", required: bool = False, multiple: bool = False
) -> Callable[[Function], Function]:
    """Return a decorator that adds ``-G`` and ``--group`` to a command. See :func:`topic_option`."""
    return click.option(
        "-G", "--group", name, metavar="GROUP", callback=checked(check_group), shell_complete=complete_groups,
        required=required, multiple=multiple, help=text,
    )  # fmt: skip


required_topic_option: Final = topic_option("The topic.", required=True)
join_option: Final = group_option(
    "Join this consumer group. Its members share the messages, and offsets are committed."
)
broker_option: Final = click.option(
    "--broker", "brokers", metavar="NAME", multiple=True, callback=checked(not_empty),
    help="Only on this broker. Repeatable.  [default: all brokers]",
)  # fmt: skip
cluster_option: Final = click.option("--cluster", metavar="NAME", help="Only on the brokers of this cluster.")
attributes_option: Final = click.option(
    "-a", "--attribute", "attributes", metavar="NAME=VALUE", callback=checked(parse_property), multiple=True,
    help="Further setting (5.x). Repeatable.",
)  # fmt: skip
remove_attributes_option: Final = click.option(
    "--remove-attribute", "removed", metavar="NAME", multiple=True, callback=checked(not_empty),
    help="Remove a further setting (5.x). Repeatable.",
)  # fmt: skip
since_option: Final = click.option(
    "--since", "since", metavar="TIME", callback=checked(parse_time_position),
    help="Only messages stored since then: 2026-01-31T08:00, @MS, or a duration before now such as 10m.",
)  # fmt: skip
until_option: Final = click.option(
    "--until", "until", metavar="TIME", callback=checked(parse_time_position),
    help="Only messages stored before then: 2026-01-31T08:00, @MS, or a duration before now such as 10m.",
)  # fmt: skip
raw_option: Final = click.option(
    "--raw", is_flag=True,
    help="On a terminal, print control characters of messages unescaped.",
)  # fmt: skip
if_not_exists_option: Final = click.option(
    "--if-not-exists", is_flag=True,
    help="Do nothing where it exists with these settings. With other settings it is an error.",
)  # fmt: skip
yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
