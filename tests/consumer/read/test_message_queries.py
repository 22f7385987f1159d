"""Messages by id and key, with answers that real brokers do not give on demand."""

from __future__ import annotations

import pytest
import trio.testing

from rocketmq_py import Client
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import Reader
from rocketmq_py.errors import BrokerError, ClosedError, ConfigurationError, TopicNotFoundError
from rocketmq_py.message import Message
from rocketmq_py.producer import Producer
from rocketmq_py.protocol.bodies import BrokerData, ClusterInfo
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.remoting import Connection
from tests.cancelling import cancel_at_each_await
from tests.consumer.received import stored, stored_at
from tests.scripted import Answering, ScriptedCluster, scripted_cluster

INDEXED = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


def found(*messages: bytes) -> Answering:
    """Return a broker that answers each request with these messages."""

    def answer(connection: Connection, request: Command) -> None:
        connection.respond(request, ResponseCode.SUCCESS, INDEXED, b"".join(messages))

    return answer


def failing(code: int, remark: str = "scripted") -> Answering:
    def answer(connection: Connection, request: Command) -> None:
        connection.respond(request, code, remark=remark)

    return answer


async def test_find_returns_only_messages_with_the_key() -> None:
    messages = [
        stored(1, body=b"1", KEYS="a b"),
        stored(2, body=b"2", KEYS="c"),
        stored(3, body=b"3"),
        stored(4, body=b"4", KEYS="b"),
        stored(5, body=b"5", KEYS="bb"),
    ]
    async with scripted_cluster(found(*messages)) as cluster, Reader(cluster.address) as reader:
        assert [message.body for message in await reader.find("T", "b")] == [b"1", b"4"]
        assert [message.body for message in await reader.find("T", "b", max=1)] == [b"4"]
        assert await reader.find("T", "b", begin_ms=3) == []
        assert await reader.find("T", "b", end_ms=1) == []
        fields = cluster.brokers["broker-a"].requests[0].fields
    assert (fields["key"], fields["topic"]) == ("b", "T")
    assert "_UNIQUE_KEY_QUERY" not in fields


async def test_find_message_returns_only_a_message_with_the_id() -> None:
    messages = [stored(1, UNIQ_KEY="X"), stored(2, UNIQ_KEY="Y"), stored(3, UNIQ_KEY="Y")]
    async with scripted_cluster(found(*messages)) as cluster, Reader(cluster.address) as reader:
        message = await reader.find_message("T", "Y")
        assert message is not None
        assert message.queue_offset == 2
        assert await reader.find_message("T", "Z") is None
        fields = cluster.brokers["broker-a"].requests[0].fields
    assert (fields["key"], fields["maxNum"]) == ("Y", "32")
    assert "_UNIQUE_KEY_QUERY" not in fields


async def test_messages_of_all_brokers_are_sorted_by_time() -> None:
    later, earlier, nothing = (
        found(stored_at(20, 1, KEYS="k")),
        found(stored_at(10, 1, KEYS="k"), stored_at(30, 2, KEYS="k")),
        failing(ResponseCode.QUERY_NOT_FOUND),
    )
    async with scripted_cluster(later, earlier, nothing) as cluster, Reader(cluster.address) as reader:
        messages = await reader.find("T", "k")
        assert [message.store_time_ms for message in messages] == [10, 20, 30]
        assert [message.broker_name for message in messages] == ["broker-b", "broker-a", "broker-b"]
        newest = await reader.find("T", "k", max=2)
        assert [message.store_time_ms for message in newest] == [20, 30]


async def test_failing_broker_is_logged_if_others_find_messages(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        scripted_cluster(failing(ResponseCode.SYSTEM_ERROR), found(stored(1, KEYS="k"))) as cluster,
        Reader(cluster.address) as reader,
    ):
        (message,) = await reader.find("T", "k")
        assert message.broker_name == "broker-b"
        (record,) = caplog.records
        assert "incomplete lookup of k in T" in record.getMessage()
        assert "scripted" in record.getMessage()
        with pytest.raises(BrokerError, match="scripted"):
            await reader.find("T", "other")


async def test_invalid_arguments_and_a_closed_reader_are_rejected(address: str) -> None:
    reader = Reader(address)
    with pytest.raises(ClosedError):
        await reader.find("T", "k")
    async with reader:
        with pytest.raises(TopicNotFoundError):
            await reader.find("T", "k")
        with pytest.raises(TopicNotFoundError):
            await reader.find_message("T", "k")
        with pytest.raises(ConfigurationError, match="max is 0"):
            await reader.find("T", "k", max=0)
        with pytest.raises(ConfigurationError, match="is not an offset message id"):
            await reader.message("k")


# By offset message id


def knowing(cluster: ScriptedCluster) -> Answering:
    """Return a name server that also answers requests for the cluster's brokers."""

    def answer(connection: Connection, request: Command) -> None:
        if request.code != RequestCode.GET_BROKER_CLUSTER_INFO:
            cluster.route(connection, request)
            return
        brokers = {
            name: BrokerData(cluster="c", broker_name=name, announced={0: server.address})
            for name, server in cluster.brokers.items()
        }
        connection.respond(request, ResponseCode.SUCCESS, {}, ClusterInfo(broker_addr_table=brokers).encode())

    return answer


def id_at(address: str, place: int) -> str:
    host, port = address.split(":")
    packed = bytes(int(part) for part in host.split(".")) + int(port).to_bytes(4, "big")
    return str(OffsetMessageId(packed, place))


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (found(stored(7, body=b"seven")), b"seven"),
        (found(stored(8, body=b"eight")), None),
        (found(), None),
        (failing(ResponseCode.SYSTEM_ERROR, "can not find message by the offset, 700"), None),
    ],
    ids=["there", "another", "nothing", "gone"],
)
async def test_message_by_offset_message_id(answer: Answering, body: bytes | None) -> None:
    async with scripted_cluster(answer) as cluster, Reader(cluster.address) as reader:
        cluster.name_server.answer = knowing(cluster)
        server = cluster.brokers["broker-a"]
        message = await reader.message(id_at(server.address, 700), topic="T")
        assert (message.body if message else None) == body
        assert server.requests[-1].fields["topic"] == "T"


async def test_error_of_the_broker_is_raised() -> None:
    answer = failing(ResponseCode.SYSTEM_ERROR, "newLimit < 0")
    async with scripted_cluster(answer) as cluster, Reader(cluster.address) as reader:
        cluster.name_server.answer = knowing(cluster)
        with pytest.raises(BrokerError, match="newLimit"):
            await reader.message(id_at(cluster.brokers["broker-a"].address, 700))


async def test_id_with_an_address_outside_of_the_cluster_is_rejected() -> None:
    async with (
        scripted_cluster(found()) as cluster,
        scripted_cluster(found()) as strange,
        Reader(cluster.address) as reader,
    ):
        cluster.name_server.answer = knowing(cluster)
        stranger = strange.brokers["broker-a"]
        with pytest.raises(ConfigurationError, match=f"contains {stranger.address}, which is not a broker"):
            await reader.message(id_at(stranger.address, 700))
        assert not stranger.connections


async def test_cancellation_at_every_await(address: str) -> None:
    async with Producer(address, group="p") as producer:
        result = await producer.send(Message("T", b"x", keys="k"))
    async with Client(address) as client, Reader(client) as reader:

        async def look_up() -> None:
            assert await reader.message(result.offset_message_id) is not None
            assert await reader.find_message("T", result.message_id) is not None
            assert len(await reader.find("T", "k")) == 1

        async def check() -> None:
            await trio.testing.wait_all_tasks_blocked(0.001)
            assert all(connection.pending == 0 for connection in client.connections.open_connections())

        assert await cancel_at_each_await(look_up, check) > 3
