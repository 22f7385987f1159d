"""The base class of everything that the threads API opens, and its blocking methods.

They are declared from the async methods of the trio classes.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar, get_type_hints

from rocketmq_py.callables import check_methods
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.errors import ClosedError
from rocketmq_py.handoff import hosted as base
from rocketmq_py.handoff.forwarding import plain
from rocketmq_py.handoff.hosted import Target, TrioContext, without_iterator

_INTERRUPTED = re.compile(r"\b(When|If) cancelled")
P = ParamSpec("P")
R = TypeVar("R")
Result = TypeVar("Result")


class Hosted(base.Hosted[Target]):
    """Opens a trio object in the trio thread, and calls its methods there.

    It is open from its construction until :meth:`close`, the end of its ``with`` block, or the end of the
    process.

    Args: as for the base class.
    """

    _api = "rocketmq_py.blocking"

    def __init__(self, target: Target, parent: base.Hosted[Lifespan] | None = None) -> None:
        super().__init__(target, parent)
        try:
            self._thread.call(partial(self._thread.start_task, self._live))
        except BaseException:
            self._close_soon()  # it may be open although the wait was interrupted
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends_with_error = error is not None
        self.close()

    if not TYPE_CHECKING:  # type checkers report the missing methods

        async def __aenter__(self) -> NoReturn:
            self._close_soon()
            name = type(self).__name__
            raise TypeError(
                f"use 'with {name}(...)'; for 'async with' there is rocketmq_py.aio, or rocketmq_py on trio"
            )

        async def __aexit__(self, *_: object) -> NoReturn:
            raise AssertionError("it was never entered")

    def close(self) -> None:
        """Close it, after everything that was opened from it. Pending work may end, see ``close_timeout``.

        It may be called again. When interrupted, closing goes on in the background. If KeyboardInterrupt or
        SystemExit led here, an interruption is the second, and pending sends are given up at once. In a
        process that was forked from the one that opened it, it does nothing: the connections belong to the
        parent.
        """
        if not self._thread.is_usable:
            return
        if self._thread.is_current:  # a hook or a finalizer: the thread cannot wait for itself
            self._close_soon()
        else:
            is_second = isinstance(sys.exception(), KeyboardInterrupt | SystemExit)
            try:
                self._thread.call(self._end)
            except BaseException as error:
                if isinstance(error, ClosedError) and self._thread.is_process_ending:
                    return  # closed by the end of the process, while this thread was about to
                if is_second:
                    self._closing_interrupted()
                else:
                    self._close_soon()
                raise

    def _call(self, function: Callable[..., Awaitable[Result]], *args: Any, **kwargs: Any) -> Result:
        self._check_open()
        return self._thread.call(partial(function, *args, **kwargs))

    @contextmanager
    def _entered(self, manager: AbstractAsyncContextManager[Result]) -> Iterator[Result]:
        """Enter a context manager of the trio object, in a task of the trio thread, for the block."""
        context = TrioContext(self._thread, manager)
        try:
            try:
                yield self._call(context.enter)
            except BaseException as error:
                if context.is_entered:  # an interruption of entering may come at the last moment
                    self._thread.call(partial(context.leave, error))
                raise
            self._thread.call(partial(context.leave, None))
        except BaseException:
            context.abandon_soon()
            raise


def blocking(method: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that runs the method of a trio class in the trio thread and waits for its end."""
    name = method.__name__

    @written_for(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        positional = map(without_iterator, args)
        named = {key: without_iterator(value) for key, value in kwargs.items()}
        result: R = self._call(getattr(self._target, name), *positional, **named)
        return result

    return call


def adding_hook(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that adds a hook, as the method of a trio class. The trio thread calls the hook."""
    add = plain(method)

    @functools.wraps(method)
    def call(self: Any, /, hook: Any) -> R:
        check_methods(hook, "hook", get_type_hints(method)["hook"], awaited=False)
        untyped: Any = add
        added: R = untyped(self, hook)
        return added

    text = inspect.cleandoc(method.__doc__ or "")
    call.__doc__ = f"{text}\n\nThe trio thread calls its methods, which must be plain and not block."
    typed: Any = call
    declared: Callable[Concatenate[Any, P], R] = typed
    return declared


def written_for(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Decorate a method that is written by hand: it gets the signature and docstring of a trio class's.

    Its own docstring is the first line of that one, for editors, which do not run this.
    """

    def decorate(call: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        wrapped: Callable[Concatenate[Any, P], R] = functools.wraps(method)(call)
        wrapped.__doc__ = _INTERRUPTED.sub(r"\1 interrupted", method.__doc__ or "")
        return wrapped

    return decorate
