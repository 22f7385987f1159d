"""The base class of consumers that call a handler in sessions: run, stop and close."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

import trio

from rocketmq_py.client.lifespan import Lifespan, from_any_thread
from rocketmq_py.consumer.group.membership import LEAVE_SECONDS
from rocketmq_py.errors import ConfigurationError

running_session: Final[ContextVar[trio.Event | None]] = ContextVar("running_session", default=None)
"""The event ``ended`` of the session whose handler, hook or listener is running.

Tasks copy it, even those of connections, which outlive the session. So it does not refer to the session.
"""


class HandlerSession(Protocol):
    """One run of a consumer that calls a handler.

    Attributes:
        stopping: set by :meth:`stop`.
        ended: set when :meth:`run` has returned.
    """

    stopping: trio.Event
    ended: trio.Event

    async def run(self) -> None:
        """Consume until :meth:`stop` or until cancelled."""

    def stop(self) -> None:
        """Start no more handler calls, and let :meth:`run` return when the running ones have ended."""

    def cut_off(self) -> None:
        """Wait for the running handlers no longer, after :meth:`stop`."""


_Session = TypeVar("_Session", bound=HandlerSession)


class BasePushConsumer(Lifespan, Generic[_Session]):
    """Runs one session at a time."""

    _session: _Session | None = None
    _is_stopped = False  # stop() was called before run()

    @from_any_thread
    def stop(self) -> None:
        """Start no more handler calls, and let :meth:`run` return when the running ones have ended.

        They have ``close_timeout`` to end. Then they are cancelled, or abandoned if they run in threads, and
        their messages are logged and delivered again. A second call of this method does not wait for them any
        longer. Handlers may call it any number of times, and the consumer still waits for them. If the
        consumer is not running, the next run ends at once, because it may be about to start in another task
        or thread. It does nothing while the consumer closes, nor afterwards.
        """
        session = self._session
        if session is None:
            self._is_stopped = True
        elif not self.is_open:
            pass
        elif not session.stopping.is_set():
            session.stop()
        elif running_session.get() is not session.ended:
            session.cut_off()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self._stop_waiting()  # Ctrl-C
        await super().__aexit__(kind, error, traceback)

    @trio.lowlevel.enable_ki_protection
    async def aclose(self) -> None:
        """Stop as :meth:`stop` does, wait until the run has ended, then close. Repeatable.

        Waits up to ``close_timeout`` for running handlers. If the caller is cancelled before or meanwhile, or
        Ctrl-C comes, it does not wait for them. Commits and leaving the group follow in any case, within 3
        seconds. If another task is still opening it, cancels that, and the other task gets a ClosedError.
        """
        if trio.current_effective_deadline() == -math.inf:
            self._stop_waiting()
        await super().aclose()

    async def _finish_pending(self) -> bool:
        session = self._session
        if session is not None:
            session.stop()
            try:
                with trio.move_on_after(max(self._close_timeout - LEAVE_SECONDS, 0)):
                    await session.ended.wait()
            finally:
                session.cut_off()
                with trio.move_on_after(LEAVE_SECONDS, shield=True):
                    await session.ended.wait()
        return await super()._finish_pending()

    def _stop_waiting(self) -> None:
        """Stop, and do not wait for running handlers."""
        if self._session is not None:
            self._session.stop()
            self._session.cut_off()

    def _check_not_running(self) -> None:
        if self._session is not None:
            raise ConfigurationError(f"this {type(self).__name__} is running already")

    def _reasons_not_running(self) -> list[str]:
        """Return why no handler is called, for the consumer's health. Empty while it runs."""
        if self._session is None:
            return [f"this {type(self).__name__} is not running: run() has not been called, or has returned"]
        return []

    async def _run_session(self, make_session: Callable[[], _Session]) -> None:
        """Run a new session, unless :meth:`stop` was called before."""
        if self._is_stopped:
            self._is_stopped = False
            await trio.lowlevel.checkpoint()
            return
        session = self._session = make_session()
        token = running_session.set(session.ended)
        try:
            await session.run()
        finally:
            running_session.reset(token)
            self._session = None
