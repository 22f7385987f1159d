"""Each request to name servers and brokers is signed and has the second namespace, also oneway requests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import rocketmq_py
from rocketmq_py import Client, Credentials, Message, ReceivedMessage, TransactionState
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Answer, Connection, server
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import PATIENCE
from tests.remoting.serving import pool_of, serving

ROOMS = Path(rocketmq_py.__file__).parent
OF_SERVERS = {"broker", "testing"}
CREDENTIALS = Credentials("alice", "very-secret", "a-token")
NAMESPACE_V2 = "rmq-cn-1"


def codes_in_source() -> Iterator[str]:
    """Return the names of all request codes in the modules of clients."""
    for path in sorted(ROOMS.rglob("*.py")):
        if path.relative_to(ROOMS).parts[0] not in OF_SERVERS and path.name != "codes.py":
            yield from re.findall(r"\bRequestCode\.([A-Z0-9_]+)", path.read_text())


CODES = sorted(set(codes_in_source()))


def check(request: Command) -> None:
    """Check the signature with an own implementation of Java's ``AclUtils``."""
    fields = dict(request.fields)
    assert (fields["nsd"], fields["ns"]) == ("true", NAMESPACE_V2), request.code
    assert (fields["AccessKey"], fields["SecurityToken"]) == ("alice", "a-token"), request.code
    given = fields.pop("Signature")
    content = "".join(value for _, value in sorted(fields.items())).encode() + request.body
    digest = hmac.new(b"very-secret", content, hashlib.sha1).digest()
    assert base64.b64encode(digest).decode() == given, request.code


def test_the_source_names_the_requests_of_clients() -> None:
    assert len(CODES) > 70
    assert {
        "HEART_BEAT",
        "GET_ROUTEINFO_BY_TOPIC",
        "SEND_MESSAGE_V2",
        "END_TRANSACTION",
        "POP_MESSAGE",
    } < set(CODES)


async def test_requests_with_every_code_are_signed() -> None:
    seen: list[Command] = []

    def answer(connection: Connection, request: Command) -> None:
        seen.append(request)
        connection.respond(request, 0)

    async with (
        serving(answer) as address,
        pool_of(credentials=CREDENTIALS, namespace_v2=NAMESPACE_V2) as connections,
    ):
        connection = await connections.get(address)
        answers: list[Answer] = []
        for name in CODES:
            code, fields = int(RequestCode[name]), {"topic": name, "b": "ü"}
            await connection.oneway(code, fields, b"1")
            deadline = trio.current_time() + PATIENCE
            connection.submit(
                code, fields, b"2", deadline=deadline, timeout=PATIENCE, on_answer=answers.append
            )
            await connections.request(address, code, fields, b"3", timeout=PATIENCE)
    assert [request.code for request in seen] == [int(RequestCode[name]) for name in CODES for _ in range(3)]
    for request in seen:
        check(request)


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """The requests that the servers of this process receive, as they are on the wire."""
    requests: list[Command] = []

    class Recording(Connection):
        def _handle_request(self, request: Command) -> None:
            requests.append(request)
            super()._handle_request(request)

    monkeypatch.setattr(server, "Connection", Recording)
    return requests


async def work(client: Client, topic: str) -> None:
    """Send, consume and administer, with everything that has requests of its own."""
    checked = trio.Event()

    async def check_back(_: ReceivedMessage) -> TransactionState:
        checked.set()
        return TransactionState.COMMIT

    async with client.producer("senders", trace=True) as producer:
        await producer.send(Message(topic, b"1", keys="k"))
        await (await producer.submit(Message(topic, b"2")))
        await producer.send_oneway(Message(topic, b"3"))
        await producer.send_batch([Message(topic, b"4"), Message(topic, b"5")])
        timed = await producer.send(Message(topic, b"6", delay=600))
        assert timed.recall_handle is not None
        await producer.recall(topic, timed.recall_handle)
    async with client.transaction_producer("transactions", check_back) as transactions:
        await transactions.send_in_transaction(Message(topic, b"7"), lambda *_: TransactionState.UNKNOWN)
        await transactions.send_in_transaction(Message(topic, b"8"), lambda *_: TransactionState.COMMIT)
        await checked.wait()
    for orderly in (False, True):
        failed = trio.Event()

        async def handle(message: ReceivedMessage, failed: trio.Event = failed) -> None:
            failed.set()
            if not message.reconsume_times:
                raise ValueError("it fails")

        group = f"push-{orderly}"
        async with (
            trio.open_nursery() as nursery,
            client.push_consumer(group, consume_from="earliest", orderly=orderly, trace=True) as push,
        ):
            push.subscribe(topic)
            nursery.start_soon(push.run, handle)
            await failed.wait()
            async with client.admin() as admin:
                await admin.clients.describe(core_of(client).client_id)
                await admin.groups.describe(group)
            nursery.cancel_scope.cancel()
    async with client.pop_consumer("pop", consume_from="earliest") as pop:
        pop.subscribe(topic)
        for message in await pop.receive(wait=5):
            await pop.ack(message)
    async with client.lite_pull_consumer("lite", consume_from="earliest") as lite:
        lite.subscribe(topic)
        await lite.poll(wait=5)
        await lite.commit()
    async with client.admin() as admin:
        await admin.topics.list()
        await admin.topics.describe(topic)
        await admin.groups.list()
        await admin.brokers.list()
        await admin.messages.find(topic, key="k")
        await admin.topics.delete(topic)


async def test_all_requests_of_a_working_client_are_signed(received: list[Command]) -> None:
    settings: dict[str, Any] = {"transaction_time_out": 0.1, "transaction_check_interval": 0.1}
    async with EmbeddedBroker(access_keys={"alice": "very-secret"}, **settings) as broker:
        address = broker.name_server_address
        async with Client(address, credentials=CREDENTIALS, namespace_v2=NAMESPACE_V2) as client:
            await create_topic(client, "T", queues=2)
            with trio.fail_after(PATIENCE):
                await work(client, "T")
    for request in received:
        check(request)
    seen = {RequestCode(request.code).name for request in received}
    assert seen <= set(CODES)
    expected = {
        "GET_ROUTEINFO_BY_TOPIC", "GET_BROKER_CLUSTER_INFO", "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
        "DELETE_TOPIC_IN_NAMESRV", "HEART_BEAT", "UNREGISTER_CLIENT",
        "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "END_TRANSACTION", "RECALL_MESSAGE",
        "CONSUMER_SEND_MSG_BACK",
        "PULL_MESSAGE", "POP_MESSAGE", "ACK_MESSAGE", "LOCK_BATCH_MQ", "UNLOCK_BATCH_MQ",
        "UPDATE_CONSUMER_OFFSET", "QUERY_CONSUMER_OFFSET", "GET_CONSUMER_LIST_BY_GROUP",
        "GET_CONSUMER_RUNNING_INFO", "QUERY_MESSAGE",
    }  # fmt: skip
    assert expected - seen == set()
    traces = [request for request in received if request.fields.get("b") == "RMQ_SYS_TRACE_TOPIC"]
    assert traces, "the requests with traces, which were checked above"
    assert any(request.is_oneway for request in received)
