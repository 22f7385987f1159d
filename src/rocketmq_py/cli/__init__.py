"""The command line: sending, reading and administering. Parsing and printing only.

A command's module holds its options and imports what does the work when it runs: ``--help`` and a wrong
option answer without loading the client.
"""

from __future__ import annotations

import click

from rocketmq_py.cli.acl import acl
from rocketmq_py.cli.broker import broker
from rocketmq_py.cli.check import check
from rocketmq_py.cli.client import client
from rocketmq_py.cli.completion import completion
from rocketmq_py.cli.config import config
from rocketmq_py.cli.consumer_group import consumer_group
from rocketmq_py.cli.dlq import dlq
from rocketmq_py.cli.group import OneLineErrors
from rocketmq_py.cli.message import message
from rocketmq_py.cli.relay import relay
from rocketmq_py.cli.request import reply, request
from rocketmq_py.cli.send import send
from rocketmq_py.cli.server import server
from rocketmq_py.cli.tail import tail
from rocketmq_py.cli.topic import topic


@click.group(
    cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="rocketmq-py", prog_name="rocketmq-py")
def main() -> None:
    """Send to and read from Apache RocketMQ, administer it, or run an embedded broker to try it with.

    Every command ends with 0 when it did what was asked, with 1 when it could not, and with 2 when
    the command line is wrong. What is wrong is said in one line on stderr.
    """


for command in (
    acl, broker, check, client, completion, config, consumer_group, dlq, message,
    relay, reply, request, send, server, tail, topic,
):  # fmt: skip
    main.add_command(command)

__all__ = ["main"]
