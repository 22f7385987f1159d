"""A name server and broker that put control characters into every name, version and remark they answer.

They forward each request to an embedded broker and rewrite its answer, so that every command finds a cluster
that works, and prints the rewritten answers as its own output.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.credentials import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, Credentials
from rocketmq_py.errors import RocketMQError
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection, ConnectionPool, serve

CONTROLS = "\r\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e"
"""A carriage return, a window title, a cleared screen, a colour by C1, DEL, a bidirectional override."""
TOPIC, GROUP, REPLIERS, USER, KEY = "Orders", "billing", "repliers", "alice", "order-7"
CREDENTIALS = Credentials("root", "secret")

_NAMES = ("broker-a", "DefaultCluster", TOPIC, GROUP, USER, "127.0.0.1@", "V5_")
"""Parts of names, client ids and versions that get ``CONTROLS`` appended in answers."""
_IN_JSON = json.dumps(CONTROLS)[1:-1]
_SIGNED = {ACCESS_KEY, SIGNATURE, SECURITY_TOKEN}


@attrs.frozen
class HostileCluster:
    """A cluster that commands can use, and the names of its parts.

    Attributes:
        name_server: the name server, which forwards and rewrites.
        refusing_name_server: a name server whose broker refuses every request, in a hostile remark.
        refusing_address: an address that refuses every request likewise, as a name server would.
        broker: the address of the broker.
        client_id: the id of a member of ``GROUP``, as the broker answers it.
        message_id: the id of a message that has ``CONTROLS`` in its body, tag, keys and properties.
    """

    name_server: str
    refusing_name_server: str
    refusing_address: str
    broker: str
    client_id: str
    message_id: str


@asynccontextmanager
async def hostile_cluster() -> AsyncIterator[HostileCluster]:
    """Run an embedded broker behind hostile addresses, with messages, dead letters, a member and a user."""
    keys = {CREDENTIALS.access_key: CREDENTIALS.secret_key}
    async with EmbeddedBroker(access_keys=keys) as broker, trio.open_nursery() as nursery:
        connections = ConnectionPool(nursery, lambda _, __: None, credentials=CREDENTIALS)
        addresses = (broker.name_server_address, broker.broker_address)
        hostile_broker = await nursery.start(
            serve, partial(_forward, nursery, connections, addresses[1], bytes), "127.0.0.1", 0
        )
        refusing = await nursery.start(serve, _refuse, "127.0.0.1", 0)

        def name_server_in_front_of(address: str) -> Callable[[Connection, Command], None]:
            def redirect(body: bytes) -> bytes:
                return body.replace(addresses[1].encode(), address.encode())

            return partial(_forward, nursery, connections, addresses[0], redirect)

        name_server, refusing_name_server = [
            await nursery.start(serve, name_server_in_front_of(address), "127.0.0.1", 0)
            for address in (hostile_broker, refusing)
        ]
        async with Client(addresses[0], credentials=CREDENTIALS) as client:
            message_id = await _populate(client)
            async with client.push_consumer(GROUP) as consumer:
                consumer.subscribe(TOPIC)
                nursery.start_soon(consumer.run, _accept)
                yield HostileCluster(
                    name_server=name_server,
                    refusing_name_server=refusing_name_server,
                    refusing_address=refusing,
                    broker=hostile_broker,
                    client_id=_rewritten(core_of(client).client_id, CONTROLS),
                    message_id=message_id,
                )
                consumer.stop()
        nursery.cancel_scope.cancel()


def _forward(
    nursery: trio.Nursery,
    connections: ConnectionPool,
    address: str,
    redirect: Callable[[bytes], bytes],
    connection: Connection,
    request: Command,
) -> None:
    """Forward a request without the characters that earlier answers added, and answer it with them."""

    async def ask() -> None:
        fields = {
            name: value.replace(CONTROLS, "") for name, value in request.fields.items() if name not in _SIGNED
        }
        body = request.body.replace(_IN_JSON.encode(), b"").replace(CONTROLS.encode(), b"")
        try:
            answer = await connections.request(address, request.code, fields, body, timeout=30)
        except RocketMQError as error:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=f"{error}{CONTROLS}")
            return
        rewritten = {name: _rewritten(value, CONTROLS) for name, value in answer.fields.items()}
        remark = None if answer.remark is None else answer.remark + CONTROLS
        # Members must find their own ids in a group's list.
        is_ids = request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP
        body = answer.body if is_ids else redirect(_rewritten_body(answer.body))
        connection.respond(request, answer.code, rewritten, body, remark)

    nursery.start_soon(ask)


def _refuse(connection: Connection, request: Command) -> None:
    connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=f"refused{CONTROLS}")


def _rewritten(text: str, controls: str) -> str:
    for name in _NAMES:
        text = text.replace(name, name + controls)
    return text


def _rewritten_body(body: bytes) -> bytes:
    """Return a body with ``CONTROLS`` after each name. Stored messages, which are binary, are unchanged."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body
    if "\0" in text:
        return body
    return _rewritten(text, _IN_JSON if text.startswith(("{", "[")) else CONTROLS).encode()


async def _accept(_: ReceivedMessage) -> None:
    pass


async def _populate(client: Client) -> str:
    """Store a hostile message, let ``GROUP`` fail on it until it is a dead letter, and return its id."""

    async def fail(_: ReceivedMessage) -> None:
        raise ValueError("refused")

    async with client.admin() as admin:
        for topic in (TOPIC, "Old"):
            await admin.topics.create(topic, queues=1)
        await admin.groups.create("old")
        for user in (USER, "bob"):
            await admin.access.create_user(user, "secret")
            await admin.access.put_rule(user, f"Topic:{TOPIC}", ["Pub"], is_allowed=True)
        async with client.producer("senders", trace=True) as producer:
            hostile = Message(
                TOPIC,
                f"body{CONTROLS}".encode(),
                f"tag{CONTROLS}",
                [f"key{CONTROLS}", KEY],
                {"property": f"value{CONTROLS}"},
            )
            sent = await producer.send(hostile)
        async with client.reader() as reader:
            await reader.commit(REPLIERS, dict.fromkeys(await reader.offsets(TOPIC), 0))
        async with (
            client.push_consumer(GROUP, consume_from="earliest", max_reconsume_times=0) as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe(TOPIC)
            nursery.start_soon(consumer.run, fail)
            while not (await admin.dead_letters.list(GROUP)).total:
                await trio.sleep(0.01)
            consumer.stop()
    return sent.message_id
