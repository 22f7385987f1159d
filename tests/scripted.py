"""A scripted name server and scripted brokers, for faults that no broker produces on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import BrokerData, ClusterInfo, QueueData, TopicQueueMapping, TopicRoute
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection, serve

Answering = Callable[[Connection, Command], None]


@attrs.define(eq=False)
class ScriptedServer:
    """A server at one address. ``answer`` handles each request, and ``requests`` records all of them."""

    answer: Answering
    port: int = 0
    address: str = ""
    requests: list[Command] = attrs.field(factory=list)
    connections: list[Connection] = attrs.field(factory=list)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def asked(self, code: int) -> list[Command]:
        return [request for request in self.requests if request.code == code]

    def handle(self, connection: Connection, request: Command) -> None:
        self.requests.append(request)
        if connection not in self.connections:
            self.connections.append(connection)
        self.answer(connection, request)

    async def run(self, *, task_status: trio.TaskStatus[str]) -> None:
        with self.scope:
            await serve(self.handle, "127.0.0.1", self.port, task_status=task_status)

    def stop(self) -> None:
        """Close the listener and every connection."""
        self.scope.cancel()


@attrs.define(eq=False)
class ScriptedCluster:
    """A name server and brokers. A broker accepts all sends unless its answer function differs.

    Attributes:
        topics: the queues of each topic on every broker: (read, write, permission).
        queue_mappings: the logical queues of static topics on each broker.
    """

    name_server: ScriptedServer
    brokers: dict[str, ScriptedServer]
    topics: dict[str, tuple[int, int, int]]
    order_topic_conf: dict[str, str] = attrs.field(factory=dict)
    queue_mappings: dict[str, dict[str, TopicQueueMapping]] = attrs.field(factory=dict)

    @property
    def address(self) -> str:
        return self.name_server.address

    def route(self, connection: Connection, request: Command) -> None:
        queues = self.topics.get(request.fields.get("topic", ""))
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            connection.respond(request, ResponseCode.SUCCESS, {}, self._cluster_info().encode())
        elif request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            connection.respond(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        elif queues is None:
            connection.respond(request, ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        else:
            read, write, perm = queues
            route = TopicRoute(
                queue_datas=tuple(
                    QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)
                    for name in self.brokers
                ),
                broker_datas=tuple(self._cluster_info().broker_addr_table.values()),
                order_topic_conf=self.order_topic_conf.get(request.fields["topic"]),
                queue_mappings=self.queue_mappings.get(request.fields["topic"]),
            )
            connection.respond(request, ResponseCode.SUCCESS, {}, route.encode())

    def _cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={
                name: BrokerData(cluster="c", broker_name=name, announced={0: server.address})
                for name, server in self.brokers.items()
            }
        )


def store(connection: Connection, request: Command) -> None:
    """Respond to a send like a broker that has stored the message."""
    fields = {}
    if request.code == RequestCode.SEND_MESSAGE_V2:
        fields = {
            "msgId": "7F00000100002A9F0000000000000000",
            "queueId": request.fields["e"],
            "queueOffset": "0",
        }
    connection.respond(request, ResponseCode.SUCCESS, fields)


def refuse(code: int, remark: str = "scripted") -> Answering:
    """Return an answer function that refuses every send with ``code`` and accepts other requests."""

    def answer(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.SEND_MESSAGE_V2:
            connection.respond(request, code, remark=remark)
        else:
            connection.respond(request, ResponseCode.SUCCESS)

    return answer


def ignore(_: Connection, __: Command) -> None:
    """Send no response."""


@asynccontextmanager
async def scripted_cluster(
    *answers: Answering, topics: Sequence[str] = ("T", "TBW102"), queues: int = 4
) -> AsyncIterator[ScriptedCluster]:
    """Run a name server and one broker per answer function, named broker-a, broker-b, and so on."""
    async with trio.open_nursery() as nursery:
        cluster = ScriptedCluster(
            ScriptedServer(ignore),
            {f"broker-{'abcdef'[index]}": ScriptedServer(answer) for index, answer in enumerate(answers)},
            dict.fromkeys(topics, (queues, queues, 6)),
        )
        cluster.name_server.answer = cluster.route
        for server in (cluster.name_server, *cluster.brokers.values()):
            server.address = await nursery.start(server.run)
        yield cluster
        nursery.cancel_scope.cancel()


PROXY_OFFERS = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
    }
)


def serve_as_proxy(connection: Connection, request: Command) -> None:
    """Respond like the proxy of RocketMQ 5.5.0 in front of the broker broker-a with the topic T."""
    region = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        if request.fields["topic"] not in ("T", "c_REPLY_TOPIC"):
            connection.respond(request, ResponseCode.TOPIC_NOT_EXIST, region, remark="No topic route info")
            return
        route = TopicRoute(
            queue_datas=(QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=6),),
            broker_datas=(
                BrokerData(cluster="c", broker_name="broker-a", announced={0: connection.local_address}),
            ),
        )
        connection.respond(request, ResponseCode.SUCCESS, region, route.encode())
    elif request.code not in PROXY_OFFERS:
        connection.respond(
            request,
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            remark=f" request type {request.code} not supported",
        )
    else:
        place = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "0"}
        connection.respond(request, ResponseCode.SUCCESS, {**region, **place, "offset": "0"})


@asynccontextmanager
async def scripted_proxy() -> AsyncIterator[ScriptedServer]:
    """Run a server that responds like a proxy."""
    server = ScriptedServer(serve_as_proxy)
    async with trio.open_nursery() as nursery:
        server.address = await nursery.start(server.run)
        yield server
        nursery.cancel_scope.cancel()
