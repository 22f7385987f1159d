from __future__ import annotations

import logging

import pytest
import trio
import trio.testing

from rocketmq_py import Client, Message
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConnectError, ConnectionLostError, InvalidMessageError, RequestTimeoutError
from rocketmq_py.hooks import RpcContext, RpcHook
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from rocketmq_py.remoting.pending_connection import PendingConnection
from tests.scripted import ignore, scripted_cluster, store

MESSAGE = Message("T", b"body")
SENDS = RequestCode.SEND_MESSAGE_V2


class Notes(RpcHook):
    def __init__(self) -> None:
        self.before: list[RpcContext] = []
        self.after: list[RpcContext] = []

    def before_request(self, context: RpcContext) -> None:
        context.fields["stamp"] = "1"
        self.before.append(context)

    async def after_answer(self, context: RpcContext) -> None:
        await trio.lowlevel.checkpoint()
        self.after.append(context)

    def sends(self) -> list[RpcContext]:
        return [context for context in self.after if context.code == SENDS]


async def test_hooks_see_every_request_before_and_after() -> None:
    async with scripted_cluster(store) as cluster:
        async with Client(cluster.address) as client, client.producer("g") as producer:
            remove = client.add_rpc_hook(notes := Notes())
            await producer.send(MESSAGE)
            await (await producer.submit(MESSAGE))
            await producer.send_oneway(MESSAGE)
            awaited, pipelined, oneway = notes.sends()
            for context in (awaited, pipelined):
                assert context.answer is not None
                assert context.answer.code == ResponseCode.SUCCESS
                assert (context.error, context.oneway) == (None, False)
            assert (oneway.answer, oneway.error, oneway.oneway) == (None, None, True)
            assert {context.address for context in notes.sends()} == {cluster.brokers["broker-a"].address}
            codes = {context.code for context in notes.before}
            assert {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT} <= codes
            remove()
            await producer.send(MESSAGE)
            assert len(notes.sends()) == 3
        stamps = [request.fields.get("stamp") for request in cluster.brokers["broker-a"].asked(SENDS)]
        assert stamps == ["1", "1", "1", None], "changes of a hook are written"


async def test_hooks_see_the_error_of_a_request(jumping_clock: object) -> None:
    async with (
        scripted_cluster(ignore) as cluster,
        Client(cluster.address) as client,
        client.producer("g", retries=0) as producer,
    ):
        client.add_rpc_hook(notes := Notes())
        with pytest.raises(RequestTimeoutError):
            await producer.send(MESSAGE)
        with pytest.raises(RequestTimeoutError):
            await (await producer.submit(MESSAGE))
        assert {type(context.error) for context in notes.sends()} == {RequestTimeoutError}


async def test_hooks_see_a_request_that_a_closed_connection_rejects() -> None:
    def hang_up(connection: Connection, request: Command) -> None:
        if request.code == SENDS:
            connection.close()
        else:
            store(connection, request)

    async with (
        scripted_cluster(hang_up) as cluster,
        Client(cluster.address) as client,
        client.producer("g", retries=0) as producer,
    ):
        client.add_rpc_hook(notes := Notes())
        with pytest.raises(ConnectionLostError):
            await (await producer.submit(MESSAGE))
        assert isinstance(notes.sends()[0].error, ConnectionLostError)


async def test_hooks_see_the_error_of_a_oneway_request() -> None:
    class Closing(Notes):
        def before_request(self, context: RpcContext) -> None:
            super().before_request(context)
            if context.oneway:
                core_of(client).connections.close(context.address)

    async with (
        scripted_cluster(store) as cluster,
        Client(cluster.address) as client,
        client.producer("g") as producer,
    ):
        client.add_rpc_hook(notes := Closing())
        with pytest.raises(ConnectionLostError):
            await producer.send_oneway(MESSAGE)
        assert isinstance(notes.sends()[0].error, ConnectionLostError)


async def test_a_hook_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RpcHook):
        def before_request(self, context: RpcContext) -> None:
            raise ZeroDivisionError

        async def after_answer(self, context: RpcContext) -> None:
            raise ZeroDivisionError

    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        client.add_rpc_hook(Broken())
        async with client.producer("g") as producer:
            await producer.send(MESSAGE)
            await (await producer.submit(MESSAGE))
            await producer.send_oneway(MESSAGE)
    assert any("Broken.before_request" in record.message for record in caplog.records)
    assert {record.levelno for record in caplog.records if "Broken" in record.message} == {logging.ERROR}


async def test_a_header_that_a_hook_makes_invalid_fails_its_message(jumping_clock: object) -> None:
    class Spoil(RpcHook):
        def before_request(self, context: RpcContext) -> None:
            if context.code == SENDS:
                context.fields["half"] = "\ud83d"

    async with (
        scripted_cluster(store) as cluster,
        Client(cluster.address) as client,
        client.producer("g") as producer,
    ):
        client.add_rpc_hook(Spoil())
        await producer.queues("T")
        waited = await producer.submit(MESSAGE)  # for the connection
        with pytest.raises(InvalidMessageError, match="surrogates not allowed"):
            await waited
        for send in (producer.send, producer.submit, producer.request, producer.send_oneway):
            with pytest.raises(InvalidMessageError, match="surrogates not allowed"):
                await send(MESSAGE)
        assert producer.in_flight == 0


async def test_a_request_whose_connection_is_lost_during_a_hook_is_sent_over_another(
    jumping_clock: object,
) -> None:
    class Lose(RpcHook):
        def before_request(self, context: RpcContext) -> None:
            if context.code == SENDS and not lost:
                lost.append(context.address)
                (connection,) = [
                    one
                    for one in core_of(client).connections.open_connections()
                    if one.address == context.address
                ]
                connection.close()

    lost: list[str] = []
    async with (
        scripted_cluster(store) as cluster,
        Client(cluster.address) as client,
        client.producer("g") as producer,
    ):
        await producer.send(MESSAGE)
        client.add_rpc_hook(Lose())
        assert (await (await producer.submit(MESSAGE))).queue.topic == "T"
        assert lost == [cluster.brokers["broker-a"].address]
        assert producer.statistics.retried == 0, "nothing was written before"


async def test_hooks_run_after_the_route_of_a_new_topic_is_known() -> None:
    async with (
        scripted_cluster(store) as cluster,
        Client(cluster.address) as client,
        client.producer("g") as producer,
    ):
        client.add_rpc_hook(notes := Notes())
        await producer.send(MESSAGE)
        cluster.topics["New"] = (1, 1, 6)
        await (await producer.submit(Message("New", b"x")))
        assert [context.fields["b"] for context in notes.sends()] == ["T", "New"]


class TakesLonger(RpcHook):
    """Waits for longer than it takes to dial."""

    async def before_request(self, context: RpcContext) -> None:
        await trio.sleep(1.0)


async def test_a_hook_that_takes_longer_than_dialling(jumping_clock: trio.testing.MockClock) -> None:
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        client.add_rpc_hook(TakesLonger())
        async with client.producer("g", send_timeout=60) as producer:
            await producer.send(MESSAGE)
            await producer.send_oneway(MESSAGE)
            await (await producer.submit(MESSAGE))


async def test_a_hook_that_takes_longer_than_a_dialling_that_fails(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with Client("127.0.0.1:9") as client:
        client.add_rpc_hook(TakesLonger())
        with pytest.raises(ConnectError, match=r"127\.0\.0\.1:9"):
            await core_of(client).connections.request(
                "127.0.0.1:9", RequestCode.GET_ROUTEINFO_BY_TOPIC, {}, timeout=60
            )
        dial = core_of(client).connections.channel_nowait("127.0.0.1:10")
        assert isinstance(dial, PendingConnection)
        await dial.wait_for_attempt()
        dial.oneway_nowait(RequestCode.HEART_BEAT, {})  # waits for the next dial
        assert core_of(client).connections.is_unreachable("127.0.0.1:10")


async def test_a_dial_that_is_done_gives_oneway_requests_to_its_connection(
    jumping_clock: trio.testing.MockClock,
) -> None:
    asked: list[int] = []
    async with (
        EmbeddedBroker(on_request=lambda code, *_: asked.append(code)) as broker,
        Client(broker.name_server_address) as client,
    ):
        dial = core_of(client).connections.channel_nowait(broker.name_server_address)
        assert isinstance(dial, PendingConnection)
        await dial.wait_until_open()
        assert dial.connection is not None
        dial.oneway_nowait(RequestCode.HEART_BEAT, {})
        await dial.connection.request(RequestCode.GET_NAMESRV_CONFIG, {}, timeout=60)
    assert asked == [RequestCode.HEART_BEAT, RequestCode.GET_NAMESRV_CONFIG]
