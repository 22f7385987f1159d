"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Final

import click

from rocketmq_py.cli.completion import complete_groups, complete_topics
from rocketmq_py.cli.option_values import checked, not_empty, parse_property, parse_time_position
from rocketmq_py.names import check_group, check_topic

topic_argument: Final = click.argument(
    "topic", metavar="TOPIC", callback=checked(check_topic), shell_complete=complete_topics
)
group_argument: Final = click.argument(
    "group", metavar="GROUP", callback=checked(check_group), shell_complete=complete_groups
)
topic_option: Final = click.option(
    "-t", "topic", metavar="TOPIC", callback=checked(check_topic), required=True, help="The topic.",
    shell_complete=complete_topics,
)  # fmt: skip
group_option: Final = click.option(
    "-G", "group", metavar="GROUP", callback=checked(check_group), shell_complete=complete_groups,
    help="Join this consumer group. Its members share the messages, and offsets are committed.",
)  # fmt: skip
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
    "--if-not-exists", "exist_ok", is_flag=True,
    help="Do nothing where it exists with these settings. With other settings it is an error.",
)  # fmt: skip
yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
