"""What the doors of all producers have in common: messages are handed over, in order."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import trio

from rocketmq_py.crossing.door import Behind, Door
from rocketmq_py.crossing.hand_over import HandOver

LEAVE_SECONDS = 1.0
"""What a producer has for taking leave of brokers when time is up for what it sends."""

Handing = TypeVar("Handing", bound=HandOver[Any])


class Sends(Door[Behind], Generic[Behind, Handing]):
    """A door through which messages are handed over."""

    _new_hand_over: ClassVar[Callable[..., Any]]
    _hand_over: Handing

    def _prepare(self) -> None:
        behind: Any = self._behind
        most, most_bytes = self._limits()
        self._hand_over = type(self)._new_hand_over(
            self._thread,
            behind.send_soon,
            name_servers=self._name_servers,
            most=most,
            most_bytes=most_bytes,
        )

    @abstractmethod
    def _limits(self) -> tuple[int, int]:
        """Return how many messages, and how many bytes of them, may be under way."""

    def _name_servers(self) -> str:
        client = self._client
        return "" if client is None else client.name_servers.addresses

    # In the thread that runs trio

    def _register(self) -> None:
        super()._register()
        self._behind.nursery.start_soon(self._hand_over.run)

    def _forget(self) -> None:
        super()._forget()
        self._hand_over.abandon()

    async def _finish(self, deadline: float) -> float:
        # At the end of a process, what is pending has all the time that there is; else close_timeout.
        if deadline == math.inf:
            deadline = trio.current_time() + self._behind.close_timeout + LEAVE_SECONDS
        self._hand_over.close()
        with trio.move_on_at(deadline - LEAVE_SECONDS):
            await self._flush()
        self._hand_over.stop()  # what still waits for a route, say, shall not hold up the closing
        return deadline

    async def _flush(self) -> None:
        """Wait until all that was handed over until now has its outcome."""
        behind: Any = self._behind
        await self._hand_over.all_given()
        await behind.flush()
        await self._hand_over.all_left()
