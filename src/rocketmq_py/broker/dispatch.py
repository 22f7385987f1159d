"""From a request's code to the function that answers it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection

logger: Final = logging.getLogger("rocketmq_py.broker")

RequestHandler: TypeAlias = Callable[[Connection, Command], None]
"""Answers a request with ``connection.respond()``, at once or later, or raises Refusal or ProtocolError."""

_SHORT_NAMES = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
"""Requests whose fields are called a, b, c."""
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""What Java's servers append to some of their remarks."""
UNSET_REMARK = "not set any response code"
"""The remark of Java's answers that were made without one; some of them are successes."""


class Refusal(Exception):  # noqa: N818 - no error of the broker: a request is answered with it
    """Ends the handling of a request: it is answered with this code and remark.

    Args:
        code: a ResponseCode.
        remark: why, for people.
        fields: the answer's ext fields.
    """

    def __init__(self, code: int, remark: str | None, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark
        self.fields = fields


class Dispatch:
    """The table of handlers of one server.

    A feature is one more module with a mapping of codes to handlers, given to :meth:`add`.

    Args:
        check: raises Refusal for a request that is not to be handled; None lets all of them in.
    """

    def __init__(self, check: Callable[[Command], None] | None = None) -> None:
        self._check = check
        self._handlers: dict[int, RequestHandler] = {}

    def add(self, handlers: Mapping[int, RequestHandler]) -> None:
        """Let ``handlers`` answer the requests of their codes."""
        assert not self._handlers.keys() & handlers.keys(), "each code has one handler"
        self._handlers.update(handlers)

    def __call__(self, connection: Connection, request: Command) -> None:
        """Have a request answered: what ``serve`` calls for each. Never raises."""
        handle = self._handlers.get(request.code, _refuse) if self._check is None else self._checked
        answer_with(handle, connection, request)

    def _checked(self, connection: Connection, request: Command) -> None:
        assert self._check is not None
        self._check(request)
        self._handlers.get(request.code, _refuse)(connection, request)


def answer_with(handler: RequestHandler, connection: Connection, request: Command) -> None:
    """Have ``handler`` answer a request, and answer it with what went wrong if it does not. Never raises."""
    try:
        handler(connection, request)
    except Refusal as refusal:
        connection.respond(request, refusal.code, refusal.fields, remark=refusal.remark)
    except (ProtocolError, InvalidMessageError) as error:
        connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
    except Exception as error:  # one bad request must not end what serves all the others
        logger.exception("%s: request %d failed", connection.address, request.code)
        connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _refuse(_: Connection, request: Command) -> None:
    raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")


def topic_of(code: int, fields: Mapping[str, str]) -> str | None:
    """Return the topic that a request is about."""
    return fields.get("b" if code in _SHORT_NAMES else "topic")
