"""A scripted broker for lite topics."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import LiteSubscription, LiteSubscriptions
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.consumer.received import stored
from tests.scripted import ScriptedCluster, scripted_cluster

POP_TIME = 1_700_000_000_000
NUMBERS = {"popTime": str(POP_TIME), "invisibleTime": "60000", "reviveQid": "999"}


@attrs.define(eq=False)
class LiteBroker:
    """Answers pops with the messages that a test puts into it, and records all requests.

    Attributes:
        subscriptions: the changes of subscriptions, in order.
        log: the names of the requests except heartbeats.
        requests: the requests except heartbeats.
        counts: the order count info of answers to pops.
        refused: the answers to codes of requests that it refuses.
        is_silent: whether changes of subscriptions get no answer.
        ignored: the codes of other requests that get no answer.
    """

    subscriptions: list[LiteSubscription] = attrs.field(factory=list)
    log: list[str] = attrs.field(factory=list)
    requests: list[Command] = attrs.field(factory=list)
    counts: str | None = None
    refused: dict[int, int] = attrs.field(factory=dict)
    is_silent: bool = False
    ignored: set[int] = attrs.field(factory=set)
    _messages: deque[bytes] = attrs.field(factory=deque)
    _unanswered: list[tuple[Connection, Command]] = attrs.field(factory=list)

    @property
    def changes(self) -> list[tuple[str, list[str]]]:
        """The actions and lite topics of the changes of subscriptions."""
        return [(str(one.action), list(one.lite_topic_set)) for one in self.subscriptions]

    def put(self, *messages: bytes) -> None:
        """Answer the next pop with messages."""
        self._messages += messages

    def answer_late(self) -> None:
        """Answer the requests that got no answer, and all that follow."""
        self.is_silent = False
        self.ignored.clear()
        for connection, request in self._unanswered:
            connection.respond(request, ResponseCode.SUCCESS, NUMBERS)

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code == RequestCode.HEART_BEAT:
            connection.respond(request, ResponseCode.SUCCESS)
            return
        self.log.append(RequestCode(request.code).name)
        self.requests.append(request)
        if request.code == RequestCode.LITE_SUBSCRIPTION_CTL:
            self.subscriptions += LiteSubscriptions.decode(request.body).subscription_set
            if self.is_silent:
                self._unanswered.append((connection, request))
                return
        if request.code in self.ignored:
            self._unanswered.append((connection, request))
            return
        if request.code in self.refused:
            connection.respond(request, self.refused[request.code], remark="scripted")
        elif request.code == RequestCode.POP_LITE_MESSAGE:
            fields = NUMBERS if self.counts is None else {**NUMBERS, "orderCountInfo": self.counts}
            code = ResponseCode.SUCCESS if self._messages else ResponseCode.POLLING_TIMEOUT
            body = b"".join(self._messages)
            self._messages.clear()
            connection.respond(request, code, fields, body)
        else:
            connection.respond(request, ResponseCode.SUCCESS, NUMBERS)


@asynccontextmanager
async def lite_brokers(count: int = 1) -> AsyncIterator[tuple[ScriptedCluster, list[LiteBroker]]]:
    """Run ``count`` brokers with the parent topic T."""
    brokers = [LiteBroker() for _ in range(count)]
    async with scripted_cluster(*brokers, topics=["T"]) as cluster:
        yield cluster, brokers


def lite_message(offset: int, lite_topic: str = "s1", **properties: str) -> bytes:
    place: dict[str, Any] = {"__LITE_TOPIC": lite_topic, "INNER_MULTI_QUEUE_OFFSET": str(offset)}
    return stored(offset, body=b"%d" % offset, **{**place, **properties})
