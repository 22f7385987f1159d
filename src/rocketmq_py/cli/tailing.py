"""Reads a topic and prints its messages."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import attrs
import trio

from rocketmq_py.cli.access import Access
from rocketmq_py.cli.format import Render
from rocketmq_py.cli.output import Output, OutputClosedError, stdout_closed, write_stdout
from rocketmq_py.cli.running import complain, show_warnings
from rocketmq_py.cli.start import Offset, Position
from rocketmq_py.client import Client
from rocketmq_py.consumer import ConsumeFrom, Reader
from rocketmq_py.message import ReceivedMessage

MOST_AT_ONCE = 256
"""Messages of a group that may wait to be printed: they are written in one go."""

_CONSUME_FROM = {
    Position.BEGINNING: ConsumeFrom.FIRST,
    Position.END: ConsumeFrom.LAST,
    Position.TIMESTAMP: ConsumeFrom.TIMESTAMP,
}


@attrs.frozen
class Tail:
    """What is to be read and how it is printed.

    Args:
        access: where the cluster is, and how it lets one in.
        topic: the topic.
        tags: ``*``, or ``A || B``.
        offset: where to start; for a group, where a new one begins.
        render: returns the bytes to print for a message.
        count: how many messages to print; None for no end.
        sql: a SQL92 condition on properties, in place of tags.
        pattern: what a body must have in it to be printed.
        end_ms: a time that has passed, epoch milliseconds: nothing that was stored later is printed.
    """

    access: Access
    topic: str
    tags: str
    offset: Offset
    render: Render
    count: int | None
    sql: str | None = None
    pattern: re.Pattern[bytes] | None = None
    end_ms: int | None = None

    async def as_reader(self, *, stop_at_end: bool) -> None:
        """Print without joining a group. Raises RocketMQError when the topic cannot be read."""

        async def read(output: Output) -> None:
            printed = 0
            async with (
                Reader(self.access.name_servers, **self.access.client_options()) as reader,
                reader.open(
                    self.topic,
                    start=self.offset.start(),
                    stop_at_end=stop_at_end or self.end_ms is not None,
                    tags=self.tags,
                    sql=self.sql,
                ) as messages,
            ):
                show_warnings()
                left = set() if self.end_ms is None else set(await reader.offsets(self.topic))
                async for message in messages:
                    if self.end_ms is not None and message.store_time_ms > self.end_ms:
                        left.discard(message.queue)
                        if not left:
                            break
                    elif self._is_wanted(message):
                        await output.print(self._rendered(message))
                        printed += 1
                        if printed == self.count:
                            break

        await _print_with(read)

    async def as_member(self, group: str) -> None:
        """Print as a member of ``group``: a message counts as consumed when it has been printed.

        Raises RocketMQError when the topic does not exist or nobody can be asked about it.
        """

        from rocketmq_py.consumer import PushConsumer  # most read without a group

        async def consume(output: Output) -> None:
            taken = printed = 0
            enough = trio.CancelScope()

            async def handle(message: ReceivedMessage) -> None:
                nonlocal taken, printed
                if not self._is_wanted(message):
                    return
                if taken == self.count:
                    await trio.sleep_forever()  # one too many: cancelled, so that the group gets it again
                taken += 1
                await output.print_now(self._rendered(message))
                printed += 1
                if printed == self.count:
                    enough.cancel()

            async with Client(self.access.name_servers, **self.access.client_options()) as client:
                # A consumer waits for what is not there; a user wants to be told of a slip of the pen.
                await client.routes.get(self.topic)
                await self._say_where_a_new_group_starts(client, group)
                show_warnings()
                async with PushConsumer(
                    client,
                    group=group,
                    concurrency=min(self.count or MOST_AT_ONCE, MOST_AT_ONCE),
                    consume_from=_CONSUME_FROM[self.offset.position],
                    consume_timestamp_ms=self.offset.number,
                ) as consumer:
                    consumer.subscribe(self.topic, self.tags, sql=self.sql)
                    with enough:
                        await consumer.run(handle)

        await _print_with(consume)

    async def _say_where_a_new_group_starts(self, client: Client, group: str) -> None:
        if self.offset.position is not Position.END:
            return
        async with Reader(client) as reader:
            committed = await reader.committed(group, await reader.offsets(self.topic))
        if all(offset is None for offset in committed.values()):
            complain(
                f"group {group!r} is new to topic {self.topic!r}: it starts at the end; -o beginning has it "
                "start with the first message"
            )

    def _is_wanted(self, message: ReceivedMessage) -> bool:
        return self.pattern is None or self.pattern.search(message.body) is not None

    def _rendered(self, message: ReceivedMessage) -> bytes:
        if message.corruption is not None:
            complain(f"message {message.message_id} is printed as it is stored: {message.corruption}")
        return self.render(message)


async def _print_with(work: Callable[[Output], Awaitable[None]]) -> None:
    """Run ``work`` with standard output, until it ends or nobody reads the output any more."""
    output = Output(write_stdout)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(output.run)
            nursery.start_soon(stdout_closed)
            await work(output)
            await output.flush()
            nursery.cancel_scope.cancel()
    except* OutputClosedError:
        pass  # the end, and a good one
