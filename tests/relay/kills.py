"""Relays that are killed again and again while messages come, and what has to be so in the end."""

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

from rocketmq_py import Client, ConsumeFrom, LitePullConsumer, Message
from rocketmq_py.relay import MESSAGE_ID, wait_in

BUFFER, TARGET = "Buffer", "T"
LONGEST_MS = 4000
PATIENCE = 120


@attrs.define
class Kills:
    """Some relays of one group, each a process with a store of its own, of which one at a time is killed.

    Args:
        address: the name server of a cluster that has the topics ``BUFFER`` and ``TARGET``.
        client: a client of it.
        folder: for the stores.
        kills: how many.
        members: how many relays there are at a time. Of several, who comes after one that was killed has its
            store, or an empty one.
        rng: chooses times, and who is killed.
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
    _is_over: bool = attrs.field(init=False, default=False)
    _more: trio.Event = attrs.field(init=False, factory=trio.Event)

    async def run(self) -> None:
        """Send and kill; return when all that was accepted has come. Raises TooSlowError if it does not."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive)
            processes = [await self._start(nursery, number) for number in range(self.members)]
            async with trio.open_nursery() as work:
                work.start_soon(self._send)
                for _ in range(self.kills):
                    await self._moment()
                    number = self.rng.randrange(self.members)
                    processes[number].kill()
                    await processes[number].wait()
                    if self.members > 1 and self.rng.random() < 0.5:
                        self.lost_stores += 1
                        shutil.rmtree(self._store(number), ignore_errors=True)
                    processes[number] = await self._start(nursery, number)
                self._is_over = True
            with trio.fail_after(PATIENCE):
                while not self.sent.keys() <= self.received.keys():
                    await self._more.wait()
            nursery.cancel_scope.cancel()

    def check(self) -> str:
        """Check what is promised; return what was counted, in words."""
        assert self.received.keys() == self.sent.keys(), (
            "nothing is lost, and a repeat has the id of the first"
        )
        assert self.early == 0, "nothing comes before its time"
        repeats = self.received.total() - len(self.received)
        return (
            f"{self.kills} kills, {self.members} relays at a time, {self.lost_stores} stores lost: "
            f"{len(self.sent)} messages accepted, 0 lost, 0 early, {repeats} repeats with their ids"
        )

    async def _moment(self) -> None:
        """Wait for a moment between two kills: in half of the cases after messages have come."""
        if self.rng.random() < 0.5:
            await trio.sleep(2.5 * self.rng.random())
        else:
            with trio.fail_after(PATIENCE):
                await self._more.wait()
            await trio.sleep(self.rng.random())

    async def _send(self) -> None:
        async with self.client.producer("senders", send_timeout=30) as producer:
            while not self._is_over:
                due_ms = self.client.now_ms() + self.rng.randrange(LONGEST_MS)
                result = await producer.send(wait_in(BUFFER, Message(TARGET, b"%d" % due_ms), due_ms))
                self.sent[result.message_id] = due_ms
                await trio.sleep(0.01)

    async def _receive(self) -> None:
        async with LitePullConsumer(self.client, group="g", consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe(TARGET)
            async for message in consumer:
                self.early += message.store_time_ms < int(message.body)
                self.received[message.user_properties[MESSAGE_ID]] += 1
                self._more.set()
                self._more = trio.Event()

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
