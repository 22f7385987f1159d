"""Groups whose members join, leave, crash and lose their connections at random, on the embedded broker.

Once the group has settled, each queue has exactly one owner, orderly consumers have handled their messages in
order, and no message is lost. Each seed gives a reproducible run in virtual time.
"""

from __future__ import annotations

import math
import os
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress

import attrs
import pytest
import trio

from rocketmq_py import (
    Client,
    LitePullConsumer,
    Message,
    MessageQueue,
    PopConsumer,
    PoppedMessage,
    PushConsumer,
    ReceivedMessage,
)
from rocketmq_py.consumer.settings import LOCK_MAX_LIVE_TIME
from rocketmq_py.errors import ClosedError, RocketMQError
from rocketmq_py.testing import World, simulate

SEEDS = range(*map(int, os.environ.get("ROCKETMQ_SEEDS", "0 2").split()))
"""Set ROCKETMQ_SEEDS="2 500" to run more seeds."""
QUEUES = 4
CHAOS_SECONDS = 40
LONGEST_CALL = 0.3
SETTLE_SECONDS = 150
"""Brokers keep the locks and the membership of a crashed member for at most two minutes."""


@attrs.define(eq=False)
class Member:
    """A consumer that can be killed or asked to leave."""

    name: str
    consumer: PushConsumer | LitePullConsumer | PopConsumer
    killed: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    leaving: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)

    @property
    def queues(self) -> list[MessageQueue]:
        assert not isinstance(self.consumer, PopConsumer)
        if isinstance(self.consumer, PushConsumer):
            return [queue for queue in self.consumer.assignment if queue.topic == "T"]
        return self.consumer.assignment


@attrs.define
class Group:
    """The members of a group, and the faults that are injected.

    Attributes:
        open: creates a consumer for an address.
        consume: consumes with a member's open consumer until it is cancelled or leaves.
        crashed_at: when the broker was last restarted after a crash, on trio's clock.
    """

    world: World
    nursery: trio.Nursery
    open: Callable[[str], PushConsumer | LitePullConsumer | PopConsumer]
    consume: Callable[[Member], Awaitable[None]]
    members: list[Member] = attrs.field(factory=list)
    count: int = 0
    crashed_at: float = -math.inf

    async def run_chaos(self, client: Client, messages: int) -> None:
        """Start with one member, and inject faults while messages are sent."""
        self.join()
        self.nursery.start_soon(send, client, messages)
        await self._inject_faults(CHAOS_SECONDS)

    def check_owners(self) -> None:
        owned = [queue for member in self.members for queue in member.queues]
        assert sorted(queue.queue_id for queue in owned) == list(range(QUEUES))

    def join(self) -> None:
        self.count += 1
        member = Member(f"m{self.count}", self.open(self.world.name_server_address))
        self.members.append(member)
        self.nursery.start_soon(self._run_member, member)

    async def _run_member(self, member: Member) -> None:
        with member.killed:
            async with member.consumer, trio.open_nursery() as nursery:
                member.consumer.subscribe("T")
                nursery.start_soon(self.consume, member)
                await member.leaving.wait()
                await trio.lowlevel.checkpoint()  # stop() has no effect before run() has started
                if isinstance(member.consumer, PushConsumer):
                    member.consumer.stop()
                else:
                    nursery.cancel_scope.cancel()
        self.members.remove(member)
        member.ended.set()

    async def _inject_faults(self, seconds: float) -> None:
        """Inject random faults for a time. Leaves at least two members."""
        world, rng = self.world, self.world.rng
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            await trio.sleep(rng.choice((0, 0.001, 0.02, 0.5, 3, 10)) * rng.random())
            member = rng.choice(self.members) if self.members else None
            if member is None or (rng.random() < 0.3 and len(self.members) < 4):
                self.join()
                continue
            match rng.randrange(6):
                case 0 | 1:
                    member.leaving.set()
                case 2:
                    member.killed.cancel()
                case 3 if await disturb(world):
                    self.crashed_at = trio.current_time()
                case 4 if not isinstance(member.consumer, PopConsumer):
                    member.consumer.unsubscribe("T")
                    await trio.sleep(rng.choice((0, 0.01, 1)))
                    if member.consumer.is_open:
                        member.consumer.subscribe("T")
                case 5 if not isinstance(member.consumer, PopConsumer):
                    member.consumer.pause()
                    await trio.sleep(rng.random())
                    member.consumer.resume()
        world.heal()
        while len(self.members) < 2:
            self.join()

    async def end(self) -> None:
        assert self.world._connection_count()
        for member in list(self.members):
            member.leaving.set()
            await member.ended.wait()


async def disturb(world: World) -> bool:
    """Cut connections, lose responses, or crash and restart the broker. Returns True for a crash."""
    rng = world.rng
    match rng.randrange(7):
        case 0 | 1 | 2:
            world.cut()
        case 3 | 4 | 5:
            world.lose_answers(None, times=rng.randint(1, 5))
        case _:
            await world.crash("broker-a")
            await trio.sleep(rng.choice((0.1, 3, 20)))
            await world.restart("broker-a")
            return True
    return False


async def send(client: Client, count: int, first: int = 0) -> None:
    queues = [MessageQueue("T", "broker-a", number) for number in range(QUEUES)]
    async with client.producer("senders") as producer:
        for number in range(first, first + count):
            while True:
                try:
                    await producer.send(Message("T", b"%d" % number), queue=queues[number % QUEUES])
                except RocketMQError:
                    await trio.sleep(1)
                else:
                    break
            await trio.sleep(0.05)


def replay(program: Callable[[World], Awaitable[None]], seed: int) -> None:
    """Simulate a program with this seed, and check that it closes all connections."""

    async def main(world: World) -> None:
        await program(world)
        await trio.sleep(1)
        assert not world._connection_count()

    latency = random.Random(seed).choice((0.0, 0.002, 0.1))
    simulate(main, seed=seed, topics={"T": QUEUES}, latency=(0.0, latency))


@attrs.define
class Journal:
    """The handled messages, the queues with a running call, and the violations found."""

    handled: defaultdict[MessageQueue, list[int]] = attrs.field(factory=lambda: defaultdict(list))
    running: set[MessageQueue] = attrs.field(factory=set)
    bodies: set[int] = attrs.field(factory=set)
    problems: list[str] = attrs.field(factory=list)

    def check_order(self) -> None:
        """Check that each queue was handled in order. A crash before a commit repeats messages."""
        for offsets in self.handled.values():
            highest = -1
            for offset in offsets:
                assert offset <= highest + 1, "a message was skipped"
                highest = max(highest, offset)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_push_consumers(seed: int, orderly: bool) -> None:
    journal = Journal()

    async def program(world: World) -> None:
        rng = world.rng

        async def handle(message: ReceivedMessage) -> None:
            # A restarted broker has lost its locks while clients still hold theirs for a while, as in Java.
            are_known = trio.current_time() - group.crashed_at > LOCK_MAX_LIVE_TIME + LONGEST_CALL
            if orderly and are_known and message.queue in journal.running:
                journal.problems.append(f"concurrent handler calls for {message.queue}")
            journal.running.add(message.queue)
            try:
                await trio.sleep(rng.choice((0, 0, 0.01, LONGEST_CALL)))
                journal.handled[message.queue].append(message.queue_offset)
                journal.bodies.add(int(message.body))
            finally:
                journal.running.discard(message.queue)

        async def consume(member: Member) -> None:
            assert isinstance(member.consumer, PushConsumer)
            with suppress(ClosedError):  # it may leave before it starts
                await member.consumer.run(handle)

        def consumer(address: str) -> PushConsumer:
            return PushConsumer(address, group="g", orderly=orderly, consume_from="earliest")

        async with Client(world.name_server_address) as client, trio.open_nursery() as nursery:
            group = Group(world, nursery, consumer, consume)
            await group.run_chaos(client, 400)
            await trio.sleep(SETTLE_SECONDS)
            group.check_owners()
            assert journal.bodies == set(range(400))
            await send(client, 8, first=400)
            await trio.sleep(5)
            assert journal.bodies == set(range(408))
            await group.end()

    replay(program, seed)
    assert not journal.problems
    if orderly:
        journal.check_order()


@pytest.mark.parametrize("seed", SEEDS)
def test_lite_pull_consumers(seed: int) -> None:
    polled: set[int] = set()

    async def program(world: World) -> None:
        rng = world.rng

        async def consume(member: Member) -> None:
            assert isinstance(member.consumer, LitePullConsumer)
            while True:
                try:
                    messages = await member.consumer.poll(max_messages=rng.randint(1, 20), wait=1)
                except ClosedError:
                    return
                except RocketMQError:  # nothing is subscribed now
                    await trio.sleep(0.1)
                    continue
                # Leaving acknowledges the messages of the last poll.
                polled.update(int(message.body) for message in messages)
                await trio.sleep(rng.choice((0, 0, 0.01, 0.3)))

        def consumer(address: str) -> LitePullConsumer:
            return LitePullConsumer(address, group="g", consume_from="earliest")

        async with Client(world.name_server_address) as client, trio.open_nursery() as nursery:
            group = Group(world, nursery, consumer, consume)
            await group.run_chaos(client, 400)
            await trio.sleep(SETTLE_SECONDS)
            group.check_owners()
            assert polled == set(range(400))
            await group.end()

    replay(program, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_pop_consumers_in_order(seed: int) -> None:
    done: defaultdict[MessageQueue, set[int]] = defaultdict(set)
    bodies: set[int] = set()

    async def program(world: World) -> None:
        rng = world.rng

        async def consume(member: Member) -> None:
            consumer = member.consumer
            assert isinstance(consumer, PopConsumer)
            while True:
                try:
                    messages = await consumer.receive(
                        max_messages=rng.choice((1, 3, 32)),
                        invisible=rng.choice((1, 5, 20)),
                        wait=rng.choice((0, 5)),
                    )
                    by_queue: defaultdict[MessageQueue, list[PoppedMessage]] = defaultdict(list)
                    for message in messages:
                        by_queue[message.queue].append(message)
                    for queue, of_queue in by_queue.items():
                        first = of_queue[0].queue_offset
                        missing = set(range(first)) - done[queue]
                        assert not missing, f"{queue}: {first} came before {missing} were acknowledged"
                    await trio.sleep(rng.choice((0, 0, 0.01, 0.3, 2)))
                    for queue, of_queue in by_queue.items():
                        if rng.random() < 0.9:
                            acknowledged = of_queue[: rng.randint(1, len(of_queue))]
                            done[queue].update(message.queue_offset for message in acknowledged)
                            bodies.update(int(message.body) for message in acknowledged)
                            await consumer.ack(*acknowledged)
                except ClosedError:
                    return
                except RocketMQError:
                    await trio.sleep(0.1)

        def consumer(address: str) -> PopConsumer:
            return PopConsumer(address, group="g", orderly=True, consume_from="earliest")

        async with Client(world.name_server_address) as client, trio.open_nursery() as nursery:
            group = Group(world, nursery, consumer, consume)
            await group.run_chaos(client, 200)
            with trio.fail_after(3000):  # messages are redelivered until they are acknowledged
                while len(bodies) < 200:
                    await trio.sleep(1)
            await group.end()

    replay(program, seed)
    assert bodies == set(range(200))


@pytest.mark.parametrize("seed", SEEDS)
def test_readers(seed: int) -> None:
    read: defaultdict[MessageQueue, list[int]] = defaultdict(list)
    bodies: set[int] = set()

    async def program(world: World) -> None:
        async def follow(client: Client, *, task_status: trio.TaskStatus[None]) -> None:
            async with client.reader() as reader, reader.open("T", start="earliest") as stream:
                task_status.started()  # only an open stream retries
                async for message in stream:
                    read[message.queue].append(message.queue_offset)
                    bodies.add(int(message.body))

        async with Client(world.name_server_address) as client, trio.open_nursery() as nursery:
            await nursery.start(follow, client)
            nursery.start_soon(send, client, 200)
            end = trio.current_time() + CHAOS_SECONDS
            while trio.current_time() < end:
                await trio.sleep(world.rng.choice((0.01, 0.5, 3)))
                await disturb(world)
            world.heal()
            with trio.fail_after(SETTLE_SECONDS):
                while len(bodies) < 200:
                    await trio.sleep(1)
            nursery.cancel_scope.cancel()

    replay(program, seed)
    for offsets in read.values():
        assert offsets == list(range(len(offsets))), "each message is read exactly once"
