"""The producers of a workload, and the consumer that replies to requests."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import trio

from rocketmq_py import (
    Message,
    MessageQueue,
    PendingReply,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from rocketmq_py.errors import RocketMQError
from rocketmq_py.producer import TransactionState
from rocketmq_py.selectors import SelectByHash
from tests.simulation.plan import TOPICS
from tests.simulation.run_context import RunContext

AT_ONCE = 3
"""Messages of a batch, or requests in flight at the same time."""
RECOVERY_SECONDS = 40.0
"""Seconds until clients know restarted brokers again. Routes are refreshed every 30 s."""


class Producers:
    """The producers of a plan."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._history = context.history
        self._rng = context.rng
        self.sent_all = trio.Event()

    async def run(self) -> None:
        """Send the plan's messages. Returns when the run ends."""
        async with trio.open_nursery() as nursery:
            finished = [trio.Event() for _ in self._context.plan.producers]
            for kind, event in zip(self._context.plan.producers, finished, strict=True):
                nursery.start_soon(getattr(self, f"_{kind}"), event)
            for event in finished:
                await event.wait()
            self.sent_all.set()

    async def _send_each(self, topic: str, kind: str, send: Callable[[bytes, int], Awaitable[bool]]) -> None:
        """Send messages one after another, and record those for which ``send`` returns True.

        A ``send`` that records its messages itself returns False.
        """
        plan, world = self._context.plan, self._context.world
        for number in range(plan.messages):
            body = f"{kind}-{number}".encode()
            try:
                if await send(body, number):
                    world.trace("accepted", body)
                    self._history.accept(topic, [body])
            except RocketMQError as error:
                world.trace("not sent", body, type(error).__name__)
                await trio.sleep(1)
            await trio.sleep(self._rng.expovariate(plan.messages / plan.seconds))

    async def _finish(self, finished: trio.Event) -> None:
        """Report that all messages are sent, and keep the producer open until the run ends."""
        finished.set()
        await self._context.over.wait()

    def _producer(self, group: str) -> Producer:
        return Producer(self._context.address, group=group, try_timeout=2)

    async def _single(self, finished: trio.Event) -> None:
        async with self._context.closing("single", self._producer("single")) as producer:

            async def send(body: bytes, number: int) -> bool:
                delay = 1 if number % 7 == 3 else 0
                await producer.send(Message("plain", body, delay_level=delay), timeout=10)
                return True

            await self._send_each("plain", "single", send)
            await self._finish(finished)

    async def _batching(self, finished: trio.Event) -> None:
        batching = Producer(self._context.address, group="batching", linger=0.005)
        async with self._context.closing("batching", batching) as producer:

            async def send(body: bytes, number: int) -> bool:
                pending = [
                    await producer.submit(Message("plain", body + b"-%d" % part)) for part in range(AT_ONCE)
                ]
                for part, one in enumerate(pending):
                    with contextlib.suppress(RocketMQError):
                        await one
                        self._history.accept("plain", [body + b"-%d" % part])
                return False

            await self._send_each("plain", "batching", send)
            await self._finish(finished)

    async def _keyed(self, finished: trio.Event) -> None:
        async with self._context.closing("keyed", self._producer("keyed")) as producer:

            async def send(body: bytes, number: int) -> bool:
                queue = SelectByHash(f"key-{number % 3}")
                await producer.send(Message("keyed", body), queue=queue, timeout=10)
                return True

            await self._send_each("keyed", "keyed", send)
            await self._finish(finished)

    async def _pinned(self, finished: trio.Event) -> None:
        """Send each message to a fixed queue. The history checks the queue at the end."""
        async with self._context.closing("pinned", self._producer("pinned")) as producer:

            async def send(body: bytes, number: int) -> bool:
                broker = self._rng.choice(self._context.world.broker_names)
                queue = MessageQueue("plain", broker, number % TOPICS["plain"])
                body += f"@{broker}:{queue.queue_id}".encode()
                await producer.send(Message("plain", body), queue=queue, timeout=10)
                self._history.accept("plain", [body])
                return False

            await self._send_each("plain", "pinned", send)
            await self._finish(finished)

    async def _transacting(self, finished: trio.Event) -> None:
        def decision(body: bytes) -> TransactionState:
            return TransactionState.COMMIT if self._history.decisions[body] else TransactionState.ROLLBACK

        async def check(message: ReceivedMessage) -> TransactionState:
            return decision(message.body)

        async def local_work(message: Message, _: str) -> TransactionState:
            await trio.sleep(self._rng.uniform(0.0, 3.0))
            return TransactionState.UNKNOWN if self._rng.random() < 0.3 else decision(bytes(message.body))

        transacting = TransactionProducer(
            self._context.address, group="transacting", check=check, topics="transacted", try_timeout=2
        )
        async with self._context.closing("transacting", transacting) as producer:

            async def send(body: bytes, number: int) -> bool:
                self._history.decisions[body] = self._rng.random() < 0.7
                await producer.send_in_transaction(Message("transacted", body), local_work, timeout=10)
                return self._history.decisions[body]

            await self._send_each("transacted", "transacting", send)
            await self._finish(finished)

    # Requests

    async def _asking(self, finished: trio.Event) -> None:
        """Send several requests at the same time, and check that each gets its own reply."""
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(self._answer)
            async with self._context.closing("asking", self._producer("asking")) as producer:

                async def ask(body: bytes, number: int) -> bool:
                    requests = [body + b"-%d" % part for part in range(AT_ONCE)]
                    pending = [
                        await producer.submit_request(Message("asked", request), timeout=10)
                        for request in requests
                    ]
                    for request, reply in zip(requests, pending, strict=True):
                        with contextlib.suppress(RocketMQError):
                            await self._check_reply(request, reply)
                    return False

                await self._send_each("asked", "asking", ask)
                await self._context.healed.wait()
                await trio.sleep(RECOVERY_SECONDS)
                try:
                    last = await producer.submit_request(Message("asked", b"last"), timeout=RECOVERY_SECONDS)
                    await self._check_reply(b"last", last)
                except RocketMQError as error:
                    if self._context.plan.knows_requesters:
                        self._history.add_finding(f"no reply after all faults have ended: {error}")
                await self._finish(finished)

    async def _check_reply(self, request: bytes, pending: PendingReply) -> None:
        reply = await pending
        self._context.world.trace("reply", request, reply.body)
        if reply.body != b"re: " + request:
            self._history.add_finding(f"the reply to {request!r} is {reply.body!r}")

    async def _answer(self) -> None:
        context = self._context
        consumer = PushConsumer(context.address, group="answering", consume_from="earliest")
        async with (
            context.closing("replying", self._producer("replying")) as producer,
            context.closing("answering", consumer),
            trio.open_nursery() as nursery,
        ):

            async def reply(message: ReceivedMessage) -> None:
                await trio.sleep(self._rng.uniform(0.0, 0.5))
                try:
                    await producer.reply(message, b"re: " + message.body, timeout=5)
                except RocketMQError as error:
                    context.world.trace("not replied", message.body, type(error).__name__)

            consumer.subscribe("asked")
            nursery.start_soon(consumer.run, reply)
            await context.over.wait()
            nursery.cancel_scope.cancel()
