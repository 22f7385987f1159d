"""What all blocking objects have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.handoff import hosted as base
from rocketmq_py.handoff.hosted import Target

Result = TypeVar("Result")


class Hosted(base.Hosted[Target]):
    """Opens a trio object in the thread that runs trio, and calls it there.

    It is open from the beginning until :meth:`close`, the end of its ``with``, or the end of the process.

    Args:
        target: the object.
        parent: what it is opened from; closing that closes this first.
    """

    def __init__(self, target: Target, parent: base.Hosted[Lifespan] | None = None) -> None:
        super().__init__(target, parent)
        try:
            self._thread.call(partial(self._thread.start_task, self._live))
        except BaseException:
            self.close_soon()  # it may be open although the waiting was interrupted
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends_with_error = error is not None
        self.close()

    if not TYPE_CHECKING:  # type checkers say it before

        async def __aenter__(self) -> NoReturn:
            self.close_soon()
            name = type(self).__name__
            raise TypeError(
                f"use 'with {name}(...)'; for 'async with' there is rocketmq_py.aio, or rocketmq_py on trio"
            )

        async def __aexit__(self, *_: object) -> NoReturn:
            raise AssertionError("it was never entered")

    def close(self) -> None:
        """Close it, after all that was opened from it: finish what is under way, within its close_timeout.

        Repeatable. When interrupted, it is closed in the background. In a process that was forked from the
        one where it was opened, nothing happens: it is the parent's.
        """
        if not self._thread.is_usable:
            return
        if self._thread.is_current:
            self.close_soon()
        else:
            try:
                self._thread.call(self.end)
            except BaseException:
                self.close_soon()
                raise

    def _call(self, function: Callable[..., Awaitable[Result]], *args: Any, **kwargs: Any) -> Result:
        self._check_open()
        return self._thread.call(partial(function, *args, **kwargs))


def shared_client(client: object) -> tuple[str | Client | None, base.Hosted[Lifespan] | None]:
    """Return what a trio object is made with where its door was given this, and what it is opened from.

    Raises ConfigurationError unless it is an address, None, or a blocking Client.
    """
    return base.shared_client(client, Hosted, "rocketmq_py.blocking")
