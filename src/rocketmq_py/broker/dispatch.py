"""Dispatch of requests to their handlers, by request code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection

logger: Final = LibraryLogger("rocketmq_py.broker")

RequestHandler: TypeAlias = Callable[[Connection, Command], None]
"""Answers a request with ``connection.respond()``, now or later, or raises Refusal or ProtocolError."""

_SHORT_NAMES = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)
"""Requests whose fields are named a, b, c and so on."""
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""Java's servers append this to some remarks."""
UNSET_REMARK = "not set any response code"
"""The remark of Java's broker if an answer was created without a code. Some successes have it."""


class Refusal(Exception):  # noqa: N818 - it is an answer, not an error of the broker
    """Raised by a handler to answer its request with an error.

    Args:
        code: the response code.
        remark: the reason, for humans.
        fields: the answer's ext fields.
    """

    def __init__(self, code: int, remark: str | None, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark
        self.fields = fields


class Dispatcher:
    """Calls the handler of each request of a server.

    Args:
        check: called before each handler. It raises Refusal for a request that is not permitted. None
            permits all requests.
    """

    def __init__(self, check: Callable[[Command], None] | None = None) -> None:
        self._check = check
        self._handlers: dict[int, RequestHandler] = {}

    def add(self, handlers: Mapping[int, RequestHandler]) -> None:
        """Add handlers by request code."""
        assert not self._handlers.keys() & handlers.keys(), "each code has one handler"
        self._handlers.update(handlers)

    def __call__(self, connection: Connection, request: Command) -> None:
        """Answer a request. The connection calls this for each request. Never raises."""
        handler = self._handlers.get(request.code, _refuse) if self._check is None else self._handle_checked
        answer_with(handler, connection, request)

    def _handle_checked(self, connection: Connection, request: Command) -> None:
        assert self._check is not None
        self._check(request)
        self._handlers.get(request.code, _refuse)(connection, request)


def answer_with(handler: RequestHandler, connection: Connection, request: Command) -> None:
    """Call a handler. If it raises, answer the request with the error. Never raises."""
    try:
        handler(connection, request)
    except Refusal as refusal:
        connection.respond(request, refusal.code, refusal.fields, remark=refusal.remark)
    except (ProtocolError, InvalidMessageError) as error:
        connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
    except Exception as error:  # a bad request must not end the task that serves the connection
        logger.exception("request failed client=%s code=%d", connection.address, request.code)
        connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _refuse(_: Connection, request: Command) -> None:
    raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")


def topic_of(code: int, fields: Mapping[str, str]) -> str | None:
    """Return the topic in a request's fields, or None if it has none."""
    return fields.get("b" if code in _SHORT_NAMES else "topic")
