"""Automatic failover of RocketMQ 5.x: a master is killed while messages are sent or consumed.

With a controller, a replica becomes the master. With slave-acting-master, a replica serves consumers until
the master is back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.layout import LOCALHOST, replica_of
from integration.clusters.plugin import COUNTED, start_own_cluster
from integration.clusters.ports import free_ports
from integration.sending import PATIENT, send_once
from rocketmq_py import (
    Client,
    Delivery,
    Message,
    ReceivedMessage,
    RocketMQError,
)
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import NoQueueError
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection, serve
from tests.behaviours.conftest import create_topic

VERSION = "5.5.0"
BROKER = "broker-a"
PATIENCE = 120
BEFORE, AFTER = 200, 500
"""Acknowledged sends before and after the failover."""
SENDERS = 8
GET_SYNC_STATE = 1006
"""Request to a controller for the replicas that have all messages. Java: CONTROLLER_GET_SYNC_STATE_DATA."""


@attrs.frozen
class ControlledCluster:
    """A master and a replica, and the address of the controller in their name server."""

    cluster: Cluster
    controller: str

    async def until_in_sync(self, client: Client) -> None:
        """Wait until both replicas have all messages, so that each may become the master."""

        async def are_in_sync() -> bool:
            answer = await core_of(client).connections.request(
                self.controller, GET_SYNC_STATE, {}, json.dumps([BROKER]).encode(), timeout=5
            )
            [info] = json.loads(answer.body)["replicasInfoTable"].values()
            return len(info["inSyncReplicas"]) == 2

        await until(are_in_sync)


@pytest.fixture
def controlled() -> Iterator[ControlledCluster]:
    [port] = free_ports(1)
    controller = f"{LOCALHOST}:{port}"
    name_server_settings = {
        "enableControllerInNamesrv": "true",
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-{controller}",
        "controllerDLegerSelfId": "n0",
    }
    settings = {
        "enableControllerMode": "true",
        "controllerAddr": controller,
        "allAckInSyncStateSet": "true",
        "brokerId": "-1",
        "brokerRole": "SLAVE",
        **PATIENT,
    }
    with start_own_cluster(
        VERSION, replicas=True, settings=settings, name_server_settings=name_server_settings
    ) as cluster:
        yield ControlledCluster(cluster, controller)


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until an async condition holds. Errors mean that it does not hold yet."""
    with trio.fail_after(PATIENCE):
        while True:
            with suppress(RocketMQError, FileNotFoundError, ValueError, KeyError):
                if await condition():
                    return
            await trio.sleep(0.1)


async def until_replica_has_topic(cluster: Cluster, topic: str) -> None:
    async def has_topic() -> bool:
        return f'"{topic}"' in cluster.stored(replica_of(BROKER), "config/topics.json")

    await until(has_topic)


@attrs.define(eq=False)
class AwaitedSends:
    """Senders that await each send, make one attempt per message, and go on after a failure.

    Attributes:
        acknowledged: the numbers of the acknowledged messages.
        failed: the errors of the others.
    """

    client: Client
    topic: str
    acknowledged: list[int] = attrs.field(factory=list)
    failed: dict[int, RocketMQError] = attrs.field(factory=dict)
    _next: int = 0
    _more: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    async def run(self) -> None:
        async with (
            self.client.producer("senders", retries=0) as producer,
            trio.open_nursery() as nursery,
        ):
            for _ in range(SENDERS):
                nursery.start_soon(self._send, producer.send)

    async def _send(self, send: Callable[[Message], Awaitable[object]]) -> None:
        while True:
            number, self._next = self._next, self._next + 1
            try:
                await send(Message(self.topic, b"%d" % number))
            except RocketMQError as error:
                self.failed[number] = error
                await trio.sleep(0.02)
            else:
                self.acknowledged.append(number)
                self._more.unpark_all()

    async def until_more(self, count: int) -> None:
        """Wait for ``count`` more acknowledged messages."""
        wanted = len(self.acknowledged) + count
        with trio.fail_after(PATIENCE):
            while len(self.acknowledged) < wanted:
                await self._more.park()

    def check(self, stored: Counter[int]) -> None:
        """Compare the outcomes of the sends with the stored messages."""
        assert not [number for number in self.acknowledged if number not in stored], "acknowledged, but lost"
        assert not [number for number, count in stored.items() if count > 1], "stored twice"
        known = {number for number, error in self.failed.items() if error.delivery is not Delivery.UNKNOWN}
        assert not known & stored.keys(), "reported as not stored"

    def summary(self) -> str:
        kinds = Counter(type(error).__name__ for error in self.failed.values())
        return f"{len(self.acknowledged)} acknowledged; {dict(kinds)}"


async def stored_numbers(address: str, topic: str) -> Counter[int]:
    async with Client(address) as client, client.reader() as reader:
        await until(partial(core_of(client).routes.refresh, topic))
        async with reader.open(topic, start="earliest", stop_at_end=True) as messages:
            return Counter([int(message.body) async for message in messages])


async def kill_master_while_sending(
    controlled: ControlledCluster, client: Client, topic: str, failed_over: Callable[[], Awaitable[object]]
) -> AwaitedSends:
    """Kill the master while messages are sent. Call ``failed_over`` when the first send has failed."""
    cluster = controlled.cluster
    sends = AwaitedSends(client, topic)
    await until_replica_has_topic(cluster, topic)
    await controlled.until_in_sync(client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sends.run)
        await sends.until_more(BEFORE)
        await trio.to_thread.run_sync(cluster.kill, BROKER)
        await failed_over()
        await sends.until_more(AFTER)
        nursery.cancel_scope.cancel()
    return sends


async def test_no_acknowledged_message_is_lost_when_the_controller_elects_another_master(
    controlled: ControlledCluster, unique: str, record_property: Callable[[str, object], None]
) -> None:
    address = controlled.cluster.name_servers
    async with Client(address) as client:
        await create_topic(client, unique, queues=4)
        sends = await kill_master_while_sending(controlled, client, unique, trio.lowlevel.checkpoint)
    sends.check(await stored_numbers(address, unique))
    record_property(COUNTED, sends.summary())


class StaleNameServer:
    """Forwards requests for routes to a name server. While ``stale``, it repeats the earlier answers.

    Attributes:
        address: its address.
        stale: whether it repeats answers.
        repeated: the number of repeated answers.
    """

    def __init__(self, client: Client, name_server: str, nursery: trio.Nursery) -> None:
        self.address = ""
        self.stale = False
        self.repeated = 0
        self._client = client
        self._name_server = name_server
        self._nursery = nursery
        self._routes: dict[str, Command] = {}

    def handle(self, connection: Connection, request: Command) -> None:
        self._nursery.start_soon(self._answer, connection, request)

    async def _answer(self, connection: Connection, request: Command) -> None:
        topic = request.fields.get("topic", "")
        if self.stale and request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and topic in self._routes:
            answer = self._routes[topic]
            self.repeated += 1
        else:
            answer = await core_of(self._client).connections.request(
                self._name_server, request.code, request.fields, request.body, timeout=10
            )
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                self._routes[topic] = answer
        connection.respond(request, answer.code, answer.fields, answer.body, remark=answer.remark)


@asynccontextmanager
async def stale_name_server(name_server: str) -> AsyncIterator[StaleNameServer]:
    async with Client(name_server) as client, trio.open_nursery() as nursery:
        server = StaleNameServer(client, name_server, nursery)
        server.address = await nursery.start(serve, server.handle, LOCALHOST, 0)
        yield server
        nursery.cancel_scope.cancel()


async def test_sends_go_on_when_a_stale_name_server_learns_of_the_new_master(
    controlled: ControlledCluster, unique: str, record_property: Callable[[str, object], None]
) -> None:
    """The client asks the stale one of two name servers, which still answers with the killed master."""
    real = controlled.cluster.name_servers
    async with stale_name_server(real) as stale, Client(f"{stale.address};{real}") as client:
        core_of(client).name_servers._move_to_end(real)
        await create_topic(client, unique, queues=4)

        async def catch_up() -> None:
            async with Client(real) as observer:

                async def is_elected() -> bool:
                    await core_of(observer).routes.refresh(unique)
                    return (
                        core_of(observer).routes.broker_address(BROKER) == controlled.cluster.replicas[BROKER]
                    )

                await until(is_elected)

            async def is_asked() -> bool:
                return stale.repeated > 0

            await until(is_asked)
            stale.stale = False

        stale.stale = True
        sends = await kill_master_while_sending(controlled, client, unique, catch_up)
    sends.check(await stored_numbers(real, unique))
    record_property(COUNTED, sends.summary())


@pytest.fixture
def acting() -> Iterator[Cluster]:
    settings = {
        "enableSlaveActingMaster": "true",
        "slaveReadEnable": "true",
        # By default a replica registers and looks for other members only every 30 s and 60 s.
        "registerNameServerPeriod": "10000",
        "syncBrokerMemberGroupPeriod": "1000",
        **PATIENT,
    }
    name_server_settings = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    with start_own_cluster(
        VERSION, replicas=True, settings=settings, name_server_settings=name_server_settings
    ) as cluster:
        yield cluster


async def test_consumption_goes_on_at_a_replica_that_acts_as_the_master(acting: Cluster, unique: str) -> None:
    """Pulls, commits and the locks of ordered queues go to the replica. Nothing can be sent.

    The test takes a minute, because replicas ask for new topics only once a minute.
    """
    count = 200
    begun: set[str] = set()
    deliveries: dict[str, set[int]] = {"concurrent": set(), "orderly": set()}
    is_killed = trio.Event()

    async with Client(acting.name_servers, route_refresh_interval=1.0) as client:

        async def consume(kind: str) -> None:
            async def handle(message: ReceivedMessage) -> None:
                begun.add(kind)
                await is_killed.wait()
                deliveries[kind].add(int(message.body))
                if len(deliveries[kind]) == count:
                    consumer.stop()

            async with client.push_consumer(
                f"{kind}-{unique}",
                consume_from="earliest",
                orderly=kind == "orderly",
                commit_interval=0.5,
            ) as consumer:
                consumer.subscribe(unique)
                await consumer.run(handle)

        async def have_begun() -> bool:
            return len(begun) == 2

        async def acts() -> bool:
            route = await core_of(client).routes.refresh(unique)
            is_replica = core_of(client).routes.broker_address(BROKER) == acting.replicas[BROKER]
            return is_replica and bool(route.read_queues)

        await create_topic(client, unique, queues=4)
        await send_once(client, unique, range(count))
        await until_replica_has_topic(acting, unique)
        async with trio.open_nursery() as nursery:
            for kind in deliveries:
                nursery.start_soon(consume, kind)
            await until(have_begun)
            await trio.to_thread.run_sync(acting.kill, BROKER)
            await until(acts)
            async with client.producer("senders") as producer:
                with pytest.raises(NoQueueError):
                    await producer.send(Message(unique, b"refused"))
            is_killed.set()
        assert deliveries == {kind: set(range(count)) for kind in deliveries}
        async with client.reader() as reader:
            bounds = await reader.offsets(unique)
            for kind in deliveries:
                committed = await reader.committed(f"{kind}-{unique}", bounds)
                assert committed == {queue: end for queue, (_, end) in bounds.items()}
