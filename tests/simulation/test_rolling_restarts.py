"""Steady senders and consumers while every process of a cluster is restarted, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from rocketmq_py import (
    Client,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from rocketmq_py.producer import TransactionState
from rocketmq_py.testing import World, simulate

TOPIC, TRANSACTIONS = "T", "Transactions"
DOWNTIME = 2.0
"""Seconds for which each process is away."""
UPTIME = 3.0
"""Seconds from the restart of a process until the next one is stopped."""
TIMEOUT = 10.0
INTERVAL = 0.05
SETTLE_SECONDS = 120.0


class Senders:
    """Awaited, pipelined, batched and transactional sends, until ``stopped`` is set.

    Attributes:
        stored: the bodies of acknowledged messages, by topic.
        errors: what has failed.
    """

    def __init__(self, world: World) -> None:
        self.stored: dict[str, set[bytes]] = {TOPIC: set(), TRANSACTIONS: set()}
        self.errors: list[str] = []
        self.stopped = trio.Event()
        self._address = world.name_server_address

    async def run(self) -> None:
        async with (
            Client(self._address) as client,
            client.producer("one", send_timeout=TIMEOUT) as producer,
            client.producer("batches", linger=0.005, send_timeout=TIMEOUT) as batching,
            TransactionProducer(
                client, group="transactions", check=_commit, send_timeout=TIMEOUT
            ) as transactional,
            trio.open_nursery() as nursery,
        ):

            async def submit(to: Producer, message: Message) -> None:
                await (await to.submit(message))

            async def transact(message: Message) -> None:
                assert (await transactional.send_in_transaction(message, _commit)).end_error is None

            nursery.start_soon(self._repeat, "awaited", TOPIC, producer.send)
            nursery.start_soon(self._repeat, "pipelined", TOPIC, lambda one: submit(producer, one))
            nursery.start_soon(self._repeat, "batched", TOPIC, lambda one: submit(batching, one))
            nursery.start_soon(self._repeat, "transaction", TRANSACTIONS, transact)
            nursery.start_soon(self._open_anew)

    async def _repeat(self, kind: str, topic: str, send: Callable[[Message], Awaitable[Any]]) -> None:
        async with trio.open_nursery() as nursery:
            number = 0
            while not self.stopped.is_set():
                number += 1
                nursery.start_soon(self._send, topic, f"{kind} {number}".encode(), send)
                await trio.sleep(INTERVAL)

    async def _send(self, topic: str, body: bytes, send: Callable[[Message], Awaitable[Any]]) -> None:
        try:
            await send(Message(topic, body))
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.errors.append(f"{trio.current_time():.1f}: {body!r}: {error!r}")
        else:
            self.stored[topic].add(body)

    async def _open_anew(self) -> None:
        """Send the first message of a new client now and then, which needs its route first."""
        number = 0
        while not self.stopped.is_set():
            number += 1
            async with Producer(self._address, group="new", send_timeout=TIMEOUT) as producer:
                await self._send(TOPIC, f"first of client {number}".encode(), producer.send)
            await trio.sleep(0.5)


def _commit(*_: object) -> TransactionState:
    return TransactionState.COMMIT


async def program(world: World) -> tuple[list[str], set[bytes], set[bytes]]:
    """Restart every process. Return the errors, and the missing messages of both consumers."""
    handled: Counter[bytes] = Counter()
    polled: Counter[bytes] = Counter()
    senders = Senders(world)

    async def handle(message: ReceivedMessage) -> None:
        await trio.sleep(0.01)
        handled[message.body] += 1

    async def poll(consumer: LitePullConsumer) -> None:
        while True:
            for message in await consumer.poll(wait=1):
                polled[message.body] += 1

    address = world.name_server_address
    async with (
        PushConsumer(address, group="pushed", consume_from="earliest") as one,
        PushConsumer(address, group="pushed", consume_from="earliest") as other,
        LitePullConsumer(address, group="pulled", consume_from="earliest") as pulled,
        trio.open_nursery() as nursery,
    ):
        for consumer in (one, other):
            for topic in (TOPIC, TRANSACTIONS):
                consumer.subscribe(topic)
            nursery.start_soon(consumer.run, handle)
        pulled.subscribe(TOPIC)
        nursery.start_soon(poll, pulled)
        nursery.start_soon(senders.run)
        await trio.sleep(UPTIME)
        for server in (*world.broker_names, *world.name_server_address.split(";")):
            await world.crash(server)
            await trio.sleep(DOWNTIME)
            await world.restart(server)
            await trio.sleep(UPTIME)
        senders.stopped.set()
        everything = senders.stored[TOPIC] | senders.stored[TRANSACTIONS]
        with trio.move_on_after(SETTLE_SECONDS):
            while not (everything <= handled.keys() and senders.stored[TOPIC] <= polled.keys()):
                await trio.sleep(0.5)
                everything = senders.stored[TOPIC] | senders.stored[TRANSACTIONS]
        nursery.cancel_scope.cancel()
    return senders.errors, everything - handled.keys(), senders.stored[TOPIC] - polled.keys()


@pytest.mark.parametrize(
    ("seed", "brokers", "name_servers"),
    [
        pytest.param(seed, *cluster, marks=[] if seed == 0 and cluster == (1, 1) else pytest.mark.long)
        for seed in range(20)
        for cluster in [(1, 1), (2, 2), (3, 1)]
    ],
)
def test_no_send_fails_and_no_message_is_lost_while_every_process_restarts(
    seed: int, brokers: int, name_servers: int
) -> None:
    errors, not_handled, not_polled = simulate(
        program,
        seed=seed,
        brokers=brokers,
        name_servers=name_servers,
        topics=(TOPIC, TRANSACTIONS),
        transaction_time_out=2.0,
        transaction_check_interval=2.0,
    ).value
    assert not errors, "\n".join(errors[:10])
    assert not not_handled
    assert not not_polled
