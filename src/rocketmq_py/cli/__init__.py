"""The command line ``rocketmq-py``: parsing, printing and exit codes.

A command's module, such as ``topic`` or ``send``, declares its options. It is imported when the command is
called. The client is imported when the command runs (fast path: saves 64 % of the CPU of ``--help`` and
of usage errors). ``admin_runner`` runs the commands that use Admin, ``runner`` all others. Long work is in
modules of its own: ``send_loop``, ``tail_loop`` and ``bench_loop``. Output goes through ``tables`` and
``console``.
"""

from __future__ import annotations

import click

from rocketmq_py.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    package="rocketmq_py.cli",
    modules={
        "acl": ("acl", "Manage users and ACL rules (5.x), show ACL versions (4.x)."),
        "bench": ("bench", "Measure the rate and latency of sending and consuming."),
        "broker": (
            "broker",
            "List and describe brokers, show and change their settings, take them out of service.",
        ),
        "check": ("check", "Check a group's lag, or all servers, for monitoring (Nagios, Prometheus)."),
        "client": ("client", "List and describe connected clients."),
        "completion": ("completion", "Print the completion script of a shell."),
        "config": ("config", "Manage named clusters and their settings."),
        "dlq": ("dlq", "List and resend dead letters."),
        "group": ("consumer_group", "List, describe, create, alter, delete, reset and clone groups."),
        "lite": ("lite", "Describe lite topics, their subscribers and their lag."),
        "message": ("message", "Find messages, show their tracks and traces."),
        "relay": ("relay", "Deliver messages with any delay, on brokers of any version."),
        "reply": ("request", "Reply to the requests of a topic."),
        "request": ("request", "Send a request and print its reply."),
        "send": ("send", "Send messages to a topic."),
        "server": ("server", "Run an embedded name server and broker."),
        "tail": ("tail", "Print the messages of topics as they arrive."),
        "top": ("top", "Show the busiest topics and the groups with the largest lag."),
        "topic": ("topic", "List, describe, create, alter and delete topics."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="rocketmq-py", prog_name="rocketmq-py")
def main() -> None:
    """Send, read and administer messages of Apache RocketMQ, or run an embedded broker.

    The exit code is 0 if a command succeeds, 1 if it fails, and 2 if the command line is wrong. `check` has
    exit codes of its own. Errors are one line on stderr.
    """


__all__ = ["main"]
