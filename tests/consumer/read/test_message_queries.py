"""Messages by id and key, with answers that real brokers do not give on demand."""

from __future__ import annotations

import attrs
import pytest
import trio.testing

from rocketmq_py import Admin, Client
from rocketmq_py.address import pack_address
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerError, ConfigurationError, TopicNotFoundError
from rocketmq_py.message import Message
from rocketmq_py.position import Position, PositionKind
from rocketmq_py.producer import Producer
from rocketmq_py.protocol.bodies import BrokerData, ClusterInfo, TopicRoute
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.protocol.stored_message import encode_message
from rocketmq_py.remoting import Connection
from tests.cancelling import cancel_at_each_await
from tests.consumer.received import stored, stored_at
from tests.hostname_resolver import Resolver
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
    async with scripted_cluster(found(*messages)) as cluster, Admin(cluster.address) as admin:
        assert [message.body for message in (await admin.messages.find("T", "b")).messages] == [b"1", b"4"]
        assert [
            message.body for message in (await admin.messages.find("T", "b", max_messages=1)).messages
        ] == [b"4"]
        assert (await admin.messages.find("T", "b", start=Position(PositionKind.TIME, 3))).messages == ()
        assert (await admin.messages.find("T", "b", end=Position(PositionKind.TIME, 1))).messages == ()
        with pytest.raises(
            ConfigurationError, match=r"end is Position.last\(5\); it must be 'latest' or Pos"
        ):
            await admin.messages.find("T", "b", end=Position.last(5))
        with pytest.raises(ConfigurationError, match="start is 'latest'; it must be 'earliest' or Pos"):
            await admin.messages.find("T", "b", start="latest")
        fields = cluster.brokers["broker-a"].requests[0].fields
    assert (fields["key"], fields["topic"]) == ("b", "T")
    assert "_UNIQUE_KEY_QUERY" not in fields


async def test_find_message_returns_only_a_message_with_the_id() -> None:
    messages = [stored(1, UNIQ_KEY="X"), stored(2, UNIQ_KEY="Y"), stored(3, UNIQ_KEY="Y")]
    async with scripted_cluster(found(*messages)) as cluster, Admin(cluster.address) as admin:
        message = await admin.messages.get("Y", topic="T")
        assert message is not None
        assert message.queue_offset == 2
        assert await admin.messages.get("Z", topic="T") is None
        fields = cluster.brokers["broker-a"].requests[0].fields
    assert (fields["key"], fields["maxNum"]) == ("Y", "32")
    assert "_UNIQUE_KEY_QUERY" not in fields


async def test_messages_of_all_brokers_are_sorted_by_time() -> None:
    later, earlier, nothing = (
        found(stored_at(20, 1, KEYS="k")),
        found(stored_at(10, 1, KEYS="k"), stored_at(30, 2, KEYS="k")),
        failing(ResponseCode.QUERY_NOT_FOUND),
    )
    async with scripted_cluster(later, earlier, nothing) as cluster, Admin(cluster.address) as admin:
        messages = (await admin.messages.find("T", "k")).messages
        assert [message.store_time_ms for message in messages] == [10, 20, 30]
        assert [message.broker_name for message in messages] == ["broker-b", "broker-a", "broker-b"]
        newest = (await admin.messages.find("T", "k", max_messages=2)).messages
        assert [message.store_time_ms for message in newest] == [20, 30]


async def test_a_failing_broker_is_reported_beside_the_messages_of_others() -> None:
    async with (
        scripted_cluster(failing(ResponseCode.SYSTEM_ERROR), found(stored(1, KEYS="k"))) as cluster,
        Admin(cluster.address) as admin,
    ):
        listing = await admin.messages.find("T", "k")
        assert [message.broker_name for message in listing.messages] == ["broker-b"]
        assert [(name, "scripted" in str(error)) for name, error in listing.failures.items()] == [
            ("broker-a", True)
        ]


async def test_a_failing_broker_is_logged_if_another_finds_the_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        scripted_cluster(failing(ResponseCode.SYSTEM_ERROR), found(stored(1, UNIQ_KEY="X"))) as cluster,
        Admin(cluster.address) as admin,
    ):
        message = await admin.messages.get("X", topic="T")
        assert message is not None
        assert message.broker_name == "broker-b"
        (record,) = caplog.records
        assert "incomplete lookup of X in T" in record.getMessage()
        assert "scripted" in record.getMessage()
        with pytest.raises(BrokerError, match="scripted"):
            await admin.messages.get("Y", topic="T")


async def test_invalid_arguments_are_rejected(address: str) -> None:
    async with Admin(address) as admin:
        with pytest.raises(TopicNotFoundError):
            await admin.messages.find("T", "k")
        with pytest.raises(TopicNotFoundError):
            await admin.messages.get("k", topic="T")
        with pytest.raises(ConfigurationError, match="max_messages is 0"):
            await admin.messages.find("T", "k", max_messages=0)
        with pytest.raises(ConfigurationError, match="is not an offset message id"):
            await admin.messages.get("k")


# By offset message id


def knowing(cluster: ScriptedCluster, host: str | None = None) -> Answering:
    """Return a name server that also answers requests for the cluster's brokers."""

    def answer(connection: Connection, request: Command) -> None:
        if request.code != RequestCode.GET_BROKER_CLUSTER_INFO:
            cluster.route(connection, request)
            return
        brokers = {
            name: BrokerData(cluster="c", broker_name=name, announced={0: _named(server.address, host)})
            for name, server in cluster.brokers.items()
        }
        connection.respond(request, ResponseCode.SUCCESS, {}, ClusterInfo(broker_addr_table=brokers).encode())

    return answer


def _named(address: str, host: str | None) -> str:
    return address if host is None else f"{host}:{address.partition(':')[2]}"


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
    async with scripted_cluster(answer) as cluster, Admin(cluster.address) as admin:
        cluster.name_server.answer = knowing(cluster)
        server = cluster.brokers["broker-a"]
        message = await admin.messages.get(id_at(server.address, 700), topic="T")
        assert (message.body if message else None) == body
        assert server.requests[-1].fields["topic"] == "T"


async def test_error_of_the_broker_is_raised() -> None:
    answer = failing(ResponseCode.SYSTEM_ERROR, "newLimit < 0")
    async with scripted_cluster(answer) as cluster, Admin(cluster.address) as admin:
        cluster.name_server.answer = knowing(cluster)
        with pytest.raises(BrokerError, match="newLimit"):
            await admin.messages.get(id_at(cluster.brokers["broker-a"].address, 700))


async def test_id_with_an_address_outside_of_the_cluster_is_rejected() -> None:
    async with (
        scripted_cluster(found()) as cluster,
        scripted_cluster(found()) as strange,
        Admin(cluster.address) as admin,
    ):
        cluster.name_server.answer = knowing(cluster)
        stranger = strange.brokers["broker-a"]
        with pytest.raises(ConfigurationError, match=f"contains {stranger.address}, which is not a broker"):
            await admin.messages.get(id_at(stranger.address, 700))
        assert not stranger.connections


async def test_id_of_the_embedded_broker_registered_by_host_name(broker: EmbeddedBroker) -> None:
    Resolver.install().addresses["localhost"] = ["::1", "127.0.0.1"]
    async with Producer(broker.name_server_address, group="p") as producer:
        sent = await producer.send(Message("T", b"x"))
        route = await core_of(producer).name_servers.route("T")
    assert sent.offset_message_id.startswith("7F000001")
    named = {0: _named(broker.broker_address, "localhost")}
    brokers = (BrokerData(cluster="c", broker_name="broker-a", announced=named),)

    def answer(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            body = ClusterInfo(broker_addr_table={"broker-a": brokers[0]}).encode()
        else:
            body = TopicRoute(queue_datas=route.queue_datas, broker_datas=brokers).encode()
        connection.respond(request, ResponseCode.SUCCESS, {}, body)

    async with (
        scripted_cluster() as cluster,
        Client(cluster.address) as client,
        Admin(client) as admin,
    ):
        cluster.name_server.answer = answer
        for message in (
            await admin.messages.get(sent.offset_message_id),
            await admin.messages.get(sent.offset_message_id, topic="T"),
        ):
            assert message is not None
            assert message.body == b"x"


async def test_id_of_a_broker_registered_by_host_name() -> None:
    resolver = Resolver.install()
    resolver.addresses["named.invalid"] = ["127.0.0.1"]
    async with (
        scripted_cluster(found(stored(7, body=b"seven"))) as cluster,
        Admin(cluster.address) as admin,
    ):
        cluster.name_server.answer = knowing(cluster, "named.invalid")
        message = await admin.messages.get(id_at(cluster.brokers["broker-a"].address, 700))
        assert message is not None
        assert message.body == b"seven"


ELSEWHERE = "10.0.0.9"
"""An address that the name of a test's broker has only for the broker."""


def stored_by(address: str) -> bytes:
    """Return the message at position 700 of the broker that knows itself by this address."""
    return encode_message(
        topic="T",
        body=b"seven",
        properties=b"",
        queue_id=0,
        queue_offset=7,
        commit_log_offset=700,
        flag=0,
        system_flag=0,
        born_time_ms=1,
        born_address=pack_address(address),
        store_time_ms=2,
        store_address=pack_address(address),
        reconsume_times=0,
    )


@pytest.mark.parametrize("proxy", [None, "socks5://127.0.0.1:1"])
async def test_a_broker_may_have_resolved_its_name_to_another_address(
    proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver.install()
    resolver.addresses["named.invalid"] = ["127.0.0.1"]
    async with (
        scripted_cluster(found()) as cluster,
        Client(cluster.address) as client,
        Admin(client) as admin,
    ):
        monkeypatch.setattr(core_of(client), "settings", attrs.evolve(client.settings, proxy=proxy))
        cluster.name_server.answer = knowing(cluster, "named.invalid")
        server = cluster.brokers["broker-a"]
        address = _named(server.address, ELSEWHERE)
        server.answer = found(stored_by(address))
        message = await admin.messages.get(id_at(address, 700))
        assert message is not None
        assert message.body == b"seven"
        assert resolver.lookups[0] == "named.invalid"


@pytest.mark.parametrize(
    "answer",
    [
        found(),
        found(stored_by("10.0.0.8:10911")),
        found(b"garbage"),
        failing(ResponseCode.SYSTEM_ERROR, "can not find message by the offset, 700"),
    ],
    ids=["nothing", "another", "garbage", "gone"],
)
async def test_an_id_that_no_broker_with_a_name_has_issued_is_rejected(answer: Answering) -> None:
    Resolver.install().addresses["named.invalid"] = ["127.0.0.1"]
    async with scripted_cluster(answer) as cluster, Admin(cluster.address) as admin:
        cluster.name_server.answer = knowing(cluster, "named.invalid")
        address = cluster.brokers["broker-a"].address
        named = _named(address, "named.invalid")
        with pytest.raises(ConfigurationError, match=f"and {named} does not have the message"):
            await admin.messages.get(id_at(_named(address, ELSEWHERE), 700))
        with pytest.raises(ConfigurationError, match="which is not a broker of this cluster"):
            await admin.messages.get(id_at(f"{ELSEWHERE}:1", 700))


async def test_an_error_of_a_broker_with_a_name_is_raised() -> None:
    Resolver.install().addresses["named.invalid"] = ["127.0.0.1"]
    answer = failing(ResponseCode.SYSTEM_ERROR, "newLimit < 0")
    async with scripted_cluster(answer) as cluster, Admin(cluster.address) as admin:
        cluster.name_server.answer = knowing(cluster, "named.invalid")
        address = cluster.brokers["broker-a"].address
        with pytest.raises(BrokerError, match="newLimit"):
            await admin.messages.get(id_at(_named(address, ELSEWHERE), 700))


async def test_cancellation_at_every_await(address: str) -> None:
    async with Producer(address, group="p") as producer:
        result = await producer.send(Message("T", b"x", keys="k"))
    async with Client(address) as client, Admin(client) as admin:

        async def look_up() -> None:
            assert await admin.messages.get(result.offset_message_id) is not None
            assert await admin.messages.get(result.message_id, topic="T") is not None
            assert len((await admin.messages.find("T", "k")).messages) == 1

        async def check() -> None:
            await trio.testing.wait_all_tasks_blocked(0.001)
            assert all(
                connection.pending == 0 for connection in core_of(client).connections.open_connections()
            )

        assert await cancel_at_each_await(look_up, check) > 3
