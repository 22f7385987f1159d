"""Read topics and print their messages: the work of ``rocketmq-py tail``."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

import attrs
import trio

from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.console import complain
from rocketmq_py.cli.message_formats import Render
from rocketmq_py.cli.runner import CommandError, consume, hide_cut_off, log_warnings, wait_for_topic
from rocketmq_py.cli.sinks import OpenSink, OutputClosedError, Sink, StdoutSink
from rocketmq_py.client import Client, core_of
from rocketmq_py.client.routes import MISSING_PAUSE
from rocketmq_py.consumer import Reader
from rocketmq_py.errors import RocketMQError, TopicNotFoundError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.position import Position, PositionKind

MAX_CONCURRENT = 256
"""Messages of a group that are printed concurrently. They are written together."""


@attrs.frozen
class Tail:
    """The topics to read, and how their messages are printed.

    Args:
        access: the cluster and the credentials.
        topics: the topics, or patterns of their names.
        tags: ``*``, or ``A || B``.
        start: where to start. For a group, where a new group starts.
        render: returns the parts to print for a message.
        count: how many messages to print. None for no limit.
        sql: a SQL92 filter on properties, instead of tags.
        pattern: only messages whose body matches it are printed.
        end_ms: a time in the past, epoch milliseconds. Messages stored then or later are not printed.
        sink: opens the destination of the messages.
        concurrency: messages of a group that are handled at the same time.
        lag_every: seconds between two reports of the group's lag. None for no reports.
        wait: whether to wait for topics that do not exist yet.
    """

    access: Access
    topics: tuple[str, ...]
    tags: str
    start: Position
    render: Render
    count: int | None
    sql: str | None = None
    pattern: re.Pattern[bytes] | None = None
    end_ms: int | None = None
    sink: OpenSink = StdoutSink
    concurrency: int = MAX_CONCURRENT
    lag_every: float | None = None
    wait: bool = False

    async def as_reader(self, *, stop_at_end: bool) -> None:
        """Print messages without joining a group. Raises RocketMQError if a topic cannot be read."""
        quota = _Quota(self.count)
        started: set[str] = set()

        async def read(sink: Sink, reader: Reader, topic: str, start: Position) -> None:
            async with reader.open(
                topic,
                start=start,
                stop_at_end=stop_at_end or self.end_ms is not None,
                tags=self.tags,
                sql=self.sql,
            ) as messages:
                log_warnings()
                left = set() if self.end_ms is None else set(await reader.offsets(topic))
                async for message in messages:
                    if self.end_ms is not None and message.store_time_ms >= self.end_ms:
                        left.discard(message.queue)
                        if not left:
                            break
                    elif self._is_wanted(message):
                        await self._print(message, sink.put, quota)

        async def read_matching(sink: Sink, reader: Reader, nursery: trio.Nursery, name: str) -> None:
            topics, is_new = await self._find(reader, name)
            start = self.start
            if is_new and start.kind in (PositionKind.LATEST, PositionKind.LAST):
                start = Position.earliest  # all its messages are newer than this command
            for topic in topics:
                if topic not in started:
                    started.add(topic)
                    nursery.start_soon(read, sink, reader, topic, start)

        async def read_all(sink: Sink) -> None:
            async with Reader(self.access.address, **self.access.client_options()) as reader:
                with quota.exhausted:
                    async with trio.open_nursery() as nursery:
                        for name in self.topics:
                            nursery.start_soon(read_matching, sink, reader, nursery, name)

        await _print_with(self.sink, read_all)

    async def as_member(self, group: str) -> None:
        """Print messages as a member of ``group``. A message counts as consumed once it is printed.

        Raises RocketMQError if a topic does not exist, unless ``wait`` is set, or cannot be read.
        """
        # Fast path: not imported without a group, saves 18 % of the CPU of the imports of `tail`.
        from rocketmq_py.consumer import PushConsumer

        quota = _Quota(self.count)

        async def run_member(sink: Sink) -> None:
            async def handle(message: ReceivedMessage) -> None:
                if self._is_wanted(message):
                    await self._print(message, sink.put_now, quota)

            async with (
                Client(self.access.address, **self.access.client_options()) as client,
                Reader(client) as reader,
                trio.open_nursery() as nursery,
            ):
                topics = await self._topics_of_member(reader, group, nursery)
                log_warnings()
                async with PushConsumer(
                    client,
                    group=group,
                    concurrency=min(self.count or self.concurrency, self.concurrency),
                    consume_from=self.start,
                ) as consumer:
                    for topic in topics:
                        consumer.subscribe(topic, self.tags, sql=self.sql)
                    if self.lag_every is not None:
                        nursery.start_soon(report_lag, client, group, self.lag_every)
                    with quota.exhausted:
                        await consume(consumer, handle)
                nursery.cancel_scope.cancel()

        await _print_with(self.sink, run_member)

    async def _topics_of_member(self, reader: Reader, group: str, nursery: trio.Nursery) -> list[str]:
        """Return the topics to subscribe. Those that do not exist yet are looked for in ``nursery``."""
        topics: dict[str, None] = {}
        for name in dict.fromkeys(self.topics):
            if self.wait and not _is_pattern(name) and not await _exists(reader, name):
                topics[name] = None
                nursery.start_soon(self._find, reader, name)
                continue
            found, is_new = await self._find(reader, name)
            for topic in found:
                topics[topic] = None
                if not is_new:
                    await self._warn_of_start_at_end(reader, group, topic)
        return list(topics)

    async def _find(self, reader: Reader, name: str) -> tuple[list[str], bool]:
        """Return the topics that ``name`` stands for, and whether they were created while it waited.

        Raises CommandError if there are none and ``wait`` is not set.
        """
        if not _is_pattern(name):
            return [name], await wait_for_topic(core_of(reader), name, wait=self.wait)
        if topics := await _matching(reader, name):
            return topics, False
        if not self.wait:
            raise CommandError(f"no topic matches {name!r}; --wait waits until it is created")
        complain(f"no topic matches {name!r}; waiting until it is created")
        while True:
            await trio.sleep(MISSING_PAUSE)
            with suppress(RocketMQError):
                if topics := await _matching(reader, name):
                    return topics, True

    async def _warn_of_start_at_end(self, reader: Reader, group: str, topic: str) -> None:
        if self.start != Position.latest:
            return
        try:
            committed = await reader.committed(group, await reader.offsets(topic))
        except RocketMQError:
            return  # the consumer reads from the other brokers, and logs the error of this one
        if all(offset is None for offset in committed.values()):
            complain(
                f"group {group!r} is new to topic {topic!r} and starts at its end, or at the first message "
                "of a new topic; use -o earliest to start at the first message"
            )

    def _is_wanted(self, message: ReceivedMessage) -> bool:
        return self.pattern is None or self.pattern.search(message.body) is not None

    async def _print(
        self,
        message: ReceivedMessage,
        put: Callable[[ReceivedMessage, Sequence[bytes]], Awaitable[None]],
        quota: _Quota,
    ) -> None:
        await quota.take()
        try:
            await put(message, self._rendered(message))
        except BaseException:
            quota.give_back()
            raise
        quota.printed()

    def _rendered(self, message: ReceivedMessage) -> Sequence[bytes]:
        if message.corruption is not None:
            complain(f"message {message.message_id} is printed as stored: {message.corruption}")
        return self.render(message)


class _Quota:
    """The number of messages that may still be printed.

    Attributes:
        exhausted: cancelled once all of them are printed.
    """

    def __init__(self, count: int | None) -> None:
        self.exhausted: trio.CancelScope = trio.CancelScope()
        self._left_to_take = None if count is None else trio.Semaphore(count)
        self._left_to_print = count

    async def take(self) -> None:
        """Wait until another message may be printed, or until cancelled if all of them are.

        A group's message whose handler is cancelled here is delivered again.
        """
        if self._left_to_take is not None:
            await self._left_to_take.acquire()

    def give_back(self) -> None:
        """Let another message be printed in place of one that failed."""
        if self._left_to_take is not None:
            self._left_to_take.release()

    def printed(self) -> None:
        """Count a printed message."""
        if self._left_to_print is not None:
            self._left_to_print -= 1
            if not self._left_to_print:
                hide_cut_off()
                self.exhausted.cancel()


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


async def _exists(reader: Reader, topic: str) -> bool:
    try:
        await core_of(reader).routes.find(topic)
    except TopicNotFoundError:
        return False
    return True


async def _matching(reader: Reader, pattern: str) -> list[str]:
    return [topic for topic in await reader.topics() if fnmatchcase(topic, pattern)]


async def report_lag(client: Client, group: str, seconds: float) -> None:
    """Print a group's lag to standard error every ``seconds`` until cancelled."""
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


async def _print_with(open_sink: OpenSink, work: Callable[[Sink], Awaitable[None]]) -> None:
    """Run ``work`` with a sink until it returns, or until the reader of the output goes away."""
    try:
        async with trio.open_nursery() as nursery:
            sink = open_sink(nursery)
            await work(sink)
            await sink.flush()
            nursery.cancel_scope.cancel()
    except* OutputClosedError:
        pass  # a regular end
