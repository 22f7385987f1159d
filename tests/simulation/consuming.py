"""Those who receive messages: members of groups that come and go, and who reads for itself."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable

import trio

from rocketmq_py import (
    ConsumeFrom,
    LitePullConsumer,
    MessageQueue,
    PopConsumer,
    PushConsumer,
    Reader,
    ReceivedMessage,
    StartPosition,
)
from rocketmq_py.errors import RocketMQError
from tests.simulation.plan import BROADCASTING, INVISIBLE_SECONDS, READER, Group
from tests.simulation.scene import Scene
from tests.simulation.story import OnPurposeError

TIGHT = 4
"""Messages of a queue that a push consumer holds where it holds few; another pull may bring as many."""


class Consumers:
    """The members of a plan's groups."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._story = scene.story
        self._rng = scene.rng
        self._numbers = itertools.count()
        self._open: dict[int, PushConsumer] = {}

    async def run(self) -> None:
        """Consume until all is over."""
        async with trio.open_nursery() as nursery:
            for group in self._scene.plan.groups:
                for _ in range(group.members):
                    nursery.start_soon(self._members, group)

    def check_bounds(self) -> None:
        """Find members that hold more than they may."""
        for consumer in self._open.values() if self._scene.plan.tight else ():
            for queue, statistics in consumer.statistics.queues.items():
                if statistics.cached > 2 * TIGHT:
                    self._story.find(f"{statistics.cached} messages of {queue} are held, not {TIGHT}")

    async def _members(self, group: Group) -> None:
        """One member after the other: each stays for a while, or until all is over."""
        consume: Callable[[Group, int], Awaitable[None]] = {
            "lite": self._lite,
            "pop": self._pop,
            READER: self._read,
        }.get(group.name, self._push)
        while not self._scene.over.is_set():
            stays = self._rng.uniform(1, 40) if self._rng.random() < 0.5 else self._scene.plan.seconds
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_member, nursery.cancel_scope, stays)
                try:
                    await consume(group, next(self._numbers))
                except RocketMQError as error:
                    self._scene.world.trace("member fails", group.name, type(error).__name__)
                    await trio.sleep(1)
                nursery.cancel_scope.cancel()

    async def _end_member(self, scope: trio.CancelScope, stays: float) -> None:
        with trio.move_on_after(stays):
            await self._scene.over.wait()
        if self._scene.is_calm:
            await self._scene.over.wait()
        scope.cancel()

    async def _handle(self, group: Group, member: int, message: ReceivedMessage) -> None:
        with self._story.handling(group, member, message):
            await trio.sleep(self._rng.uniform(0.0, 0.2))
            # A broadcasting group has no second delivery.
            fails = not self._scene.is_calm and group.name not in BROADCASTING
            if fails and self._rng.random() < 0.1:
                raise OnPurposeError

    async def _push(self, group: Group, member: int) -> None:
        broadcasting = group.name in BROADCASTING
        consumer = PushConsumer(
            self._scene.address,
            group="broadcast" if broadcasting else group.name,
            instance_name=group.name if broadcasting else None,
            broadcasting=broadcasting,
            local_offsets=self._scene.folder if broadcasting else None,
            orderly=group.name == "orderly",
            consume_from=ConsumeFrom.FIRST,
            now_ms=self._scene.clock(),
            pull_threshold_for_queue=TIGHT if self._scene.plan.tight else 1000,
            pull_batch_size=TIGHT if self._scene.plan.tight else 32,
        )
        async with self._scene.closing(group.name, consumer) as consumer:
            consumer.subscribe(group.topic)
            self._open[member] = consumer

            async def handle(message: ReceivedMessage) -> None:
                await self._handle(group, member, message)

            try:
                await consumer.run(handle)
            finally:
                del self._open[member]

    async def _lite(self, group: Group, member: int) -> None:
        consumer = LitePullConsumer(
            self._scene.address,
            group=group.name,
            consume_from=ConsumeFrom.FIRST,
            now_ms=self._scene.clock(),
        )
        async with self._scene.closing(group.name, consumer) as consumer:
            consumer.subscribe(group.topic)
            while True:
                for message in await consumer.poll(timeout=5):
                    with self._story.handling(group, member, message):
                        pass

    async def _pop(self, group: Group, member: int) -> None:
        consumer = PopConsumer(self._scene.address, group=group.name, now_ms=self._scene.clock())
        async with self._scene.closing(group.name, consumer) as consumer:
            consumer.subscribe(group.topic)
            while True:
                for message in await consumer.receive(invisible=INVISIBLE_SECONDS, wait=5.0):
                    with contextlib.suppress(OnPurposeError):
                        await self._handle(group, member, message)
                        await consumer.ack(message)
                        self._story.acknowledged[message.body] += self._scene.is_calm

    async def _read(self, group: Group, member: int) -> None:
        """Read all from the beginning: each message once, without a gap."""
        places: dict[MessageQueue, int] = {}
        async with (
            self._scene.closing(
                group.name, Reader(self._scene.address, now_ms=self._scene.clock())
            ) as reader,
            reader.open(group.topic, start=StartPosition.BEGINNING) as messages,
        ):
            async for message in messages:
                queue, place = message.queue, places.get(message.queue, 0)
                if message.queue_offset != place and not self._story.is_said_twice(queue):
                    self._story.find(f"{queue} is read at {message.queue_offset} after {place - 1}")
                places[queue] = message.queue_offset + 1
                with self._story.handling(group, member, message):
                    pass
