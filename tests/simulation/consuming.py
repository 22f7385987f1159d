"""The consumers of a workload: group members that come and go, and a reader without a group."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable

import trio

from rocketmq_py import (
    LitePullConsumer,
    MessageQueue,
    PopConsumer,
    PushConsumer,
    Reader,
    ReceivedMessage,
)
from rocketmq_py.errors import RocketMQError
from tests.simulation.history import OnPurposeError
from tests.simulation.plan import BROADCASTING, INVISIBLE_SECONDS, READER, Group
from tests.simulation.run_context import RunContext

SMALL_CACHE = 4
"""Pull threshold and batch size of a plan with a small cache. Another pull may add as many messages."""


class Consumers:
    """The members of a plan's groups."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._history = context.history
        self._rng = context.rng
        self._numbers = itertools.count()
        self._open: dict[int, PushConsumer] = {}

    async def run(self) -> None:
        """Consume until the run ends."""
        async with trio.open_nursery() as nursery:
            for group in self._context.plan.groups:
                for _ in range(group.members):
                    nursery.start_soon(self._members, group)

    def check_bounds(self) -> None:
        """Report consumers that cache more messages than their threshold allows."""
        for consumer in self._open.values() if self._context.plan.small_cache else ():
            for queue, statistics in consumer.statistics.queues.items():
                if statistics.cached > 2 * SMALL_CACHE:
                    self._history.add_finding(
                        f"{statistics.cached} messages of {queue} are cached, the threshold is {SMALL_CACHE}"
                    )

    async def _members(self, group: Group) -> None:
        """Run one member after another. Each stays for a random time or until the run ends."""
        consume: Callable[[Group, int], Awaitable[None]] = {
            "lite": self._lite,
            "pop": self._pop,
            READER: self._read,
        }.get(group.name, self._push)
        while not self._context.over.is_set():
            stays = self._rng.uniform(1, 40) if self._rng.random() < 0.5 else self._context.plan.seconds
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_member, nursery.cancel_scope, stays)
                try:
                    await consume(group, next(self._numbers))
                except RocketMQError as error:
                    self._context.world.trace("member fails", group.name, type(error).__name__)
                    await trio.sleep(1)
                nursery.cancel_scope.cancel()

    async def _end_member(self, scope: trio.CancelScope, stays: float) -> None:
        with trio.move_on_after(stays):
            await self._context.over.wait()
        if self._context.is_healed:
            await self._context.over.wait()
        scope.cancel()

    async def _handle(self, group: Group, member: int, message: ReceivedMessage) -> None:
        with self._history.handling(group, member, message):
            await trio.sleep(self._rng.uniform(0.0, 0.2))
            # A broadcasting group has no second delivery.
            fails = not self._context.is_healed and group.name not in BROADCASTING
            if fails and self._rng.random() < 0.1:
                raise OnPurposeError

    async def _push(self, group: Group, member: int) -> None:
        broadcasting = group.name in BROADCASTING
        with self._context.environment():
            consumer = PushConsumer(
                self._context.address,
                group="broadcast" if broadcasting else group.name,
                instance_name=group.name if broadcasting else None,
                broadcasting=broadcasting,
                local_offsets=self._context.folder if broadcasting else None,
                orderly=group.name == "orderly",
                consume_from="earliest",
                pull_threshold_for_queue=SMALL_CACHE if self._context.plan.small_cache else 1000,
                pull_batch_size=SMALL_CACHE if self._context.plan.small_cache else 32,
            )
        async with self._context.closing(group.name, consumer) as consumer:
            consumer.subscribe(group.topic)
            self._open[member] = consumer

            async def handle(message: ReceivedMessage) -> None:
                await self._handle(group, member, message)

            try:
                await consumer.run(handle)
            finally:
                del self._open[member]

    async def _lite(self, group: Group, member: int) -> None:
        with self._context.environment():
            consumer = LitePullConsumer(
                self._context.address,
                group=group.name,
                consume_from="earliest",
            )
        async with self._context.closing(group.name, consumer) as consumer:
            consumer.subscribe(group.topic)
            while True:
                for message in await consumer.poll(wait=5):
                    with self._history.handling(group, member, message):
                        pass

    async def _pop(self, group: Group, member: int) -> None:
        with self._context.environment():
            consumer = PopConsumer(self._context.address, group=group.name)
        async with self._context.closing(group.name, consumer) as consumer:
            consumer.subscribe(group.topic)
            while True:
                for message in await consumer.receive(invisible=INVISIBLE_SECONDS, wait=5.0):
                    with contextlib.suppress(OnPurposeError):
                        await self._handle(group, member, message)
                        await consumer.ack(message)
                        self._history.acknowledged[message.body] += self._context.is_healed

    async def _read(self, group: Group, member: int) -> None:
        """Read each queue from its beginning, and check that offsets have no gaps or repetitions."""
        next_offsets: dict[MessageQueue, int] = {}
        with self._context.environment():
            closed = Reader(self._context.address)
        async with (
            self._context.closing(group.name, closed) as reader,
            reader.open(group.topic, start="earliest") as messages,
        ):
            async for message in messages:
                queue, expected = message.queue, next_offsets.get(message.queue, 0)
                if message.queue_offset != expected and not self._history.has_reused_offsets(queue):
                    self._history.add_finding(
                        f"{queue} is read at {message.queue_offset} after {expected - 1}"
                    )
                next_offsets[queue] = message.queue_offset + 1
                with self._history.handling(group, member, message):
                    pass
