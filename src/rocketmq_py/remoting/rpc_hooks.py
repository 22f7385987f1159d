"""Hooks around every request of a client: a user's own code. Java: ``RPCHook``."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import attrs
import trio

from rocketmq_py.callables import check_methods
from rocketmq_py.errors import RocketMQError
from rocketmq_py.protocol.command import Command

logger: Final = logging.getLogger("rocketmq_py.remoting")

Context = TypeVar("Context")


@attrs.define(kw_only=True, eq=False)
class RpcContext:
    """A request to a name server or broker, as hooks see it.

    Attributes:
        address: whom it goes to.
        code: a RequestCode.
        fields: the header's fields; ``before_request`` may change them. They are signed afterwards.
        body: the body.
        oneway: whether no answer is wanted.
        answer: in ``after_answer``, what came back; None for oneway requests and after an error.
        error: in ``after_answer``, why no answer came.
    """

    address: str
    code: int
    fields: dict[str, str]
    body: bytes = attrs.field(repr=False)
    oneway: bool = False
    answer: Command | None = None
    error: BaseException | None = None


class RpcHook:
    """Code around requests: override what is needed, as a plain or an ``async`` method.

    An exception of a hook is logged and changes nothing. Without hooks, requests cost nothing more.
    """

    def before_request(self, context: RpcContext) -> Awaitable[None] | None:
        """Look at what is about to be sent, or change ``context.fields``."""
        return None

    def after_answer(self, context: RpcContext) -> Awaitable[None] | None:
        """Look at what came back, before whoever asked does."""
        return None


class RpcHooks:
    """The hooks of one client.

    Attributes:
        all: in the order in which they were added.
        nursery: where hooks run for which nobody waits; to be set before there are requests.
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
        """Call ``before_request`` of all."""
        for hook in tuple(self.all):
            await call_hook(hook.before_request, context, logger, "request")

    async def after(
        self, context: RpcContext, answer: Command | None = None, error: BaseException | None = None
    ) -> None:
        """Call ``after_answer`` of all."""
        context.answer, context.error = answer, error
        for hook in tuple(self.all):
            await call_hook(hook.after_answer, context, logger, "request")

    def after_soon(
        self,
        context: RpcContext,
        on_answer: Callable[[Command | RocketMQError], None],
        answer: Command | RocketMQError,
    ) -> None:
        """Call ``after_answer`` of all in the background, then ``on_answer(answer)``."""
        assert self.nursery is not None
        self.nursery.start_soon(self._after_and_tell, context, on_answer, answer)

    async def _after_and_tell(
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
    method: Callable[[Context], Awaitable[None] | None], context: Context, log: logging.Logger, what: str
) -> None:
    """Call a method of a hook, plain or async; what it raises is logged. ``what`` is what it is about."""
    try:
        outcome = method(context)
        if outcome is not None:
            await outcome
    except Exception:
        log.exception("a hook raised in %s; the %s goes its way all the same", method.__qualname__, what)
