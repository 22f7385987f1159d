"""The base class of consumers that call a handler in sessions: run, stop and close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import trio

from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.errors import ConfigurationError


class HandlerSession(Protocol):
    """One run of a consumer that calls a handler.

    Attributes:
        ended: set when :meth:`run` has returned.
    """

    ended: trio.Event

    async def run(self) -> None:
        """Consume until :meth:`stop` or until cancelled."""

    def stop(self) -> None:
        """Start no more handler calls, and let :meth:`run` return when the running ones have ended."""

    def abandon_threads(self) -> None:
        """Do not wait for handlers in threads when :meth:`run` is cancelled."""


_Session = TypeVar("_Session", bound=HandlerSession)


class BasePushConsumer(Lifespan, Generic[_Session]):
    """Runs one session at a time."""

    _session: _Session | None = None
    _is_stopped = False  # stop() was called before run()

    def stop(self) -> None:
        """Start no more handler calls, and let :meth:`run` return when the running ones have ended.

        They have half of ``close_timeout`` to end. Then they are cancelled, or abandoned if they run in
        threads. Handlers may call this method. If the consumer is not running, the next run ends at once,
        because it may be about to start in another task or thread.
        """
        if self._session is None:
            self._is_stopped = True
        else:
            self._session.stop()

    def abandon_threads(self) -> None:
        """Do not wait for handlers in threads when :meth:`run` is cancelled. Used by the threads API."""
        if self._session is not None:
            self._session.abandon_threads()

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
        try:
            await session.run()
        finally:
            self._session = None

    async def _close(self) -> None:
        session = self._session
        if session is not None:
            session.stop()
            await session.ended.wait()
        await super()._close()
