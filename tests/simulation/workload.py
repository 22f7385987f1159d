"""Random clients on a random cluster, with things that go wrong: all of it from one seed."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from rocketmq_py import (
    BatchingProducer,
    ConsumeFrom,
    LitePullConsumer,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SelectByHash,
    TransactionProducer,
)
from rocketmq_py.errors import RocketMQError
from rocketmq_py.producer import TransactionState
from rocketmq_py.testing import Simulation, World, simulate
from tests.simulation.story import ErrorLog, Group, OnPurposeError, Story

TOPICS = {"plain": 3, "keyed": 2, "transacted": 2}
SETTLE_SECONDS = 400.0
"""How long everything may take to arrive, once nothing goes wrong any more."""
CLOSE_SECONDS = 5.0
"""How long closing may take: the default of close_timeout."""
FAULTS = (
    "cut",
    "freeze",
    "slow",
    "slice",
    "partition",
    "lose_answers",
    "lose_requests",
    "fail",
    "delay",
    "crash",
    "crash_name_server",
)
CONSUMERS = {"push": "plain", "lite": "plain", "orderly": "keyed", "pop": "plain", "push-tx": "transacted"}


@attrs.frozen
class Plan:
    """What a seed stands for.

    Attributes:
        seed: the seed.
        brokers: how many.
        name_servers: how many.
        producers: which kinds there are.
        groups: who consumes.
        messages: how many each producer sends.
        faults: what goes wrong, and when, in seconds.
        seconds: after which nothing goes wrong any more.
        latency: of the network, at the most.
    """

    seed: int
    brokers: int
    name_servers: int
    producers: tuple[str, ...]
    groups: tuple[Group, ...]
    messages: int
    faults: tuple[tuple[float, str], ...]
    seconds: float
    latency: float


def plan_of(seed: int) -> Plan:
    """Return what a seed stands for."""
    rng = random.Random(f"plan {seed}")
    seconds = rng.uniform(10, 60)
    names = rng.sample(sorted(CONSUMERS), rng.randint(1, 3))
    return Plan(
        seed=seed,
        brokers=rng.randint(1, 3),
        name_servers=rng.randint(1, 2),
        producers=tuple(rng.sample(("single", "batching", "keyed", "transacting"), rng.randint(2, 4))),
        groups=tuple([Group(name, CONSUMERS[name], rng.randint(1, 3)) for name in names]),
        messages=rng.randint(5, 40),
        faults=tuple(sorted((rng.uniform(0, seconds), rng.choice(FAULTS)) for _ in range(rng.randint(0, 8)))),
        seconds=seconds,
        latency=rng.choice((0.0005, 0.005, 0.05)),
    )


def run(plan: Plan, *, trace: bool = False) -> Simulation[list[str]]:
    """Return how a plan went: its value is what was found wrong."""

    async def program(world: World) -> list[str]:
        return await _Run(plan, world).play()

    return simulate(
        program,
        seed=plan.seed,
        brokers=plan.brokers,
        name_servers=plan.name_servers,
        topics=TOPICS,
        latency=(0.0, plan.latency),
        trace=trace,
        message_delay_level="1s 1s 1s 2s 2s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s",
        transaction_time_out=2.0,
        transaction_check_interval=5.0,
        transaction_check_max=1000,
    )


class _Run:
    def __init__(self, plan: Plan, world: World) -> None:
        self.plan = plan
        self.world = world
        self.story = Story(world, plan.groups)
        self.rng = random.Random(f"run {plan.seed}")
        self.is_calm = False
        self.sent_all = trio.Event()
        self.over = trio.Event()

    async def play(self) -> list[str]:
        log = ErrorLog(self.story)
        logger = logging.getLogger("rocketmq_py")
        logger.addHandler(log)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._consume_all)
                nursery.start_soon(self._produce_all)
                nursery.start_soon(self._go_wrong)
                nursery.start_soon(self._watch)
                await self._settle()
                self.over.set()
            await trio.sleep(1)
        finally:
            logger.removeHandler(log)
        if left := self.world.connections():
            self.story.find(f"{left} connections are open when all clients are closed")
        self.story.check_offsets()
        self.story.check_end()
        return self.story.findings

    async def _settle(self) -> None:
        await trio.sleep(self.plan.seconds)
        self.is_calm = True
        self.world.trace("calm")
        self.world.heal()
        await self.sent_all.wait()
        with trio.move_on_after(SETTLE_SECONDS):
            while self.story.missing():
                await trio.sleep(1)
        await trio.sleep(10)

    async def _watch(self) -> None:
        while not self.over.is_set():
            self.story.check_offsets()
            with trio.move_on_after(1):
                await self.over.wait()

    @asynccontextmanager
    async def _closing(self, name: str, client: Any) -> AsyncIterator[Any]:
        """Use a client, and see how long its end takes."""
        began = 0.0
        try:
            async with client as opened:
                try:
                    yield opened
                finally:
                    began = trio.current_time()
        finally:
            if began and trio.current_time() - began > CLOSE_SECONDS + 0.1:
                self.story.find(f"closing {name} took {trio.current_time() - began:.2f} s")

    # Things that go wrong

    async def _go_wrong(self) -> None:
        async with trio.open_nursery() as nursery:
            for at, what in self.plan.faults:
                await trio.sleep_until(at)
                self.world.trace("fault", what)
                nursery.start_soon(self._fault, what)

    async def _fault(self, what: str) -> None:
        rng, world = self.rng, self.world
        broker = rng.choice(world.broker_names)
        name_server = rng.choice(world.name_server_address.split(";"))
        server = rng.choice((broker, broker, name_server))
        request = rng.choice(("SEND_MESSAGE", "PULL_MESSAGE", "HEART_BEAT", "UPDATE_CONSUMER_OFFSET", None))
        times = rng.randint(1, 5)
        seconds = rng.choice((0.1, 2.0, 8.0, 20.0)) * rng.uniform(0.5, 1.0)
        if what == "cut":
            world.cut(server)
        elif what == "lose_answers":
            world.lose_answers(request, times=times, server=server)
        elif what == "lose_requests":
            world.lose_requests(request, times=times, server=server)
        elif what == "fail":
            world.fail(request, times=times, server=server)
        elif what == "delay":
            world.delay(request, seconds, times=times, server=server)
        elif what.startswith("crash"):
            crashed = name_server if what == "crash_name_server" else broker
            await world.crash(crashed)
            await trio.sleep(seconds)
            await world.restart(crashed)
        else:
            fault = {
                "freeze": lambda: world.freeze(server),
                "slow": lambda: world.slow(latency=rng.uniform(0.0, 0.5), server=server),
                "slice": lambda: world.slice(rng.randint(1, 200), server=server),
                "partition": lambda: world.partition("clients", server),
            }[what]()
            await trio.sleep(seconds)
            fault.end()

    # Producers

    async def _produce_all(self) -> None:
        async with trio.open_nursery() as nursery:
            finished = [trio.Event() for _ in self.plan.producers]
            for kind, event in zip(self.plan.producers, finished, strict=True):
                nursery.start_soon(getattr(self, f"_{kind}"), event)
            for event in finished:
                await event.wait()
            self.sent_all.set()

    async def _each(
        self, finished: trio.Event, topic: str, kind: str, send: Callable[[bytes, int], Awaitable[bool]]
    ) -> None:
        """Send messages one after the other, and note those that were acknowledged."""
        for number in range(self.plan.messages):
            body = f"{kind}-{number}".encode()
            try:
                if await send(body, number):
                    self.world.trace("accepted", body)
                    self.story.accept(topic, [body])
            except RocketMQError as error:
                self.world.trace("not sent", body, type(error).__name__)
                await trio.sleep(1)
            await trio.sleep(self.rng.expovariate(self.plan.messages / self.plan.seconds))
        finished.set()
        await self.over.wait()

    @property
    def _address(self) -> str:
        return self.world.name_server_address

    async def _single(self, finished: trio.Event) -> None:
        async with self._closing(
            "single", Producer(self._address, group="single", try_timeout=2)
        ) as producer:

            async def send(body: bytes, number: int) -> bool:
                delay = 1 if number % 7 == 3 else 0
                await producer.send(Message("plain", body, delay_level=delay), timeout=10)
                return True

            await self._each(finished, "plain", "single", send)

    async def _batching(self, finished: trio.Event) -> None:
        async with self._closing("batching", BatchingProducer(self._address, group="batching")) as producer:

            async def send(body: bytes, number: int) -> bool:
                pending = [
                    await producer.send_soon(Message("plain", body + b"-%d" % part)) for part in range(3)
                ]
                for part, one in enumerate(pending):
                    with contextlib.suppress(RocketMQError):
                        await one
                        self.story.accept("plain", [body + b"-%d" % part])
                return False

            await self._each(finished, "plain", "batching", send)

    async def _keyed(self, finished: trio.Event) -> None:
        async with self._closing("keyed", Producer(self._address, group="keyed", try_timeout=2)) as producer:

            async def send(body: bytes, number: int) -> bool:
                queue = SelectByHash(f"key-{number % 3}")
                await producer.send(Message("keyed", body), queue=queue, timeout=10)
                return True

            await self._each(finished, "keyed", "keyed", send)

    async def _transacting(self, finished: trio.Event) -> None:
        def decision(body: bytes) -> TransactionState:
            return TransactionState.COMMIT if self.story.decisions[body] else TransactionState.ROLLBACK

        async def check(message: ReceivedMessage) -> TransactionState:
            return decision(message.body)

        async def local_work(message: Message, _: str) -> TransactionState:
            await trio.sleep(self.rng.uniform(0.0, 3.0))
            return TransactionState.UNKNOWN if self.rng.random() < 0.3 else decision(bytes(message.body))

        producer = TransactionProducer(
            self._address, group="transacting", check=check, topics="transacted", try_timeout=2
        )
        async with self._closing("transacting", producer) as producer:

            async def send(body: bytes, number: int) -> bool:
                self.story.decisions[body] = self.rng.random() < 0.7
                await producer.send_in_transaction(Message("transacted", body), local_work, timeout=10)
                return self.story.decisions[body]

            await self._each(finished, "transacted", "transacting", send)

    # Consumers

    async def _consume_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for group in self.plan.groups:
                for _ in range(group.members):
                    nursery.start_soon(self._member, group)

    async def _member(self, group: Group) -> None:
        """One member after the other: each stays for a while, or until all is over."""
        consume = {"lite": self._lite, "pop": self._pop}.get(group.name, self._push)
        while not self.over.is_set():
            stays = self.rng.uniform(1, 40) if self.rng.random() < 0.5 else self.plan.seconds
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_member, nursery.cancel_scope, stays)
                try:
                    await consume(group)
                except RocketMQError as error:
                    self.world.trace("member fails", group.name, type(error).__name__)
                    await trio.sleep(1)
                nursery.cancel_scope.cancel()

    async def _end_member(self, scope: trio.CancelScope, stays: float) -> None:
        with trio.move_on_after(stays):
            await self.over.wait()
        if self.is_calm:
            await self.over.wait()
        scope.cancel()

    async def _handle(self, group: Group, message: ReceivedMessage) -> None:
        self.story.begin(group, message)
        await trio.sleep(self.rng.uniform(0.0, 0.2))
        if not self.is_calm and self.rng.random() < 0.1:
            raise OnPurposeError
        self.story.done(group, message)

    async def _push(self, group: Group) -> None:
        consumer = PushConsumer(
            self._address,
            group=group.name,
            orderly=group.name == "orderly",
            consume_from=ConsumeFrom.FIRST,
        )
        async with self._closing(group.name, consumer) as consumer:
            consumer.subscribe(group.topic)
            await consumer.run(lambda message: self._handle(group, message))

    async def _lite(self, group: Group) -> None:
        consumer = LitePullConsumer(self._address, group=group.name, consume_from=ConsumeFrom.FIRST)
        async with self._closing(group.name, consumer) as consumer:
            consumer.subscribe(group.topic)
            while True:
                for message in await consumer.poll(timeout=5):
                    self.story.begin(group, message)
                    self.story.done(group, message)

    async def _pop(self, group: Group) -> None:
        async with self._closing(group.name, PopConsumer(self._address, group=group.name)) as consumer:
            consumer.subscribe(group.topic)
            while True:
                for message in await consumer.receive(invisible=15.0, wait=5.0):
                    with contextlib.suppress(OnPurposeError):
                        await self._handle(group, message)
                        await consumer.ack(message)
