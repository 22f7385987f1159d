"""User code that runs around every request of a client. Java: ``RPCHook``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import attrs
import trio

from rocketmq_py.callables import check_methods
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting.nurseries import is_failure

logger: Final = LibraryLogger("rocketmq_py.remoting")

Context = TypeVar("Context")


@attrs.define(kw_only=True, eq=False)
class RpcContext:
    """A request to a name server or broker, for hooks.

    Attributes:
        address: the address of the name server or broker.
        code: a RequestCode.
        fields: the header's fields. ``before_request`` may change them. They are signed afterwards.
        body: the body.
        oneway: whether the request has no answer.
        answer: in ``after_answer``, the answer, or None for oneway requests and after an error.
        error: in ``after_answer``, the error if there is no answer.
    """

    address: str
    code: int
    fields: dict[str, str]
    body: bytes = attrs.field(repr=False)
    oneway: bool = False
    answer: Command | None = None
    error: BaseException | None = None


class RpcHook:
    """Base class of hooks around requests. Override methods as plain or ``async`` ones.

    An exception of a hook is logged and otherwise ignored.
    """

    def before_request(self, context: RpcContext) -> Awaitable[None] | None:
        """Called before a request is sent. May change ``context.fields``."""
        return None

    def after_answer(self, context: RpcContext) -> Awaitable[None] | None:
        """Called after the answer or the error, before the caller gets it."""
        return None


class RpcHooks:
    """The hooks of one client.

    Attributes:
        all: the hooks in the order in which they were added.
        nursery: runs hooks in the background. Must be set before the first request.
    """

    def __init__(self) -> None:
        self.nursery: trio.Nursery | None = None
        self.all: list[RpcHook] = []

    def add(self, hook: RpcHook) -> Callable[[], None]:
        """Add a hook. Returns a function that removes it.

        Raises ConfigurationError if it lacks a method of RpcHook, or one does not accept its context.
        """
        check_methods(hook, "hook", RpcHook)
        self.all.append(hook)
        return lambda: self.all.remove(hook)

    async def before(self, context: RpcContext) -> None:
        """Call ``before_request`` of all hooks."""
        for hook in tuple(self.all):
            await call_hook(hook.before_request, context, logger, "request")

    async def after(
        self, context: RpcContext, answer: Command | None = None, error: BaseException | None = None
    ) -> None:
        """Call ``after_answer`` of all hooks."""
        context.answer, context.error = answer, error
        for hook in tuple(self.all):
            await call_hook(hook.after_answer, context, logger, "request")

    def after_soon(
        self,
        context: RpcContext,
        on_answer: Callable[[Command | RocketMQError], None],
        answer: Command | RocketMQError,
    ) -> None:
        """Call ``after_answer`` of all hooks in the background, then ``on_answer(answer)``."""
        assert self.nursery is not None
        self.nursery.start_soon(self._after_then_answer, context, on_answer, answer)

    async def _after_then_answer(
        self,
        context: RpcContext,
        on_answer: Callable[[Command | RocketMQError], None],
        answer: Command | RocketMQError,
    ) -> None:
        if isinstance(answer, Command):
            await self.after(context, answer)
        else:
            await self.after(context, error=answer)
        on_answer(answer)


async def call_hook(
    method: Callable[[Context], Awaitable[None] | None], context: Context, log: LibraryLogger, what: str
) -> None:
    """Call a plain or async method of a hook, and log its failure, see :func:`is_failure`.

    Args:
        method: the method.
        context: its argument.
        log: the logger.
        what: the thing that goes on after an exception, for the log: "request", "send", …
    """
    try:
        outcome = method(context)
        if outcome is not None:
            await outcome
    except BaseException as error:
        if not is_failure(error):
            raise
        log.exception("hook failed method=%s; the %s continues", method.__qualname__, what)
