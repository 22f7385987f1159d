from __future__ import annotations

import json
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
import trio

from rocketmq_py.address import split_address
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.protocol.command import Command, Serialization, encode_request
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection, Deadlines, Handler
from tests.environment import created

SEND = {
    "a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "5", "h": "0", "i": "",
}  # fmt: skip
PULL = {
    "consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
    "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "0",
    "subscription": "*",
}  # fmt: skip


@asynccontextmanager
async def connected(
    address: str,
    serialization: Serialization = Serialization.JSON,
    handler: Handler = lambda _, __: None,
) -> AsyncIterator[Connection]:
    host, port = split_address(address)
    deadlines = Deadlines()
    async with trio.open_nursery() as nursery:
        connection = Connection(
            await trio.open_tcp_stream(host, port),
            deadlines=deadlines,
            handler=handler,
            serialization=serialization,
        )
        nursery.start_soon(deadlines.run)
        nursery.start_soon(connection.run)
        yield connection
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_message_is_sent_and_pulled(serialization: Serialization, host: str) -> None:
    async with (
        created(EmbeddedBroker, host, rng=random.Random(1)) as broker,
        connected(broker.name_server_address, serialization) as name_server,
        connected(broker.broker_address, serialization) as connection,
    ):
        sent = await connection.request(RequestCode.SEND_MESSAGE_V2, SEND, b"hello", timeout=5)
        assert sent.code == ResponseCode.SUCCESS
        topic = {"topic": "t"}
        route = await name_server.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic, timeout=5)
        addresses = json.loads(route.body)["brokerDatas"][0]["brokerAddrs"]
        _, port = split_address(broker.broker_address)
        assert addresses == {"0": f"{host}:{port}"}, "without brackets, as Java's brokers announce themselves"
        pulled = await connection.request(RequestCode.PULL_MESSAGE, PULL, timeout=5)
        (message,) = decode_messages(pulled.body, "broker-a")
        assert message.body == b"hello"
        assert message.store_host == broker.broker_address
        assert message.born_host == connection.local_address
        assert message.offset_message_id == sent.fields["msgId"]


async def test_a_closed_connection_leaves_its_groups() -> None:
    notices_out, notices = trio.open_memory_channel[Command](10)

    async def consume(connection: Connection, client_id: str) -> None:
        consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": "t", "subString": "*"}]}
        body = json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode()
        await connection.request(RequestCode.HEART_BEAT, {}, body, timeout=5)

    async def members() -> list[str]:
        group = {"consumerGroup": "g"}
        answer = await staying.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, group, timeout=5)
        return list(json.loads(answer.body)["consumerIdList"])

    async with (
        EmbeddedBroker() as broker,
        connected(
            broker.broker_address, handler=lambda _, request: notices_out.send_nowait(request)
        ) as staying,
    ):
        await consume(staying, "staying")
        await notices.receive()
        async with connected(broker.broker_address) as leaving:
            await consume(leaving, "leaving")
            await notices.receive()
            assert await members() == ["staying", "leaving"]
        notice = await notices.receive()
        assert (notice.code, notice.fields) == (
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            {"consumerGroup": "g"},
        )
        assert await members() == ["staying"]


async def test_an_error_of_on_request_is_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    def fail(code: int, topic: str | None, client_address: str) -> None:
        if code == RequestCode.SEND_MESSAGE_V2:
            raise RuntimeError(f"no {topic} today")

    async with (
        EmbeddedBroker(on_request=fail, topics=["t"]) as broker,
        connected(broker.broker_address) as connection,
    ):
        sent = await connection.request(RequestCode.SEND_MESSAGE_V2, SEND, b"x", timeout=5)
        assert (sent.code, sent.remark) == (ResponseCode.SYSTEM_ERROR, "RuntimeError: no t today")
        pulled = await connection.request(RequestCode.PULL_MESSAGE, {**PULL, "sysFlag": "4"}, timeout=5)
        assert pulled.code == ResponseCode.PULL_NOT_FOUND
    assert "request failed" in caplog.text


# Start and stop


async def test_addresses_are_available_while_it_listens() -> None:
    broker = EmbeddedBroker()
    for address in ("name_server_address", "broker_address"):
        with pytest.raises(ClosedError, match="async with"):
            getattr(broker, address)
    async with broker:
        assert broker.name_server_address != broker.broker_address
    with pytest.raises(OSError, match=r"connect|connection"):
        await trio.open_tcp_stream(*split_address(broker.broker_address))


async def test_leaving_closes_connections_and_held_pulls() -> None:
    tasks_before = trio.lowlevel.current_statistics().tasks_living
    async with EmbeddedBroker() as broker:
        streams = [
            await trio.open_tcp_stream(*split_address(address))
            for address in (broker.broker_address, broker.name_server_address)
        ]
        await streams[0].send_all(
            encode_request(RequestCode.SEND_MESSAGE_V2, 1, SEND, b"x")
            + encode_request(RequestCode.PULL_MESSAGE, 2, {**PULL, "queueId": "1"})
        )
        assert await streams[0].receive_some()
    assert trio.lowlevel.current_statistics().tasks_living == tasks_before
    for stream in streams:
        async with stream:
            with suppress(trio.BrokenResourceError):
                assert await stream.receive_some() == b""


async def test_an_error_of_the_user_is_not_wrapped() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with EmbeddedBroker():
            raise KeyError("mine")


async def test_a_cancellation_stops_it() -> None:
    with trio.CancelScope() as scope:
        async with EmbeddedBroker():
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_entering_it_twice_is_an_error() -> None:
    broker = EmbeddedBroker()
    async with broker:
        with pytest.raises(ClosedError, match="once"):
            await broker.__aenter__()
    with pytest.raises(ClosedError, match="once"):
        await broker.__aenter__()


async def test_fixed_ports_can_be_reused_at_once() -> None:
    async with EmbeddedBroker() as first:
        ports = [split_address(address)[1] for address in (first.name_server_address, first.broker_address)]
    async with EmbeddedBroker(namesrv_port=ports[0], port=ports[1]) as second:
        assert (second.name_server_address, second.broker_address) == (
            first.name_server_address,
            first.broker_address,
        )
        async with connected(second.broker_address) as connection:
            sent = await connection.request(RequestCode.SEND_MESSAGE_V2, SEND, b"x", timeout=5)
            assert sent.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("setting", ["port", "namesrv_port"])
async def test_the_error_names_a_port_in_use(setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        expected = (
            rf"127.0.0.1:{port}: .*in use; stop the server .* or choose others with namesrv_port and port"
        )
        with pytest.raises(ConfigurationError, match=expected):
            async with EmbeddedBroker(**{setting: port}):
                pass


@pytest.mark.parametrize(
    ("host", "settings", "reason"),
    [
        ("localhost", {}, "^host is 'localhost'; it must be an IP address$"),
        (9876, {}, "^host must be a str, not int$"),
        ("0.0.0.0", {}, r"^0\.0\.0\.0 stands for all .* broker_ip1"),
        ("127.0.0.1", {"broker_ip1": "example"}, "^broker_ip1 is 'example'; it must be an IP address$"),
        ("127.0.0.1", {"broker_ip1": "0.0.0.0"}, r"^0\.0\.0\.0 stands for all .* broker_ip1"),
        ("127.0.0.1", {"broker_name": ""}, "broker_name"),
    ],
)
def test_an_address_that_clients_cannot_use_is_an_error(
    host: Any, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        EmbeddedBroker(host, **settings)


async def test_an_address_of_another_machine_is_an_error() -> None:
    # 192.0.2.1 is reserved for documentation.
    with pytest.raises(ConfigurationError, match=r"; choose an IP address of this machine with host$"):
        async with EmbeddedBroker("192.0.2.1"):
            pass


async def test_broker_ip1_sets_the_address_for_clients() -> None:
    async with EmbeddedBroker("0.0.0.0", broker_ip1="127.0.0.1") as broker:
        assert broker.broker_address.startswith("127.0.0.1:")
        async with connected(broker.broker_address) as connection:
            sent = await connection.request(RequestCode.SEND_MESSAGE_V2, SEND, b"x", timeout=5)
            assert sent.fields["msgId"].startswith("7F000001")


def test_the_settings_are_those_of_the_keywords() -> None:
    broker = EmbeddedBroker(broker_name="b", transaction_time_out=timedelta(seconds=5))
    assert broker.settings == BrokerConfig(broker_name="b", transaction_time_out=5.0)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"broker_nam": "b"}, "'broker_nam'; did you mean 'broker_name'?"),
        ({"config": BrokerConfig()}, "'config'; the docstring lists the settings"),
    ],
    ids=["near", "unknown"],
)
def test_an_unknown_setting_is_an_error_that_suggests_the_nearest_name(
    settings: dict[str, Any], advice: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        EmbeddedBroker(**settings)
    assert str(caught.value) == f"there is no setting {advice}"
