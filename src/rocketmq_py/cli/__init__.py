"""The command line: sending, reading and administering. Parsing and printing only.

A command's module holds its options and is imported when the command is called; it imports what does the
work when it runs: ``--help`` and a wrong option answer without loading the client.
"""

from __future__ import annotations

import click

from rocketmq_py.cli.group import LazyGroup


@click.group(
    cls=LazyGroup,
    package="rocketmq_py.cli",
    places={
        "acl": ("acl", "Users of 5.x and what they may do, and accounts of 4.x."),
        "bench": ("bench", "Measure how fast messages are sent and consumed."),
        "broker": ("broker", "List and describe brokers, read and change their settings."),
        "check": ("check", "Checks for monitoring: exit codes 0, 1, 2 and 3."),
        "client": ("client", "List and describe the clients that are online."),
        "completion": ("completion", "Print what has a shell complete commands, topics and groups."),
        "config": ("config", "Name clusters, and how they are reached."),
        "dlq": ("dlq", "List dead letters, and send them again."),
        "group": ("consumer_group", "List, describe, create, alter, delete, reset and clone groups."),
        "message": ("message", "Find messages, and what became of them."),
        "relay": ("relay", "Deliver messages at any time, on any broker."),
        "reply": ("request", "Reply to the requests of a topic."),
        "request": ("request", "Send a request, and print its reply."),
        "send": ("send", "Send messages to a topic."),
        "server": ("server", "Run an embedded name server and broker."),
        "tail": ("tail", "Print the messages of a topic as they come."),
        "top": ("top", "Show the busiest topics and the groups that are furthest behind."),
        "topic": ("topic", "List, describe, create, alter and delete topics."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="rocketmq-py", prog_name="rocketmq-py")
def main() -> None:
    """Send to and read from Apache RocketMQ, administer it, or run an embedded broker to try it with.

    Every command ends with 0 when it did what was asked, with 1 when it could not, and with 2 when
    the command line is wrong. What is wrong is said in one line on stderr.
    """


__all__ = ["main"]
