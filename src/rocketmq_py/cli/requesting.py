"""Sends a request and prints its reply, and replies to requests."""

from __future__ import annotations

import sys

import attrs
import trio

from rocketmq_py.cli.access import Access
from rocketmq_py.cli.console import complain, write_parts
from rocketmq_py.cli.format import Render
from rocketmq_py.cli.running import CommandError, show_warnings, wait_for_topic
from rocketmq_py.errors import BrokerError, InvalidMessageError
from rocketmq_py.message import Message, ReceivedMessage
from rocketmq_py.producer import Producer

_GROUP = "CID_RMQ_SYS_REPLIER"


async def ask(access: Access, message: Message, timeout: float, render: Render) -> None:
    """Send a request and print its reply. Raises ReplyTimeoutError, and what a send raises."""
    async with Producer(access.name_servers, **access.client_options()) as producer:
        reply = await producer.request(message, timeout=timeout)
    write_parts(sys.stdout, render(reply))


@attrs.define
class Replier:
    """Replies to the requests of a topic.

    Args:
        access: where the cluster is, and how it lets one in.
        topic: the topic.
        group: the consumer group.
        body: the reply to each; None if ``command`` makes them.
        command: a command of the shell that gets a request's body and prints the reply.
        count: how many replies to send; None for no end.
        wait: whether to wait for the topic if it does not exist yet.
    """

    _access: Access
    _topic: str
    _group: str
    _body: bytes | None
    _command: str | None
    _count: int | None
    _wait: bool = False
    _taken: int = 0
    _sent: int = 0

    async def run(self) -> None:
        """Reply until cancelled, or until it is enough. Raises RocketMQError if there is no such topic."""
        from rocketmq_py.consumer import ConsumeFrom
        from rocketmq_py.shared_client import Client

        enough = trio.CancelScope()
        async with (
            Client(self._access.name_servers, **self._access.client_options()) as client,
            client.producer(_GROUP) as producer,
        ):
            # A consumer would wait for a missing topic silently, which hides a mistyped name.
            await wait_for_topic(client, self._topic, wait=self._wait)
            show_warnings()

            async def handle(request: ReceivedMessage) -> None:
                if self._taken == self._count:
                    await trio.sleep_forever()  # one too many: cancelled, so that the group gets it again
                self._taken += 1
                try:
                    await producer.reply(request, await self._reply_to(request))
                except (InvalidMessageError, BrokerError) as error:
                    complain(str(error))
                    self._taken -= 1
                    return
                except BaseException:
                    self._taken -= 1
                    raise
                self._sent += 1
                if self._sent == self._count:
                    enough.cancel()

            async with client.push_consumer(self._group, consume_from=ConsumeFrom.LAST) as consumer:
                consumer.subscribe(self._topic)
                with enough:
                    await consumer.run(handle)

    async def _reply_to(self, request: ReceivedMessage) -> bytes:
        if self._command is None:
            return self._body or b""
        ended = await trio.run_process(
            ["/bin/sh", "-c", self._command], stdin=request.body, capture_stdout=True, check=False
        )
        if ended.returncode or not ended.stdout:
            why = f"ended with {ended.returncode}" if ended.returncode else "printed nothing"
            raise CommandError(f"the command {why} for request {request.message_id}")
        return ended.stdout
