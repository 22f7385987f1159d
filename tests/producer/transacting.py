"""Shared by the tests of transactions: local work, and brokers that store half messages and check."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import Message, ReceivedMessage, SendStatus
from rocketmq_py.producer import (
    TransactionProducer,
    TransactionSendResult,
    TransactionState,
)
from rocketmq_py.properties import decode_properties, encode_properties
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.stored_message import encode_message
from rocketmq_py.remoting import Connection
from tests.environment import created
from tests.scripted import Answering, ScriptedServer, scripted_cluster, store

MESSAGE = Message("T", b"body")
SENDS, ENDS = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION
ASKS = RequestCode.CHECK_TRANSACTION_STATE
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
ON_WIRE = {COMMIT: "8", ROLLBACK: "12", UNKNOWN: "0"}
NOT_OK = [
    (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
    (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
    (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
]


async def never_checked(_: ReceivedMessage) -> TransactionState:
    raise AssertionError("brokers check no transaction in these tests")


def producer_of(client: Client | str, **options: Any) -> TransactionProducer:
    return created(
        TransactionProducer, client, group="g", check=never_checked, rng=random.Random(1), **options
    )


def answering(code: int, *, offset_id: str = "7F00000100002A9F00000000000004D2") -> Answering:
    """Return a script that answers sends with ``code``, like a broker that stored the message."""

    def answer(connection: Connection, request: Command) -> None:
        if request.code == SENDS:
            properties = decode_properties(request.fields["i"])
            fields = {
                "msgId": offset_id, "queueId": request.fields["e"], "queueOffset": "77",
                "transactionId": properties["UNIQ_KEY"],
            }  # fmt: skip
            connection.respond(request, code, fields)
        else:
            connection.respond(request, ResponseCode.SUCCESS)

    return answer


def reported_states(server: ScriptedServer) -> list[str]:
    """Return the states that were reported to a broker before the producer was unregistered."""
    return [request.fields["commitOrRollback"] for request in server.asked(ENDS)]


def working(state: TransactionState) -> Callable[[Message, str], TransactionState]:
    return lambda message, transaction_id: state


def fail(_: Message, __: str) -> TransactionState:
    raise ValueError("the database is away")


def not_called(_: Message, __: str) -> TransactionState:
    raise AssertionError("local work must not be done")


async def in_a_call(producer: TransactionProducer, state: TransactionState) -> TransactionSendResult:
    return await producer.send_in_transaction(MESSAGE, working(state))


async def in_an_async_call(producer: TransactionProducer, state: TransactionState) -> TransactionSendResult:
    async def work(message: Message, transaction_id: str) -> TransactionState:
        await trio.lowlevel.checkpoint()
        return state

    return await producer.send_in_transaction(MESSAGE, work)


async def in_a_block(producer: TransactionProducer, state: TransactionState) -> TransactionSendResult:
    async with producer.transaction(MESSAGE) as transaction:
        transaction.state = state
    return TransactionSendResult(transaction.result, transaction.state, None, transaction.end_error)


def stored(
    message_id: str = "ID", *, topic: str = "T", body: bytes = b"body", group: str | None = "g"
) -> bytes:
    """Return a half message as the body of a check."""
    properties = {"UNIQ_KEY": message_id, "TRAN_MSG": "true", "REAL_TOPIC": topic, "REAL_QID": "3"}
    if group is not None:
        properties["PGROUP"] = group
    return encode_message(
        topic=topic, body=body, properties=encode_properties(properties).encode(), queue_id=3,
        queue_offset=7, commit_log_offset=70, flag=0, system_flag=0, born_time_ms=1, born_address=bytes(8),
        store_time_ms=2, store_address=bytes(8),
    )  # fmt: skip


@attrs.define
class Broker:
    """The broker's end of a connection to a producer."""

    server: ScriptedServer

    def ask(self, message_id: str = "ID", *, place: int = 7, body: bytes | None = None) -> None:
        fields = {
            "tranStateTableOffset": str(place), "commitLogOffset": str(10 * place), "msgId": message_id,
            "transactionId": message_id, "bname": "broker-a", "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        }  # fmt: skip
        self.ask_with(fields, stored(message_id) if body is None else body)

    def ask_with(self, fields: Mapping[str, str], body: bytes) -> None:
        self.server.connections[0].oneway_nowait(ASKS, fields, body)

    async def is_served(self) -> bool:
        """Send a check that wants an answer, and return whether it was accepted."""
        try:
            answer = await self.server.connections[0].request(ASKS, self.fields(), stored(), timeout=0.5)
        except TimeoutError:
            return True  # an accepted check is answered by a report, not by a response
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return False

    def fields(self) -> dict[str, str]:
        return {"tranStateTableOffset": "7", "commitLogOffset": "70"}

    async def ends(self, count: int) -> list[Command]:
        """Wait for this number of reports, and check that there are no more."""
        with trio.fail_after(10):
            while len(self.server.asked(ENDS)) < count:
                await trio.sleep(0.01)
        await self.settle()
        ends = self.server.asked(ENDS)
        assert len(ends) == count
        return ends

    async def settle(self) -> None:
        """Wait until the checks have been handled as far as possible."""
        answer = await self.server.connections[0].request(12345, {}, timeout=3)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        await trio.testing.wait_all_tasks_blocked(0.02)


@asynccontextmanager
async def asked_by_broker(
    check: Callable[[ReceivedMessage], Any], *, namespace: str = "", **options: Any
) -> AsyncIterator[tuple[TransactionProducer, Broker]]:
    """Run a producer of group "g", and a broker that got its heartbeat."""
    async with (
        scripted_cluster(store) as cluster,
        created(Client, cluster.address, rng=random.Random(1), namespace=namespace) as client,
        TransactionProducer(client, group="g", check=check, **options) as producer,
    ):
        server = cluster.brokers["broker-a"]
        with trio.fail_after(10):
            while not server.asked(RequestCode.HEART_BEAT):
                await trio.sleep(0.01)
        yield producer, Broker(server)


def always(state: Any) -> Callable[[ReceivedMessage], Awaitable[Any]]:
    async def check(_: ReceivedMessage) -> Any:
        return state

    return check
