"""Measure the relay on a 4.x broker, and for comparison the timer of 5.x brokers.

    python -m integration.benchmarks.relay

  late p50, p99  milliseconds from a message's due time until the broker has stored it in its topic, by the
                 broker's clock. --rate messages are due each second for --seconds, in shuffled order
  early          messages stored before their due time
  burst          messages stored a second, when --rate times --seconds of them are due at once
  broker bytes   bytes per waiting message in the broker's commit log. Other files take some more
  store bytes    bytes per message of --waiting in the relay's store
  memory         peak memory of the relay's process with --waiting messages, and after its start

Bodies are --size random bytes. The relay is `rocketmq-py relay`, in a separate process. As in all
benchmarks, brokers queue requests instead of rejecting them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL

import attrs
import trio

from integration.benchmarks.processes import peak_of
from integration.benchmarks.run import BROKER_SETTINGS
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.provider import start_cluster
from rocketmq_py import Client, Message, PendingSend
from rocketmq_py.client import core_of
from rocketmq_py.relay import cancel, wait_in

RELAYED, TIMED = "4.9.7", "5.5.0"
QUEUES = 4
BATCH = 500
SENT_A_SECOND = 4000
"""Assumed minimum rate of sending on a busy machine. It determines how early sending begins."""
HOUR_MS = 3_600_000
STEP = 0.2


@attrs.frozen
class Load:
    """The options of the measurement. See the module."""

    rate: int
    seconds: float
    waiting: int
    size: int

    @property
    def count(self) -> int:
        """The number of messages that become due."""
        return int(self.rate * self.seconds)


@attrs.frozen(kw_only=True)
class Figures:
    """The results of the relay or of a timer, as the module describes. None for those that it does not have.

    ``late_ms`` is sorted, one for each message.
    """

    way: str
    late_ms: Sequence[int]
    burst: float
    broker_bytes: float
    store_bytes: float | None = None
    memory_bytes: int | None = None
    memory_idle_bytes: int | None = None

    @property
    def p50_ms(self) -> int:
        """The median delay."""
        return self.late_ms[len(self.late_ms) // 2]

    @property
    def p99_ms(self) -> int:
        """The 99th percentile of the delay."""
        return self.late_ms[len(self.late_ms) * 99 // 100]

    @property
    def early(self) -> int:
        """The number of messages that were stored before their due time."""
        return sum(late < 0 for late in self.late_ms)

    def summary(self) -> dict[str, object]:
        """Return the figures except those of each message."""
        own = attrs.asdict(self, filter=lambda field, _: field.name != "late_ms")
        return {**own, "late_p50_ms": self.p50_ms, "late_p99_ms": self.p99_ms, "early": self.early}


class Course:
    """Measures delayed messages on one cluster: with a relay, or with the timer of the brokers.

    Args:
        client: of the cluster.
        buffer: the buffer topic of a running relay, or None for the brokers' timer.
        load: the options of the measurement.
    """

    def __init__(self, client: Client, buffer: str | None, load: Load) -> None:
        self.client = client
        self.buffer = buffer
        self.load = load
        self._rng = random.Random(1)

    async def punctuality(self) -> tuple[list[int], float]:
        """Return the delay of each message in milliseconds, sorted, and the broker's bytes per message."""
        load = self.load
        start_ms = core_of(self.client).now_ms() + 10_000 + load.count * 1000 // SENT_A_SECOND
        due = [start_ms + number * 1000 // load.rate for number in range(load.count)]
        self._rng.shuffle(due)
        size = await self._send("Punctual", due)
        if (late := core_of(self.client).now_ms() - start_ms) > 0:
            raise RuntimeError(f"the machine is too busy: sending ended {late} ms after the first was due")
        stored = await self._delivered("Punctual", load.count)
        return sorted(at - due_ms for at, due_ms in stored), size

    async def burst(self) -> float:
        """Return the messages stored per second when all are due at the same time."""
        load = self.load
        due_ms = core_of(self.client).now_ms() + 10_000 + load.count * 1000 // SENT_A_SECOND
        await self._send("Burst", [due_ms] * load.count)
        stored = await self._delivered("Burst", load.count)
        return load.count * 1000 / max(at - due_ms for at, _ in stored)

    async def wait(self) -> None:
        """Send messages that are due in an hour or later."""
        now = core_of(self.client).now_ms()
        due = (now + HOUR_MS + self._rng.randrange(HOUR_MS) for _ in range(self.load.waiting))
        await self._send("Waiting", list(due))

    async def _send(self, topic: str, due: Sequence[int]) -> float:
        """Send a message for each time. Return the bytes in the commit log from one to the next."""
        places: list[int] = []
        await create(self.client, topic)

        def done(pending: PendingSend) -> None:
            if pending.exception() is None:
                places.append(_place(pending.result().offset_message_id))

        async with self.client.producer("benchmark", send_timeout=60) as producer:
            for start in range(0, len(due), BATCH):
                messages = [Message(topic, self._body(at)) for at in due[start : start + BATCH]]
                if self.buffer is None:  # brokers take no batches of messages with times
                    for message, at in zip(messages, due[start:], strict=False):
                        timed = attrs.evolve(message, deliver_at_ms=at)
                        (await producer.submit(timed)).add_done_callback(done)
                else:
                    pairs = zip(messages, due[start:], strict=False)
                    waiting = [wait_in(self.buffer, message, at) for message, at in pairs]
                    results = await producer.send_batch(waiting)
                    places += [_place(result.offset_message_id) for result in results]
        if len(places) != len(due):
            raise RuntimeError(f"{len(due) - len(places)} messages could not be sent")
        return (max(places) - min(places)) / (len(places) - 1)

    def _body(self, due_ms: int) -> bytes:
        text = b"%d " % due_ms
        return text + self._rng.randbytes(max(0, self.load.size - len(text)))

    async def _delivered(self, topic: str, count: int) -> list[tuple[int, int]]:
        """Return when each message was stored in its topic, and when it was due."""
        async with self.client.reader() as reader:
            while sum(end for _, end in (await reader.offsets(topic)).values()) < count:
                await trio.sleep(STEP)
            async with reader.open(topic, start="earliest", stop_at_end=True) as received:
                return [(each.store_time_ms, int(each.body.split(b" ", 1)[0])) async for each in received]


def _place(offset_message_id: str) -> int:
    return int(offset_message_id[-16:], 16)


async def create(client: Client, topic: str) -> None:
    """Create a topic on all brokers."""
    info = await core_of(client).name_servers.cluster_info()
    for broker in info.broker_addr_table.values():
        await core_of(client).brokers.create_topic(broker.broker_addrs[0], topic, queues=QUEUES)
    await core_of(client).routes.refresh(topic)


@asynccontextmanager
async def relaying(cluster: Cluster, client: Client, buffer: str, store: Path) -> AsyncIterator[int]:
    """Run a relay. Yields its process id after it has read its first message."""
    await create(client, buffer)
    words = [
        "relay",
        "-n",
        cluster.name_servers,
        "--topic",
        buffer,
        "--store",
        str(store),
        "--max-rate",
        "1e6",
    ]
    process = await trio.lowlevel.open_process([sys.executable, "-m", "rocketmq_py", *words], stdin=DEVNULL)
    try:
        await until_read(client, buffer)
        yield process.pid
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


async def until_read(client: Client, buffer: str) -> None:
    """Wait until the relay has stored all messages of its buffer topic on disk."""
    await cancel(client, buffer, "nothing")  # so that there is something to commit in each queue
    for queue in (await core_of(client).routes.get(buffer)).read_queues:
        end = await core_of(client).brokers.max_offset(queue)
        while (await core_of(client).brokers.committed_offset(f"RELAY_{buffer}", queue) or 0) < end:
            await trio.sleep(STEP)


async def measure_relay(cluster: Cluster, load: Load, folder: Path) -> Figures:
    """Measure the relay in two processes: one for delivery, one for waiting messages."""
    async with Client(cluster.name_servers) as client:
        async with relaying(cluster, client, "Buffer", folder / "one"):
            course = Course(client, "Buffer", load)
            late, broker_bytes = await course.punctuality()
            burst = await course.burst()
        async with relaying(cluster, client, "Full", folder / "other") as process:
            idle = peak_of(process)
            await Course(client, "Full", load).wait()
            await until_read(client, "Full")
            memory = peak_of(process)
    store = sum(file.stat().st_blocks * 512 for file in (folder / "other").iterdir())
    return Figures(
        way=f"relay on {cluster.version}",
        late_ms=late, burst=burst, broker_bytes=broker_bytes, store_bytes=store / load.waiting,
        memory_bytes=memory, memory_idle_bytes=idle,
    )  # fmt: skip


async def measure_timer(cluster: Cluster, load: Load) -> Figures:
    """Measure the broker's own timer."""
    async with Client(cluster.name_servers) as client:
        course = Course(client, None, load)
        late, broker_bytes = await course.punctuality()
        burst = await course.burst()
    return Figures(way=f"timer of {cluster.version}", late_ms=late, burst=burst, broker_bytes=broker_bytes)


def table(load: Load, rows: Sequence[Figures]) -> str:
    """Return the results as a table."""
    lines = [
        f"{load.rate} due a second for {load.seconds:g} s, bodies of {load.size} bytes, {load.waiting} "
        f"waiting; {os.cpu_count()} processors",
        "",
        "| | late p50 ms | late p99 ms | early | burst/s | broker bytes | store bytes | memory MiB (idle) |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        store = "-" if row.store_bytes is None else f"{row.store_bytes:.0f}"
        memory = "-" if row.memory_bytes is None else f"{row.memory_bytes / 2**20:.0f}"
        idle = "" if row.memory_idle_bytes is None else f" ({row.memory_idle_bytes / 2**20:.0f})"
        lines.append(
            f"| {row.way} | {row.p50_ms} | {row.p99_ms} | {row.early} | {row.burst:.0f} | "
            f"{row.broker_bytes:.0f} | {store} | {memory}{idle} |"
        )
    return "\n".join(lines)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.benchmarks.relay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rate", type=int, default=5000, help="due a second (default: 5000)")
    parser.add_argument("--seconds", type=float, default=20, help="(default: 20)")
    parser.add_argument("--waiting", type=int, default=1_000_000, help="(default: 1000000)")
    parser.add_argument("--size", type=int, default=200, help="bytes of bodies (default: 200)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    chosen = parser.parse_args(words)
    if min(chosen.rate, chosen.waiting) < 1 or chosen.rate * chosen.seconds < 2:
        parser.error("--rate and --waiting must be 1 or more, and --rate times --seconds at least 2")
    return chosen


def run(chosen: argparse.Namespace) -> list[Figures]:
    """Measure, print the table, and write the requested file."""
    load = Load(chosen.rate, chosen.seconds, chosen.waiting, chosen.size)
    with start_cluster(TIMED, settings=BROKER_SETTINGS) as cluster:
        timer = trio.run(measure_timer, cluster, load)
    with start_cluster(RELAYED, settings=BROKER_SETTINGS) as cluster, tempfile.TemporaryDirectory() as folder:
        relay = trio.run(measure_relay, cluster, load, Path(folder))
    rows = [relay, timer]
    print(table(load, rows))
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps([row.summary() for row in rows], indent=1))
    return rows


def main() -> int:
    """Run the benchmark. Return 1 if there is no cluster."""
    chosen = parse(sys.argv[1:])
    try:
        run(chosen)
    except (ClusterUnavailableError, ClusterStartError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
