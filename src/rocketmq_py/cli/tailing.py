"""Reads topics and prints their messages."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase

import attrs
import trio

from rocketmq_py.cli.access import Access
from rocketmq_py.cli.console import complain
from rocketmq_py.cli.format import Render
from rocketmq_py.cli.outlets import OpenOutlet, Outlet, Printed
from rocketmq_py.cli.output import OutputClosedError
from rocketmq_py.cli.running import CommandError, show_warnings
from rocketmq_py.cli.start import Offset, Position
from rocketmq_py.client import Client
from rocketmq_py.consumer import ConsumeFrom, Reader
from rocketmq_py.errors import RocketMQError
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
        topics: the topics, or patterns of their names.
        tags: ``*``, or ``A || B``.
        offset: where to start; for a group, where a new one begins.
        render: returns the bytes to print for a message.
        count: how many messages to print; None for no end.
        sql: a SQL92 filter on properties, in place of tags.
        pattern: what a body must have in it to be printed.
        end_ms: a time that has passed, epoch milliseconds: nothing that was stored later is printed.
        outlet: where to.
        at_once: of a group's messages, how many are handled side by side; None for many.
        lag_every: after how many seconds the group's lag is told, again and again; None for never.
    """

    access: Access
    topics: tuple[str, ...]
    tags: str
    offset: Offset
    render: Render
    count: int | None
    sql: str | None = None
    pattern: re.Pattern[bytes] | None = None
    end_ms: int | None = None
    outlet: OpenOutlet = Printed
    at_once: int | None = None
    lag_every: float | None = None

    async def as_reader(self, *, stop_at_end: bool) -> None:
        """Print without joining a group. Raises RocketMQError when the topic cannot be read."""

        taken = printed = 0
        enough = trio.CancelScope()

        async def take(outlet: Outlet, message: ReceivedMessage) -> None:
            nonlocal taken, printed
            if taken == self.count:
                await trio.sleep_forever()  # one too many, of another topic
            taken += 1
            await outlet.put(message, self._rendered(message))
            printed += 1
            if printed == self.count:
                enough.cancel()

        async def read(outlet: Outlet, reader: Reader, topic: str) -> None:
            async with reader.open(
                topic,
                start=self.offset.start(),
                stop_at_end=stop_at_end or self.end_ms is not None,
                tags=self.tags,
                sql=self.sql,
            ) as messages:
                show_warnings()
                left = set() if self.end_ms is None else set(await reader.offsets(topic))
                async for message in messages:
                    if self.end_ms is not None and message.store_time_ms > self.end_ms:
                        left.discard(message.queue)
                        if not left:
                            break
                    elif self._is_wanted(message):
                        await take(outlet, message)

        async def read_all(outlet: Outlet) -> None:
            async with Reader(self.access.name_servers, **self.access.client_options()) as reader:
                topics = await self._chosen(reader)
                with enough:
                    async with trio.open_nursery() as nursery:
                        for topic in topics:
                            nursery.start_soon(read, outlet, reader, topic)

        await _hand_to(self.outlet, read_all)

    async def as_member(self, group: str) -> None:
        """Print as a member of ``group``: a message counts as consumed when it has been printed.

        Raises RocketMQError when the topic does not exist or nobody can be asked about it.
        """

        from rocketmq_py.consumer import PushConsumer  # most read without a group

        async def consume(outlet: Outlet) -> None:
            taken = printed = 0
            enough = trio.CancelScope()

            async def handle(message: ReceivedMessage) -> None:
                nonlocal taken, printed
                if not self._is_wanted(message):
                    return
                if taken == self.count:
                    await trio.sleep_forever()  # one too many: cancelled, so that the group gets it again
                taken += 1
                await outlet.put_now(message, self._rendered(message))
                printed += 1
                if printed == self.count:
                    enough.cancel()

            async with Client(self.access.name_servers, **self.access.client_options()) as client:
                async with Reader(client) as reader:
                    topics = await self._chosen(reader)
                    for topic in topics:
                        # A consumer waits for what is not there; a user wants to be told of slips of the pen.
                        await client.routes.get(topic)
                        await self._say_where_a_new_group_starts(reader, group, topic)
                show_warnings()
                most = self.at_once or MOST_AT_ONCE
                async with PushConsumer(
                    client,
                    group=group,
                    concurrency=min(self.count or most, most),
                    consume_from=_CONSUME_FROM[self.offset.position],
                    consume_timestamp_ms=self.offset.number,
                ) as consumer:
                    for topic in topics:
                        consumer.subscribe(topic, self.tags, sql=self.sql)
                    with enough:
                        async with trio.open_nursery() as nursery:
                            if self.lag_every is not None:
                                nursery.start_soon(tell_lag, client, group, self.lag_every)
                            await consumer.run(handle)

        await _hand_to(self.outlet, consume)

    async def _chosen(self, reader: Reader) -> list[str]:
        """Return the names of the topics that are meant. Raises CommandError if a pattern fits none."""
        if not any(_is_pattern(topic) for topic in self.topics):
            return list(dict.fromkeys(self.topics))
        known = await reader.topics()
        chosen: dict[str, None] = {}
        for topic in self.topics:
            found = [name for name in known if fnmatchcase(name, topic)] if _is_pattern(topic) else [topic]
            if not found:
                raise CommandError(f"no topic is like {topic!r}")
            chosen.update(dict.fromkeys(found))
        return list(chosen)

    async def _say_where_a_new_group_starts(self, reader: Reader, group: str, topic: str) -> None:
        if self.offset.position is not Position.END:
            return
        committed = await reader.committed(group, await reader.offsets(topic))
        if all(offset is None for offset in committed.values()):
            complain(
                f"group {group!r} is new to topic {topic!r}: it starts at the end; -o beginning has it "
                "start with the first message"
            )

    def _is_wanted(self, message: ReceivedMessage) -> bool:
        return self.pattern is None or self.pattern.search(message.body) is not None

    def _rendered(self, message: ReceivedMessage) -> Sequence[bytes]:
        if message.corruption is not None:
            complain(f"message {message.message_id} is printed as it is stored: {message.corruption}")
        return self.render(message)


def _is_pattern(topic: str) -> bool:
    return "*" in topic or "?" in topic


async def tell_lag(client: Client, group: str, seconds: float) -> None:
    """Say again and again on stderr how far a group is behind."""
    from rocketmq_py.admin import Admin

    async with Admin(client) as admin:
        while True:
            await trio.sleep(seconds)
            try:
                described = await admin.groups.describe(group)
            except RocketMQError as error:
                complain(f"group {group!r}: {error}")
            else:
                complain(f"group {group!r}: lag {described.lag:,}, {len(described.members)} members")


async def _hand_to(open_outlet: OpenOutlet, work: Callable[[Outlet], Awaitable[None]]) -> None:
    """Run ``work`` with an outlet, until it ends or nobody reads what is put there any more."""
    try:
        async with trio.open_nursery() as nursery:
            outlet = open_outlet(nursery)
            await work(outlet)
            await outlet.flush()
            nursery.cancel_scope.cancel()
    except* OutputClosedError:
        pass  # the end, and a good one
