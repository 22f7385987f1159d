"""``rocketmq-py request`` and ``rocketmq-py reply``: their options."""

from __future__ import annotations

import os

import click

from rocketmq_py.cli.access import Access, takes_access, takes_access_beside_keys
from rocketmq_py.cli.format import BODY_A_LINE, Render, as_it_is, compile_format
from rocketmq_py.cli.options import (
    checked,
    complete_groups,
    not_empty,
    parse_duration,
    parse_property,
    raw_option,
    topic_option,
)
from rocketmq_py.names import check_group


@click.command
@topic_option
@click.argument("body", type=click.UNPROCESSED)
@click.option("--tag", metavar="TAG", default="", help="The request's tag.")
@click.option(
    "-k", "--key", "keys", metavar="KEY", multiple=True, help="A key to find it by; may be repeated."
)
@click.option(
    "-H", "properties", metavar="NAME=VALUE", callback=checked(parse_property), multiple=True,
    help="A property of the request; may be repeated.",
)  # fmt: skip
@click.option(
    "--timeout", metavar="TIME", callback=checked(parse_duration), default="3s", show_default=True,
    help="How long the reply is waited for: 250ms, 7.3s, 5m.",
)  # fmt: skip
@click.option(
    "-f", "render", metavar="FORMAT", type=click.UNPROCESSED, callback=checked(compile_format),
    help=r"How to print the reply, as in `tail`; the default is '%s\n'.",
)  # fmt: skip
@click.option("-J", "as_json", is_flag=True, help="Print the reply as a line of JSON.")
@raw_option
@takes_access_beside_keys
def request(
    access: Access,
    topic: str,
    body: str,
    tag: str,
    keys: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    timeout: float,
    render: Render | None,
    as_json: bool,
    raw: bool,
) -> None:
    """Send BODY as a request to a topic, wait for a consumer's reply, and print it.

    The exit code is 1 when no reply came in time.
    """
    if as_json and render is not None:
        raise click.UsageError("give -f FORMAT or -J, not both")
    if timeout <= 0:
        raise click.UsageError("--timeout must be above 0")
    from rocketmq_py.cli.requesting import ask
    from rocketmq_py.cli.running import end_for_signal, run
    from rocketmq_py.errors import InvalidMessageError
    from rocketmq_py.message import Message

    try:
        message = Message(topic, os.fsencode(body), tag, keys, dict(properties))
    except InvalidMessageError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        from rocketmq_py.cli.json_lines import json_line

        render = json_line
    shown = render or compile_format(BODY_A_LINE)
    if raw:
        shown = as_it_is(shown)
    end_for_signal(run(lambda: ask(access, message, timeout, shown)))


@click.command
@topic_option
@click.argument("body", required=False, type=click.UNPROCESSED)
@click.option(
    "-G", "group", metavar="GROUP", callback=checked(check_group), required=True,
    shell_complete=complete_groups, help="The consumer group: its members share the requests.",
)  # fmt: skip
@click.option(
    "-x", "command", metavar="COMMAND", type=click.UNPROCESSED, callback=checked(not_empty),
    help="Reply with what this command of the shell prints; it gets the request's body on stdin.",
)  # fmt: skip
@click.option("-c", "count", metavar="COUNT", type=click.IntRange(min=1), help="Stop after COUNT replies.")
@click.option("--wait", is_flag=True, help="Wait for the topic if it does not exist yet.")
@takes_access
def reply(
    access: Access,
    topic: str,
    body: str | None,
    group: str,
    command: str | None,
    count: int | None,
    wait: bool,
) -> None:
    """Reply to the requests of a topic: with BODY, or with what a command prints.

    A new group begins with what is sent from now on. It goes on until Ctrl-C (exit code 130), or until -c
    COUNT replies. A request that its command fails on (an exit code that is not 0, or nothing printed) comes
    again. What is no request, and one that nobody waits for any more, is told of on stderr.
    """
    if (body is None) == (command is None):
        raise click.UsageError("give BODY or -x COMMAND")
    if body == "":
        raise click.UsageError("the body is empty; brokers refuse such a message")
    from rocketmq_py.cli.requesting import Replier
    from rocketmq_py.cli.running import end_for_signal, run

    replier = Replier(access, topic, group, None if body is None else os.fsencode(body), command, count, wait)
    end_for_signal(run(replier.run))
