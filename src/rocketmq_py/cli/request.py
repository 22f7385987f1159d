"""``rocketmq-py request`` and ``rocketmq-py reply``: request-reply messaging."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import attrs
import click

from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.console import complain, write_parts
from rocketmq_py.cli.message_formats import DEFAULT_FORMAT, Render, compile_format, json_line, unescaped
from rocketmq_py.cli.option_values import checked, not_empty, parse_duration, parse_property
from rocketmq_py.cli.options import group_option, raw_option, required_topic_option

if TYPE_CHECKING:
    from rocketmq_py.message import Message, ReceivedMessage

_GROUP = "CID_RMQ_SYS_REPLIER"


@click.command
@required_topic_option
@click.argument("body", type=click.UNPROCESSED)
@click.option("--tags", metavar="TAG", default="", help="Tag of the request.")
@click.option("-k", "--key", "keys", metavar="KEY", multiple=True, help="Key of the request. Repeatable.")
@click.option(
    "-H", "properties", metavar="NAME=VALUE", callback=checked(parse_property), multiple=True,
    help="Property of the request. Repeatable.",
)  # fmt: skip
@click.option(
    "--timeout", metavar="TIME", callback=checked(parse_duration), default="3s", show_default=True,
    help="Maximum time to wait for the reply: 250ms, 7.3s, 5m.",
)  # fmt: skip
@click.option(
    "-f", "render", metavar="FORMAT", type=click.UNPROCESSED, callback=checked(compile_format),
    help=r"Format of the reply, as in `tail`.  [default: %s\n]",
)  # fmt: skip
@click.option("-J", "--json", "as_json", is_flag=True, help="Print the reply as a line of JSON.")
@raw_option
@access_options
def request(
    access: Access,
    topic: str,
    body: str,
    tags: str,
    keys: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    timeout: float,
    render: Render | None,
    as_json: bool,
    raw: bool,
) -> None:
    """Send BODY as a request to a topic, wait for a consumer's reply, and print it.

    The exit code is 1 if no reply arrived in time.
    """
    if as_json and render is not None:
        raise click.UsageError("give -f FORMAT or --json, not both")
    if timeout <= 0:
        raise click.UsageError("--timeout must be above 0")
    from rocketmq_py.cli.runner import exit_for_signal, run
    from rocketmq_py.errors import InvalidMessageError
    from rocketmq_py.message import Message

    try:
        message = Message(topic, os.fsencode(body), tags, keys, dict(properties))
    except InvalidMessageError as error:
        raise click.UsageError(str(error)) from None
    render_reply = json_line if as_json else render or compile_format(DEFAULT_FORMAT)
    if raw:
        render_reply = unescaped(render_reply)
    exit_for_signal(run(lambda: _send_request(access, message, timeout, render_reply)))


async def _send_request(access: Access, message: Message, timeout: float, render: Render) -> None:
    """Send a request and print its reply. Raises ReplyTimeoutError, and the errors of a send."""
    from rocketmq_py.producer import Producer

    async with Producer(access.address, **access.client_options()) as producer:
        reply = await producer.request(message, timeout=timeout)
    write_parts(sys.stdout, render(reply))


@click.command
@required_topic_option
@click.argument("body", required=False, type=click.UNPROCESSED)
@group_option("Consumer group. Its members share the requests.", required=True)
@click.option(
    "-x", "command", metavar="COMMAND", type=click.UNPROCESSED, callback=checked(not_empty),
    help="Shell command whose output is the reply. Its stdin is the body of the request.",
)  # fmt: skip
@click.option("-c", "count", metavar="COUNT", type=click.IntRange(min=1), help="Stop after COUNT replies.")
@click.option("--wait", is_flag=True, help="Wait for the topic if it does not exist yet.")
@access_options
def reply(
    access: Access,
    topic: str,
    body: str | None,
    group: str,
    command: str | None,
    count: int | None,
    wait: bool,
) -> None:
    """Reply to the requests of a topic with BODY, or with the output of a command.

    A new group starts at the end of the topic. It runs until Ctrl-C (exit code 130), or until it has sent
    COUNT replies. If the command fails (exit code other than 0, or no output), the request is redelivered.
    Messages that are not requests, and requests that have timed out, are reported on stderr.
    """
    if (body is None) == (command is None):
        raise click.UsageError("give BODY or -x COMMAND")
    if body == "":
        raise click.UsageError("the body is empty; brokers reject empty messages")
    from rocketmq_py.cli.runner import exit_for_signal, run

    replier = Replier(access, topic, group, None if body is None else os.fsencode(body), command, count, wait)
    exit_for_signal(run(replier.run))


@attrs.define
class Replier:
    """Replies to the requests of a topic.

    Args:
        access: the cluster and the credentials.
        topic: the topic.
        group: the consumer group.
        body: the body of every reply. None if ``command`` makes them.
        command: a shell command that gets the body of a request and prints the reply.
        count: number of replies to send. None for no limit.
        wait: whether to wait for the topic if it does not exist yet.
    """

    _access: Access
    _topic: str
    _group: str
    _body: bytes | None
    _command: str | None
    _count: int | None
    _wait: bool = False
    _accepted: int = 0
    _sent: int = 0

    async def run(self) -> None:
        """Reply until cancelled, or until ``count`` replies are sent.

        Raises RocketMQError if the topic does not exist.
        """
        import trio

        from rocketmq_py.cli.runner import consume, hide_cut_off, log_warnings, wait_for_topic
        from rocketmq_py.client import core_of
        from rocketmq_py.errors import BrokerError, InvalidMessageError
        from rocketmq_py.shared_client import Client

        all_sent = trio.CancelScope()
        not_replied = trio.lowlevel.ParkingLot()
        async with (
            Client(self._access.address, **self._access.client_options()) as client,
            client.producer(_GROUP) as producer,
        ):
            # A consumer would wait for a missing topic silently, which hides a mistyped name.
            await wait_for_topic(core_of(client), self._topic, wait=self._wait)
            log_warnings()

            async def handle(request: ReceivedMessage) -> None:
                while self._accepted == self._count:
                    await not_replied.park()  # cancelled at the end, so that the group gets it again
                self._accepted += 1
                try:
                    await producer.reply(request, await self._reply_to(request))
                except BaseException as error:
                    self._accepted -= 1
                    not_replied.unpark()
                    if not isinstance(error, InvalidMessageError | BrokerError):
                        raise
                    complain(str(error))
                    return
                self._sent += 1
                if self._sent == self._count:
                    hide_cut_off()
                    all_sent.cancel()

            async with client.push_consumer(self._group, consume_from="latest") as consumer:
                consumer.subscribe(self._topic)
                with all_sent:
                    await consume(consumer, handle)

    async def _reply_to(self, request: ReceivedMessage) -> bytes:
        if self._command is None:
            return self._body or b""
        import trio

        from rocketmq_py.cli.runner import CommandError

        completed = await trio.run_process(
            ["/bin/sh", "-c", self._command], stdin=request.body, capture_stdout=True, check=False
        )
        if completed.returncode or not completed.stdout:
            reason = (
                f"failed with exit code {completed.returncode}" if completed.returncode else "printed nothing"
            )
            raise CommandError(f"the command {reason} for request {request.message_id}")
        return completed.stdout
