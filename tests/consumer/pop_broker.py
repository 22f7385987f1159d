"""A scripted broker for pops."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import BatchAcks
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.consumer.received import stored
from tests.scripted import ScriptedCluster, scripted_cluster

POP_TIME = 1_700_000_000_000
EARLY_MS = 50
"""Milliseconds before the end of its poll time at which an empty pop is answered, as real brokers do."""


@attrs.define(eq=False)
class PopBroker:
    """Answers pops with the messages that a test puts into it, and holds pops while there are none.

    Attributes:
        nursery: runs the held pops.
        code: the code of all answers to pops, unless it is 0.
        fields: the fields of answers that state the messages' origin.
        log: the names of the requests except heartbeats.
        pops: the fields of the pops.
        acked: the acknowledged receipt handles and batches.
        refused: codes of requests that it refuses.
        refusal: the code of these answers.
        delays: seconds before requests of a code are answered.
        answered: the number of changes of invisible times that were answered.
    """

    nursery: trio.Nursery
    code: int = 0
    fields: Mapping[str, str] = attrs.field(factory=lambda: {"startOffsetInfo": "0 0 0"})
    log: list[str] = attrs.field(factory=list)
    pops: list[Mapping[str, str]] = attrs.field(factory=list)
    acked: list[str | BatchAcks] = attrs.field(factory=list)
    refused: set[int] = attrs.field(factory=set)
    refusal: int = ResponseCode.SYSTEM_ERROR
    delays: Mapping[int, float] = attrs.field(factory=dict)
    answered: int = 0
    _messages: deque[bytes] = attrs.field(factory=deque)
    _held: list[tuple[Connection, Command]] = attrs.field(factory=list)

    def put(self, *messages: bytes) -> None:
        """Answer a held pop, or the next one, with messages."""
        self._messages += messages
        if self._held:
            self._answer(*self._held.pop(0))

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code == RequestCode.HEART_BEAT:
            connection.respond(request, ResponseCode.SUCCESS)
            return
        self.log.append(RequestCode(request.code).name)
        if request.code in self.refused:
            connection.respond(request, self.refusal, remark="scripted")
        elif request.code == RequestCode.POP_MESSAGE:
            self._pop(connection, request)
        else:
            if request.code == RequestCode.ACK_MESSAGE:
                self.acked.append(request.fields["extraInfo"])
            elif request.code == RequestCode.BATCH_ACK_MESSAGE:
                self.acked.append(BatchAcks.decode(request.body))
            delay = self.delays.get(request.code, 0.0)
            if delay:
                self.nursery.start_soon(self._succeed_later, connection, request, delay)
            else:
                self._succeed(connection, request)

    async def _succeed_later(self, connection: Connection, request: Command, delay: float) -> None:
        await trio.sleep(delay)
        self._succeed(connection, request)

    def _succeed(self, connection: Connection, request: Command) -> None:
        self.answered += request.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        connection.respond(request, ResponseCode.SUCCESS, self._numbers())

    def _pop(self, connection: Connection, request: Command) -> None:
        self.pops.append(request.fields)
        if self.code:
            connection.respond(request, self.code, self._numbers(), remark="scripted")
        elif self._messages:
            self._answer(connection, request)
        elif int(request.fields["pollTime"]) <= EARLY_MS:
            connection.respond(request, ResponseCode.POLLING_TIMEOUT, self._numbers())
        else:
            self._held.append((connection, request))
            self.nursery.start_soon(self._expire, connection, request)

    async def _expire(self, connection: Connection, request: Command) -> None:
        await trio.sleep(max(0, int(request.fields["pollTime"]) - EARLY_MS) / 1000)
        if (connection, request) in self._held:
            self._held.remove((connection, request))
            connection.respond(request, ResponseCode.POLLING_TIMEOUT, self._numbers())

    def _answer(self, connection: Connection, request: Command) -> None:
        count = min(int(request.fields["maxMsgNums"]), len(self._messages))
        body = b"".join([self._messages.popleft() for _ in range(count)])
        connection.respond(request, ResponseCode.SUCCESS, {**self._numbers(), **self.fields}, body)

    def _numbers(self) -> dict[str, str]:
        return {"popTime": str(POP_TIME), "invisibleTime": "60000", "reviveQid": "3", "restNum": "0"}


@asynccontextmanager
async def pop_brokers(count: int = 1) -> AsyncIterator[tuple[ScriptedCluster, list[PopBroker]]]:
    """Run ``count`` brokers with the topics T and U."""
    async with trio.open_nursery() as nursery:
        brokers = [PopBroker(nursery) for _ in range(count)]
        async with scripted_cluster(*brokers, topics=["T", "U"]) as cluster:
            yield cluster, brokers
        nursery.cancel_scope.cancel()


def message(offset: int, reconsume_times: int = 0, **properties: str) -> bytes:
    return stored(offset, body=b"%d" % offset, reconsume_times=reconsume_times, **properties)
