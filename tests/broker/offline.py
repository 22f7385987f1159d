"""A broker without sockets, and clients that pass requests to it directly."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import count
from typing import cast

import attrs
import trio

from rocketmq_py.broker.broker import Broker
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Dispatcher
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConnectionLostError, Delivery, RocketMQError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol.command import RESPONSE_FLAG, Command
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection

BROKER_ADDRESS = "127.0.0.1:10911"
START_MS = 1_700_000_000_000
"""The broker's time when the trio clock of a test is 0, epoch milliseconds."""


@attrs.frozen
class Answer:
    """An answer of the broker."""

    opaque: int
    code: int
    fields: Mapping[str, str]
    body: bytes
    remark: str | None

    @property
    def messages(self) -> list[ReceivedMessage]:
        return decode_messages(self.body, "broker-a")


@attrs.frozen
class ClientRequest:
    """A request of the broker to a client."""

    code: int
    fields: Mapping[str, str]
    body: bytes
    deadline: float
    on_answer: Callable[[Command | RocketMQError], None]

    def answer(self, code: int = ResponseCode.SUCCESS) -> None:
        self.on_answer(Command(code, 0, RESPONSE_FLAG))


class OfflineBroker:
    """A broker and a name server. Their time is START_MS plus the time of trio's clock."""

    def __init__(self, config: BrokerConfig) -> None:
        self.name_server = NameServer()
        self.name_server_dispatch = Dispatcher()
        self.name_server_dispatch.add(self.name_server.handlers())
        self.reachable_name_servers = [self.name_server]
        self.broker = Broker(
            config,
            lambda: self.reachable_name_servers,
            lambda: START_MS + int(trio.current_time() * 1000),
            random.Random(1),
        )
        self.broker.open(BROKER_ADDRESS)
        self._ports = count(50_001)

    def connect(self) -> OfflineClient:
        """Create a client."""
        return OfflineClient(self, f"127.0.0.1:{next(self._ports)}")


class OfflineClient:
    """Takes the place of the broker's Connection, and collects answers, notices and requests."""

    def __init__(self, to: OfflineBroker, address: str) -> None:
        self._to = to
        self._opaques = count(1)
        self.address = address
        self.peer_address = address
        self.is_closed = False
        self.answers: list[Answer] = []
        self.notices: list[tuple[int, dict[str, str]]] = []
        self.notice_bodies: list[bytes] = []
        self.requests: list[ClientRequest] = []
        self.has_space = True

    # Methods that the broker calls

    def respond(
        self,
        request: Command,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        self.answers.append(Answer(request.opaque, code, fields or {}, body, remark))

    def oneway_nowait(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        self.notices.append((code, dict(fields)))
        self.notice_bodies.append(body)

    def submit(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        deadline: float,
        timeout: float,
        on_answer: Callable[[Command | RocketMQError], None],
    ) -> None:
        if self.is_closed:
            raise ConnectionLostError(self.address, "closed", Delivery.NOT_SENT)
        self.requests.append(ClientRequest(code, fields, body, deadline, on_answer))

    def close(self, reason: str = "") -> None:
        self.is_closed = True
        self._to.broker.drop_connection(cast(Connection, self))

    # Methods that tests call

    def send_request(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        version: int = 513,
        language: int = 0,
    ) -> int:
        """Send a request, which may be answered later. Returns its opaque."""
        opaque = next(self._opaques)
        request = Command(code, opaque, 0, dict(fields), body, language=language, version=version)
        self._to.broker.dispatch(cast(Connection, self), request)
        return opaque

    def ask(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        version: int = 513,
        language: int = 0,
    ) -> Answer:
        """Send a request that is answered at once. Returns the answer."""
        before = len(self.answers)
        self.send_request(code, fields, body, version=version, language=language)
        (answer,) = self.answers[before:]
        return answer

    def ask_name_server(
        self, code: int, fields: Mapping[str, str], *, version: int = 513, body: bytes = b""
    ) -> Answer:
        """Send a request to the name server. Returns the answer."""
        request = Command(code, next(self._opaques), 0, dict(fields), body, language=0, version=version)
        self._to.name_server_dispatch(cast(Connection, self), request)
        return self.answers.pop()

    def send(self, topic: str, body: bytes = b"hello", *, queue_id: int = 0, **changes: str) -> Answer:
        """Send a message. ``changes`` with one-letter names are header fields; others are properties."""
        header = {
            "a": "producers", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
            "g": "1690000000000", "h": "0", "j": "0", "k": "false",
        }  # fmt: skip
        properties = {"UNIQ_KEY": "7F00000100002A139A55000000000001"}
        for name, value in changes.items():
            (header if len(name) == 1 else properties)[name] = value
        header.setdefault("i", "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]))
        return self.ask(RequestCode.SEND_MESSAGE_V2, header, body)

    def pull_fields(self, topic: str, offset: int, /, **changes: str) -> dict[str, str]:
        return {
            "consumerGroup": "readers", "topic": topic, "queueId": "0", "queueOffset": str(offset),
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "15000",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG", **changes,
        }  # fmt: skip

    def pull(self, topic: str, offset: int = 0, /, **changes: str) -> Answer:
        """Send a pull that is answered at once. Returns the answer."""
        return self.ask(RequestCode.PULL_MESSAGE, self.pull_fields(topic, offset, **changes))

    def hold_pull(self, topic: str, offset: int = 0, /, **changes: str) -> int:
        """Send a pull that is held while there is no message. Returns its opaque."""
        return self.send_request(
            RequestCode.PULL_MESSAGE, self.pull_fields(topic, offset, **{"sysFlag": "6", **changes})
        )
