from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.pull.queue_puller import PullFlag, PullStatus, QueuePuller
from rocketmq_py.errors import (
    BrokerError,
    NoQueueError,
    ProtocolError,
    RequestTimeoutError,
)
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import BrokerData, QueueData, TopicRoute
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PullMessageRequest
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG, PULL_BUDGET
from rocketmq_py.protocol.subscription import make_subscription
from rocketmq_py.remoting import Connection
from tests.consumer.received import stored
from tests.scripted import ScriptedCluster, ScriptedServer, ignore, scripted_cluster

QUEUE = MessageQueue("T", "broker-a", 2)
ALL = make_subscription("T", version_ms=1234)


@attrs.define
class Pulls:
    """Answers pulls and records their headers."""

    code: int = ResponseCode.SUCCESS
    body: bytes = b""
    fields: Mapping[str, str] = attrs.field(factory=dict)
    suggested: int = 0
    headers: list[PullMessageRequest] = attrs.field(factory=list)

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE:
            self.headers.append(PullMessageRequest.from_fields(request.fields))
            fields = {
                "suggestWhichBrokerId": str(self.suggested),
                "nextBeginOffset": "7",
                "minOffset": "1",
                "maxOffset": "9",
                **self.fields,
            }
            connection.respond(request, self.code, fields, self.body, remark="why")


@asynccontextmanager
async def pulling(
    answers: Pulls, *, hold: float = 15.0
) -> AsyncIterator[tuple[QueuePuller, ScriptedCluster]]:
    async with scripted_cluster(answers) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        yield QueuePuller(core_of(client), "g", QUEUE, batch_size=32, hold=hold, timeout=30), cluster


async def test_request_and_answer() -> None:
    answers = Pulls(body=stored(3) + stored(5))
    async with pulling(answers) as (puller, _):
        pulled = await puller.pull(3, ALL, commit=2)
    assert answers.headers == [
        PullMessageRequest(
            consumer_group="g",
            topic="T",
            queue_id=2,
            queue_offset=3,
            max_msg_nums=32,
            sys_flag=PullFlag.COMMIT | PullFlag.SUSPEND | PullFlag.SUBSCRIPTION,
            commit_offset=2,
            suspend_timeout_millis=15_000,
            sub_version=1234,
            subscription="*",
            expression_type="TAG",
            broker_name="broker-a",
        )
    ]
    assert pulled.status is PullStatus.FOUND
    assert [message.queue_offset for message in pulled.messages] == [3, 5]
    assert {message.broker_name for message in pulled.messages} == {"broker-a"}
    assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (7, 1, 9)


async def test_request_without_hold_and_commit() -> None:
    answers = Pulls()
    async with pulling(answers, hold=0.0) as (puller, _):
        await puller.pull(0, ALL)
    assert answers.headers[0].sys_flag == PullFlag.SUBSCRIPTION
    assert answers.headers[0].suspend_timeout_millis == 0
    assert answers.headers[0].commit_offset == 0


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.PULL_NOT_FOUND, PullStatus.NO_NEW),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCHED),
        (ResponseCode.PULL_OFFSET_MOVED, PullStatus.OFFSET_MOVED),
    ],
)
async def test_answer_without_messages(code: int, status: PullStatus) -> None:
    async with pulling(Pulls(code)) as (puller, _):
        pulled = await puller.pull(3, ALL)
    assert pulled.status is status
    assert pulled.messages == []
    assert pulled.next_offset == 7


async def test_error_answer_is_raised() -> None:
    answers = Pulls(ResponseCode.SUBSCRIPTION_NOT_EXIST)
    async with pulling(answers) as (puller, _):
        with pytest.raises(BrokerError, match=r"SUBSCRIPTION_NOT_EXIST \(24\): why"):
            await puller.pull(0, ALL)
        answers.code = ResponseCode.INVALID_PARAMETER
        with pytest.raises(NoQueueError, match="does not have T/broker-a/2: why"):
            await puller.pull(0, ALL)
        answers.code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        with pytest.raises(BrokerError, match="SUBSCRIPTION_GROUP_NOT_EXIST"):
            await puller.pull(0, ALL)


@pytest.mark.parametrize(
    "answers",
    [
        Pulls(body=b"\x00" * 200),
        Pulls(fields={"nextBeginOffset": "seven"}),
        Pulls(body=stored(0)[:10] + b"\xff" * 200),
    ],
)
async def test_malformed_answer_is_a_protocol_error(answers: Pulls) -> None:
    async with pulling(answers) as (puller, _):
        with pytest.raises(ProtocolError):
            await puller.pull(0, ALL)


async def test_messages_beyond_the_decompression_budget_are_left_to_the_next_pull() -> None:
    flag, large = COMPRESSED_FLAG.to_bytes(4, "big"), zlib.compress(bytes(PULL_BUDGET), 1)
    plain = [stored(number, body=large) for number in (3, 4, 6)]
    packed = [message[:36] + flag + message[40:] for message in plain]
    answers = Pulls(body=b"".join(packed), fields={"offsetDelta": "100"})
    async with pulling(answers) as (puller, _):
        pulled = await puller.pull(103, ALL)
    assert [message.queue_offset for message in pulled.messages] == [103, 104]
    assert pulled.next_offset == 106, "independent of the broker's next offset"


async def test_offsets_of_a_static_topic_are_shifted() -> None:
    answers = Pulls(body=stored(3) + stored(4), fields={"offsetDelta": "1000"})
    async with pulling(answers) as (puller, _):
        pulled = await puller.pull(1003, ALL)
    assert [message.queue_offset for message in pulled.messages] == [1003, 1004]


async def test_tags_with_the_same_hash_are_filtered_out() -> None:
    bodies = [stored(0, TAGS="Aa"), stored(1, TAGS="BB"), stored(2), stored(3, KEYS="k", TAGS="C", a="b")]
    answers = Pulls(body=b"".join(bodies))
    async with pulling(answers) as (puller, _):
        pulled = await puller.pull(0, make_subscription("T", "BB || C", version_ms=1))
    assert [message.queue_offset for message in pulled.messages] == [1, 3]
    assert answers.headers[0].subscription == "BB || C"


@asynccontextmanager
async def with_replica(
    master: Pulls | None, replica: Pulls
) -> AsyncIterator[tuple[QueuePuller, ScriptedServer, Client]]:
    """Run a broker with a replica, with or without its master."""
    async with trio.open_nursery() as nursery:
        servers = {1: ScriptedServer(replica)}
        if master is not None:
            servers[0] = ScriptedServer(master)
        for server in servers.values():
            server.address = await nursery.start(server.run)
        route = TopicRoute(
            queue_datas=(QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=6),),
            broker_datas=(
                BrokerData(
                    cluster="c",
                    broker_name="broker-a",
                    announced={broker_id: server.address for broker_id, server in servers.items()},
                ),
            ),
        ).encode()
        name_server = ScriptedServer(lambda connection, request: connection.respond(request, 0, {}, route))
        name_server.address = await nursery.start(name_server.run)
        async with Client(name_server.address) as client:
            await core_of(client).routes.get("T")
            yield (
                QueuePuller(core_of(client), "g", QUEUE, batch_size=32, hold=15, timeout=1),
                servers[1],
                client,
            )
        nursery.cancel_scope.cancel()


async def test_next_pull_goes_to_the_suggested_broker() -> None:
    master, replica = Pulls(suggested=1), Pulls(suggested=1)
    async with with_replica(master, replica) as (puller, _, _):
        for offset in range(3):
            await puller.pull(offset, ALL, commit=5)
        replica.suggested = 0
        for offset in range(3, 5):
            await puller.pull(offset, ALL, commit=5)
    assert [header.queue_offset for header in master.headers] == [0, 4]
    assert [header.queue_offset for header in replica.headers] == [1, 2, 3]
    assert all(header.sys_flag & PullFlag.COMMIT for header in master.headers)
    assert not any(header.sys_flag & PullFlag.COMMIT for header in replica.headers), "only a master commits"


async def test_next_pull_goes_to_the_master_after_a_replica_failed(
    jumping_clock: trio.testing.MockClock,
) -> None:
    master = Pulls(suggested=1)
    async with with_replica(master, Pulls()) as (puller, replica, _):
        await puller.pull(0, ALL)
        replica.answer = ignore
        with pytest.raises(RequestTimeoutError):
            await puller.pull(1, ALL)
        await puller.pull(1, ALL)
    assert [header.queue_offset for header in master.headers] == [0, 1]


async def test_a_pull_that_a_replica_refuses_is_repeated_at_the_master() -> None:
    master, replica = Pulls(suggested=1), Pulls(ResponseCode.TOPIC_NOT_EXIST)
    async with with_replica(master, replica) as (puller, _, _):
        await puller.pull(0, ALL)
        await puller.pull(1, ALL)
        master.code = ResponseCode.TOPIC_NOT_EXIST
        with pytest.raises(BrokerError, match="TOPIC_NOT_EXIST"):
            await puller.pull(2, ALL)
    assert [header.queue_offset for header in replica.headers] == [1, 2]
    assert [header.queue_offset for header in master.headers] == [0, 1, 2]


async def test_replica_serves_pulls_without_a_master() -> None:
    replica = Pulls()
    async with with_replica(None, replica) as (puller, _, _):
        await puller.pull(0, ALL, commit=5)
    assert [header.sys_flag & PullFlag.COMMIT for header in replica.headers] == [0]


async def test_unknown_broker_is_an_error() -> None:
    async with scripted_cluster(Pulls()) as cluster, Client(cluster.address) as client:
        puller = QueuePuller(core_of(client), "g", QUEUE, batch_size=32, hold=15, timeout=30)
        with pytest.raises(NoQueueError):
            await puller.pull(0, ALL)


async def test_cancelled_pull_leaves_no_pending_request() -> None:
    async with scripted_cluster(ignore) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        puller = QueuePuller(core_of(client), "g", QUEUE, batch_size=32, hold=15, timeout=30)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(puller.pull, 0, ALL)
            while not cluster.brokers["broker-a"].requests:
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        [connection] = [
            one for one in core_of(client).connections.open_connections() if one.address != cluster.address
        ]
        assert connection.pending == 0
