"""A group of three processes while its members and a broker are killed and restarted."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import COUNTED
from integration.clusters.provider import VERSIONS
from integration.journal import BEHIND, Journal
from integration.journaling_program import LOCK_LIFE
from rocketmq_py import Client, Message, MessageQueue, PendingSend, RocketMQError
from rocketmq_py.client import core_of
from rocketmq_py.protocol import fastjson
from tests.behaviours.conftest import create_topic

COUNT = 200_000
BEFORE = 10_000
"""The number of messages sent before all members have joined."""
AHEAD = 30_000
"""The maximum number of messages sent but not yet handled."""
QUEUES = 8
VICTIM = "broker-a"
PATIENCE = 180
"""The timeout in seconds of one step of a run."""


@pytest.fixture(params=VERSIONS)
def cluster(
    request: pytest.FixtureRequest, restart_thread: ThreadPoolExecutor, own_cluster: Callable[..., Cluster]
) -> Cluster:
    return own_cluster(
        request.param,
        brokers=2,
        settings={"flushDiskType": "SYNC_FLUSH", "flushConsumerOffsetInterval": "1000"},
        jvm=[f"-Drocketmq.broker.rebalance.lockMaxLiveTime={round(2 * LOCK_LIFE * 1000)}"],
    )


class Run:
    """A topic, a group, and the faults injected into them."""

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        restart_thread: ThreadPoolExecutor,
        name: str,
        journal: Journal,
    ) -> None:
        self.cluster = cluster
        self.client = client
        self.restart_thread = restart_thread
        self.topic = name
        self.group = f"group-{name}"
        self.journal = journal
        self.members: dict[str, trio.Process] = {}
        self._sent = 0

    async def until(self, condition: Callable[[], bool]) -> None:
        """Read the journal until it satisfies the condition."""
        with trio.fail_after(PATIENCE):
            while not condition():
                await trio.sleep(0.05)
                self.journal.read()
                assert all(process.returncode is None for process in self.members.values())

    async def until_handled(self, count: int) -> None:
        await self.until(lambda: len(self.journal.bodies) >= count)

    # Producers

    async def send(self, count: int) -> None:
        """Send until ``count`` messages are stored. Repeat each send until a broker stores the message."""
        async with self.client.producer("senders", send_timeout=10) as producer:
            numbers = list(range(self._sent, count))
            while numbers:
                pending: list[tuple[int, PendingSend]] = []
                for number in numbers:
                    while number - len(self.journal.bodies) > AHEAD:
                        await trio.sleep(0.05)
                    message = Message(self.topic, b"%d" % number)
                    pending.append((number, await producer.submit(message)))
                numbers = [number for number, send in pending if not await _is_stored(send)]
        self._sent = count

    # Members and brokers that start and stop

    async def start(self, name: str) -> None:
        """Start a member, and wait until queues are assigned to it."""
        mode = "orderly" if self.journal.orderly else "concurrent"
        path = str(self.journal.path)
        self.members[name] = await trio.lowlevel.open_process(
            [
                sys.executable, "-m", "integration.journaling_program",
                self.cluster.name_servers, self.group, self.topic, path, name, mode,
            ],
            stdin=subprocess.PIPE,
        )  # fmt: skip
        await self.until(lambda: self.journal.owners[name] > 0)

    async def kill(self, name: str) -> None:
        process = self.members.pop(name)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        self.journal.mark("x", name)

    async def leave(self) -> None:
        """Let all members leave the group."""
        members, self.members = self.members, {}
        for process in members.values():
            assert process.stdin is not None
            await process.stdin.aclose()
        for process in members.values():
            assert await process.wait() == 0

    async def kill_and_start_broker(self) -> None:
        """Kill a broker, restart it once the others make progress, and wait until its offsets have
        recovered.
        """
        await trio.to_thread.run_sync(self.cluster.kill, VICTIM)
        self.journal.remember(VICTIM, self._offsets_on_disk())
        self.journal.mark("X", VICTIM)
        await self.until_handled(len(self.journal.bodies) + COUNT // 40)
        handled = {
            MessageQueue(self.topic, *queue): history.handled
            for queue, history in self.journal.queues.items()
            if queue[0] == VICTIM
        }
        await trio.to_thread.run_sync(self.restart_thread.submit(self.cluster.restart, VICTIM).result)
        for queue, offset in handled.items():
            with trio.fail_after(PATIENCE):
                while await self._committed(queue) < offset:
                    await trio.sleep(0.2)
                    self.journal.read()
        self.journal.mark("R", VICTIM)

    async def until_offsets_on_disk(self) -> None:
        """Wait until the broker about to be killed has flushed the group's offsets, first ten seconds after
        its start.
        """
        with trio.fail_after(PATIENCE):
            while not self._offsets_on_disk():
                await trio.sleep(0.2)

    def _offsets_on_disk(self) -> dict[int, int]:
        for name in ("consumerOffset.json", "consumerOffset.json.bak"):
            try:
                text = self.cluster.stored(VICTIM, f"config/{name}")
            except FileNotFoundError:
                continue  # the broker is replacing the file; the previous one has the other name
            offsets = fastjson.loads(text.encode())["offsetTable"].get(f"{self.topic}@{self.group}", {})
            return {int(queue): offset for queue, offset in offsets.items()}
        return {}

    async def _committed(self, queue: MessageQueue) -> int:
        try:
            return await core_of(self.client).brokers.committed_offset(self.group, queue) or 0
        except RocketMQError:
            return 0  # the broker has just started

    async def lag(self) -> int:
        """Return the lag of the group, as the brokers report it."""
        queues = (await core_of(self.client).routes.get(self.topic)).read_queues
        assert len(queues) == 2 * QUEUES
        return sum(
            [await core_of(self.client).brokers.max_offset(of) - await self._committed(of) for of in queues]
        )


async def _is_stored(send: PendingSend) -> bool:
    try:
        await send
    except RocketMQError:
        return False
    return True


@asynccontextmanager
async def run_of(
    cluster: Cluster, restart_thread: ThreadPoolExecutor, name: str, path: Path, *, orderly: bool
) -> AsyncIterator[Run]:
    journal = Journal(path, orderly=orderly)
    async with Client(cluster.name_servers, route_refresh_interval=1.0) as client:
        await create_topic(client, name, queues=QUEUES)
        run = Run(cluster, client, restart_thread, name, journal)
        try:
            yield run
        finally:
            journal.close()
            for name in list(run.members):
                with trio.CancelScope(shield=True):
                    await run.kill(name)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_group_survives_the_death_of_members_and_brokers(
    cluster: Cluster,
    restart_thread: ThreadPoolExecutor,
    unique: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    orderly: bool,
) -> None:
    """No message is lost, and none is repeated beyond RocketMQ's guarantees: see integration.journal."""
    async with run_of(cluster, restart_thread, unique, tmp_path / "journal", orderly=orderly) as run:
        journal = run.journal
        await run.send(BEFORE)
        await run.start("one")
        await run.until_handled(BEFORE)
        with trio.fail_after(PATIENCE):
            while await run.lag():
                await trio.sleep(0.2)
        await run.until_offsets_on_disk()
        assert not journal.repeats
        await run.start("two")
        await run.start("three")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.send, COUNT)
            await run.until_handled(COUNT * 2 // 10)
            await run.kill("one")
            await run.until_handled(COUNT * 3 // 10)
            await run.start("four")
            await run.until_handled(COUNT * 4 // 10)
            await run.kill_and_start_broker()
            await run.kill("two")
            await run.start("five")
            await run.until_handled(COUNT * 8 // 10)
            await run.kill("three")
            await run.until_handled(COUNT * 9 // 10)
            await run.start("six")
        await run.until_handled(COUNT)
        await run.leave()
        journal.read()
        assert not await run.lag()
    assert journal.bodies == set(range(COUNT)), "all that brokers acknowledged, and nothing else"
    assert len(journal.queues) == 2 * QUEUES
    record_property(COUNTED, f"{journal.repeats} repeats of {COUNT} messages; {journal.allowed} are allowed")
    assert journal.repeats <= journal.allowed


# Errors that the journal detects


def journal_of(path: Path, *lines: str, orderly: bool = True) -> Journal:
    """Return a journal that has read these lines, all about one queue."""
    journal = Journal(path, orderly=orderly)
    for line in lines:
        sign, name, *offset = line.split(" ")
        if sign == "x":
            journal.mark(sign, name)
            continue
        with path.open("a") as file:
            file.write(f"{sign} {name} {VICTIM} 0 {offset[0] if offset else 0} 7\n")
    try:
        journal.read()
    finally:
        journal.close()
    return journal


def handled(name: str, *offsets: int) -> list[str]:
    return [f"{sign} {name} {offset}" for offset in offsets for sign in "()"]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["+ a", *handled("a", 0, 1), "( a 1"], "a begins 1 again"),
        (["+ a", *handled("a", *range(BEHIND + 2)), "+ b", "( b 1"], "nothing before 2"),
    ],
)
def test_a_journal_detects_unjustified_redeliveries(tmp_path: Path, lines: list[str], found: str) -> None:
    for orderly in (False, True):
        with pytest.raises(AssertionError, match=found):
            journal_of(tmp_path / f"{orderly}", *lines, orderly=orderly)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["+ a", *handled("a", 0), "( a 2"], "1 was not handled yet"),
        (["+ a", *handled("a", 0, 1, 2), "+ b", *handled("b", 0), "( b 2"], "b begins 2 after 0"),
        (["+ a", *handled("a", 0), "( a 1", "+ b", "( b 1"], "b begins 1 during"),
        (["+ a", "( a 0", "+ b", "( b 1"], "0 was not handled yet"),
    ],
)
def test_a_journal_detects_messages_out_of_order(tmp_path: Path, lines: list[str], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        journal_of(tmp_path / "orderly", *lines)
    journal_of(tmp_path / "concurrent", *lines, orderly=False)


def test_a_journal_counts_redeliveries(tmp_path: Path) -> None:
    first = ["+ a", *handled("a", 0, 1, 2), "( a 3", "x a"]
    journal = journal_of(tmp_path / "journal", *first, "+ b", *handled("b", 1, 2, 3))
    assert (journal.repeats, journal.allowed) == (2, 4)
    assert journal.bodies == {7}
    assert journal.owners == {"b": 1}
