from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter

import pytest
import trio

from rocketmq_py import Client, Message
from rocketmq_py.client.features import POP
from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.bodies import RequestMode, RequestModeSetting
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.peers import open_peer

COUNT, COUNT_HERE = 20_000, 5_000
"""The number of messages on a real broker and on the embedded one."""
PATIENCE = 120

pytestmark = pytest.mark.sockets


class Member:
    """A consumer in another process, and the bodies that it has printed."""

    def __init__(self, cluster: ClusterUnderTest, group: str, topic: str, *options: str) -> None:
        self.command = [
            sys.executable, "-m", "tests.behaviours.consuming_program",
            cluster.address, group, topic, *options,
        ]  # fmt: skip
        self.bodies: Counter[bytes] = Counter()
        self.process: trio.Process | None = None

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.process = await trio.lowlevel.open_process(self.command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        task_status.started()
        rest = b""
        try:
            async for chunk in self.process.stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                self.bodies.update(lines)
        finally:
            self.process.kill()
            with trio.CancelScope(shield=True):
                await self.process.wait()
                await self.process.stdout.aclose()

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("mode", RequestMode)
async def test_killed_member_loses_no_message(
    cluster: ClusterUnderTest, client: Client, unique: str, mode: RequestMode
) -> None:
    count = COUNT_HERE if cluster.name == "embedded" else COUNT
    await create_topic(client, unique, queues=8)
    options: list[str] = []
    if mode is RequestMode.POP:
        cluster.needs(POP)
        options.append("by-broker")
        setting = RequestModeSetting(topic=unique, consumer_group=f"group-{unique}", mode=mode)
        async with open_peer(client) as peer:
            await peer.send(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, setting.encode())
    survivor, victim = (Member(cluster, f"group-{unique}", unique, *options) for _ in range(2))

    async def until(enough: int, *members: Member) -> None:
        with trio.fail_after(PATIENCE):
            while sum(len(member.bodies) for member in members) < enough:
                await trio.sleep(0.02)

    async with trio.open_nursery() as nursery, client.producer("senders") as producer:

        async def send(start: int, stop: int) -> None:
            for number in range(start, stop):
                await producer.submit(Message(unique, b"%d" % number))

        await nursery.start(survivor.run)
        await nursery.start(victim.run)
        # Both members process messages before one is killed.
        number = 0
        with trio.fail_after(PATIENCE):
            while not survivor.bodies or not victim.bodies:
                await send(number, number + 8)
                number += 8
                await trio.sleep(0.05)
        await send(number, count)
        await until(count // 3, survivor, victim)
        victim.kill()
        with trio.fail_after(PATIENCE):
            while len(survivor.bodies | victim.bodies) < count:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    bodies = survivor.bodies | victim.bodies
    assert set(bodies) == {b"%d" % number for number in range(count)}
    assert victim.bodies
    # Only messages that were processed but not committed or acknowledged are delivered again.
    assert set((survivor.bodies + victim.bodies) - bodies) <= set(victim.bodies) & set(survivor.bodies)
