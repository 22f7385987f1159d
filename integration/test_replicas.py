"""Consumption where each broker has a replica: the broker pulled from, and the broker that gets the
offsets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.layout import replica_of
from integration.clusters.plugin import start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.sending import PATIENT, send_once
from rocketmq_py import Client, PushConsumer, ReceivedMessage, RocketMQError
from rocketmq_py.client import core_of
from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    GetMaxOffsetRequest,
    OffsetAnswer,
    QueryConsumerOffsetRequest,
)
from rocketmq_py.remoting.pending_requests import PendingRequest
from rocketmq_py.spark import connections
from rocketmq_py.spark.offsets import StreamOffset
from rocketmq_py.spark.options import Role
from rocketmq_py.spark.source import OffsetJson, StreamSource
from rocketmq_py.spark.source_options import SourceOptions
from tests.behaviours.conftest import create_topic

PATIENCE = 120
BROKER = "broker-a"
COUNT = 2000
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "slaveReadEnable": "true",
    # Consumers behind the newest message are redirected to the replica.
    "accessMessageInMemoryMaxRatio": "0",
    **PATIENT,
}


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, restart_thread: ThreadPoolExecutor) -> Iterator[Cluster]:
    with start_own_cluster(request.param, replicas=True, settings=SETTINGS) as cluster:
        yield cluster


class Pulls:
    """The addresses from which the queues of a topic were pulled."""

    def __init__(self) -> None:
        self.latest: dict[tuple[str, int], str] = {}
        self.addresses: set[str] = set()

    def of(self, topic: str) -> list[str]:
        """Return the address of the latest pull of each queue of a topic."""
        return [address for (of, _), address in self.latest.items() if of == topic]


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> Pulls:
    pulls, pull = Pulls(), BrokerCalls.pull

    async def noted(calls: BrokerCalls, address: str, request: PendingRequest) -> Command:
        fields = request.fields
        pulls.latest[fields["topic"], int(fields["queueId"])] = address
        answer = await pull(calls, address, request)
        if answer.body:
            pulls.addresses.add(address)
        return answer

    monkeypatch.setattr(BrokerCalls, "pull", noted)
    return pulls


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(PATIENCE):
        while True:
            with suppress(RocketMQError, FileNotFoundError):
                if await condition():
                    return
            await trio.sleep(0.1)


class Topic:
    """A topic, its four queues, and their offsets on the master and the replica."""

    def __init__(self, cluster: Cluster, client: Client, name: str) -> None:
        self.cluster = cluster
        self.client = client
        self.name = name
        self.group = f"group-{name}"
        self.queues = [MessageQueue(name, BROKER, queue_id) for queue_id in range(4)]
        self.master, self.replica = cluster.brokers[BROKER], cluster.replicas[BROKER]
        self.sent = 0

    async def send(self, count: int) -> None:
        await send_once(self.client, self.name, range(self.sent, self.sent + count))
        self.sent += count

    async def ends(self, address: str) -> list[int]:
        """Return the maximum offsets of the queues on one broker."""
        answers = [
            await core_of(self.client).brokers.call(
                address, GetMaxOffsetRequest(topic=of.topic, queue_id=of.queue_id, broker_name=BROKER)
            )
            for of in self.queues
        ]
        return [OffsetAnswer.from_fields(answer.fields).offset for answer in answers]

    async def committed(self, address: str) -> list[int]:
        """Return the committed offsets of the group on one broker."""
        answers = [
            await core_of(self.client).brokers.call(
                address,
                QueryConsumerOffsetRequest(
                    consumer_group=self.group, topic=of.topic, queue_id=of.queue_id, broker_name=BROKER
                ),
            )
            for of in self.queues
        ]
        return [OffsetAnswer.from_fields(answer.fields).offset for answer in answers]

    async def until_done(self, address: str) -> None:
        """Wait until the group's committed offsets on a broker reach the end."""

        async def is_done() -> bool:
            ends = await self.ends(address)
            return sum(ends) == self.sent and await self.committed(address) == ends

        await until(is_done)

    async def until_replicated(self) -> None:
        """Wait until the replica has the topic and all messages."""

        async def is_replicated() -> bool:
            topics = self.cluster.stored(replica_of(BROKER), "config/topics.json")
            return f'"{self.name}"' in topics and sum(await self.ends(self.replica)) == self.sent

        await until(is_replicated)


@asynccontextmanager
async def topic_on(cluster: Cluster, name: str) -> AsyncIterator[Topic]:
    async with Client(cluster.name_servers, route_refresh_interval=1.0) as client:
        await create_topic(client, name, queues=4)
        yield Topic(cluster, client, name)


class RecordingHandler:
    """A handler that records the bodies, and blocks after some of them until it is released."""

    def __init__(self, *, stop_at: int | None = None) -> None:
        self.bodies: list[int] = []
        self.has_stopped, self.go_on = trio.Event(), trio.Event()
        self._stop_at = stop_at
        self._more = trio.lowlevel.ParkingLot()

    async def __call__(self, message: ReceivedMessage) -> None:
        if len(self.bodies) == self._stop_at:
            self.has_stopped.set()
            await self.go_on.wait()
        self.bodies.append(int(message.body))
        self._more.unpark_all()

    async def until(self, count: int) -> None:
        with trio.fail_after(PATIENCE):
            while set(self.bodies) != set(range(count)):
                await self._more.park()


@asynccontextmanager
async def consuming(topic: Topic, handle: RecordingHandler) -> AsyncIterator[None]:
    consumer = PushConsumer(
        topic.cluster.name_servers,
        group=topic.group,
        consume_from="earliest",
        commit_interval=0.5,
        pull_threshold_for_queue=50,
        concurrency=1,
        route_refresh_interval=1.0,
    )
    async with trio.open_nursery() as nursery, consumer:
        consumer.subscribe(topic.name)
        nursery.start_soon(consumer.run, handle)
        yield
        consumer.stop()


async def test_consumers_far_behind_read_from_the_replica_and_return_to_the_master(
    cluster: Cluster, pulls: Pulls, unique: str
) -> None:
    handle = RecordingHandler()
    async with topic_on(cluster, unique) as topic:
        await topic.send(COUNT)
        await topic.until_replicated()
        async with consuming(topic, handle):
            await handle.until(COUNT)
            with trio.fail_after(PATIENCE):
                while pulls.of(unique) != [topic.master] * 4:
                    await trio.sleep(0.1)
            await topic.until_done(topic.master)
    assert pulls.addresses == {topic.master, topic.replica}
    assert len(handle.bodies) == COUNT, "each once"


async def test_a_replica_stands_in_for_a_master_that_is_killed(
    cluster: Cluster, pulls: Pulls, unique: str, restart_thread: ThreadPoolExecutor
) -> None:
    """As in Java, offsets are committed to the replica during the outage, and to the master afterwards."""
    handle = RecordingHandler(stop_at=COUNT // 10)
    async with topic_on(cluster, unique) as topic:
        await topic.send(COUNT)
        await topic.until_replicated()
        async with consuming(topic, handle):
            with trio.fail_after(PATIENCE):
                await handle.has_stopped.wait()
            await trio.to_thread.run_sync(cluster.kill, BROKER)
            handle.go_on.set()
            await handle.until(COUNT)
            assert pulls.of(unique) == [topic.replica] * 4
            await topic.until_done(topic.replica)
            await trio.to_thread.run_sync(restart_thread.submit(cluster.restart, BROKER).result)
            with trio.fail_after(PATIENCE):
                while pulls.of(unique) != [topic.master] * 4:
                    await trio.sleep(0.1)
            # No message has arrived since. Offsets committed on the replica are committed on the master all
            # the same.
            await topic.until_done(topic.master)
            await topic.send(100)
            await handle.until(COUNT + 100)
    assert len(handle.bodies) == COUNT + 100, "each once"


@pytest.fixture
def spark_clients() -> Iterator[None]:
    """Close the clients that planning keeps."""
    yield
    connections.close_all()


@pytest.mark.usefixtures("spark_clients")
async def test_replica_that_lags_behind_a_killed_master_is_no_loss_for_a_stream_of_spark(
    cluster: Cluster, unique: str, restart_thread: ThreadPoolExecutor
) -> None:
    if cluster.version.startswith("4."):
        pytest.skip("without a master, a replica that starts registers no topics before 5.0")
    options = {"nameServer": cluster.name_servers, "topic": unique, "startingOffsets": "earliest"}
    options["routeRefreshInterval"] = "500ms"
    source = StreamSource(SourceOptions.parse(options, Role.STREAM_SOURCE))
    async with topic_on(cluster, unique) as topic:

        async def latest_offset(start: OffsetJson) -> OffsetJson:
            return await trio.to_thread.run_sync(source.latestOffset, start)

        await topic.send(100)
        await topic.until_replicated()
        await trio.to_thread.run_sync(cluster.kill, replica_of(BROKER))
        await topic.send(100)
        end = await latest_offset(await trio.to_thread.run_sync(source.initialOffset))
        assert sum(StreamOffset.from_json(end).offsets.values()) == 200
        await trio.to_thread.run_sync(cluster.kill, BROKER)
        await trio.to_thread.run_sync(restart_thread.submit(cluster.restart, replica_of(BROKER)).result)

        async def replica_is_alone() -> bool:
            await core_of(topic.client).routes.refresh(unique)
            return set(core_of(topic.client).routes.brokers()[BROKER].values()) == {topic.replica}

        await until(replica_is_alone)
        assert await latest_offset(end) == end
        assert sum(await topic.ends(topic.replica)) == 100
        await trio.to_thread.run_sync(restart_thread.submit(cluster.restart, BROKER).result)
        await topic.send(50)

        async def has_more() -> bool:
            return sum(StreamOffset.from_json(await latest_offset(end)).offsets.values()) == 250

        await until(has_more)
