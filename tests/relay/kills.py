"""A test that kills relays repeatedly while messages are delivered, and checks their guarantees."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import attrs
import trio

from rocketmq_py import Client, LitePullConsumer, Message
from rocketmq_py.client import core_of
from rocketmq_py.relay import MESSAGE_ID, wait_in

BUFFER, TARGET = "Buffer", "T"
LONGEST_MS = 4000
TIMEOUT_SECONDS = 120


@attrs.define
class Kills:
    """Kills one relay of a group at a time. Each relay is a process with a store of its own.

    Args:
        address: the name server of a cluster with the topics ``BUFFER`` and ``TARGET``.
        client: a client of this cluster.
        folder: the folder of the stores.
        kills: the number of kills.
        members: the number of relays at a time. If there are several, half of the relays that replace a
            killed one begin with an empty store, and the others with the store of the killed one.
        rng: chooses the times of the kills, and the killed relays.
    """

    address: str
    client: Client
    folder: Path
    kills: int
    members: int
    rng: random.Random
    sent: dict[str, int] = attrs.field(init=False, factory=dict)
    received: Counter[str] = attrs.field(init=False, factory=Counter)
    early: int = attrs.field(init=False, default=0)
    lost_stores: int = attrs.field(init=False, default=0)
    _has_ended: bool = attrs.field(init=False, default=False)
    _delivered: trio.Event = attrs.field(init=False, factory=trio.Event)

    async def run(self) -> None:
        """Send messages and kill relays. Raises TooSlowError if an acknowledged message is not received."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive)
            processes = [await self._start(nursery, number) for number in range(self.members)]
            async with trio.open_nursery() as work:
                work.start_soon(self._send)
                for _ in range(self.kills):
                    await self._wait_between_kills()
                    number = self.rng.randrange(self.members)
                    processes[number].kill()
                    await processes[number].wait()
                    if self.members > 1 and self.rng.random() < 0.5:
                        self.lost_stores += 1
                        shutil.rmtree(self._store(number), ignore_errors=True)
                    processes[number] = await self._start(nursery, number)
                self._has_ended = True
            with trio.fail_after(TIMEOUT_SECONDS):
                while not self.sent.keys() <= self.received.keys():
                    await self._delivered.wait()
            nursery.cancel_scope.cancel()

    def check(self) -> str:
        """Check the guarantees. Returns a summary."""
        assert self.received.keys() == self.sent.keys(), "lost messages, or duplicates with another id"
        assert self.early == 0, "messages delivered before their time"
        duplicates = self.received.total() - len(self.received)
        return (
            f"{self.kills} kills, {self.members} relays at a time, {self.lost_stores} stores lost: "
            f"{len(self.sent)} messages acknowledged, 0 lost, 0 early, "
            f"{duplicates} duplicates with the same id"
        )

    async def _wait_between_kills(self) -> None:
        """Wait for a random time between two kills. Half of the times, wait for a delivery first."""
        if self.rng.random() < 0.5:
            await trio.sleep(2.5 * self.rng.random())
        else:
            with trio.fail_after(TIMEOUT_SECONDS):
                await self._delivered.wait()
            await trio.sleep(self.rng.random())

    async def _send(self) -> None:
        async with self.client.producer("senders", send_timeout=30) as producer:
            while not self._has_ended:
                due_ms = core_of(self.client).now_ms() + self.rng.randrange(LONGEST_MS)
                result = await producer.send(wait_in(BUFFER, Message(TARGET, b"%d" % due_ms), due_ms))
                self.sent[result.message_id] = due_ms
                await trio.sleep(0.01)

    async def _receive(self) -> None:
        async with LitePullConsumer(self.client, group="g", consume_from="earliest") as consumer:
            consumer.subscribe(TARGET)
            async for message in consumer:
                self.early += message.store_time_ms < int(message.body)
                self.received[message.user_properties[MESSAGE_ID]] += 1
                self._delivered.set()
                self._delivered = trio.Event()

    def _store(self, number: int) -> Path:
        return self.folder / str(number)

    async def _start(self, nursery: trio.Nursery, number: int) -> trio.Process:
        program = [sys.executable, "-m", "tests.relay.relay_program", self.address, str(self._store(number))]
        process: trio.Process = await nursery.start(
            partial(trio.run_process, program, stdin=subprocess.DEVNULL, check=False, deliver_cancel=_kill)
        )
        return process


async def _kill(process: trio.Process) -> None:
    process.kill()
