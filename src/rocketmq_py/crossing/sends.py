"""What the doors of all producers have in common: messages are handed over, in order."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import trio

from rocketmq_py.crossing.call import Call, Rest
from rocketmq_py.crossing.door import Behind, Door
from rocketmq_py.crossing.hand_over import BeginSoon, HandOver
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.errors import ClosedError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer import PendingSend, Producer
from rocketmq_py.producer.begun import Begun
from rocketmq_py.producer.pending import Outstanding
from rocketmq_py.producer.send_request import Destination, Stored, send_result

LEAVE_SECONDS = 1.0
"""What a producer has for unregistering from brokers when time is up for what it sends."""

Handing = TypeVar("Handing", bound=HandOver[Any])


class SendCall(Begun, Call[SendResult]):
    """A call of a producer's ``send``, without a task of trio's for as long as only a broker is waited for.

    It has no object beside itself: most calls of most programs are these. Each door's says what waits for it.

    Attributes:
        thread: where the producer lives.
        behind: the producer.
        message, queue, timeout: what its ``send`` is given.
    """

    may_begin_outside = True
    withdraw: Callable[[], object] | None
    thread: TrioThread
    behind: Producer
    message: Message
    queue: Destination | None
    timeout: float | None

    @staticmethod
    def _begin(call: Any) -> Rest[SendResult] | None:
        send: SendCall = call
        if not send.behind.begin(send, send.message, send.queue, send.timeout):
            return partial(send.behind.send, send.message, queue=send.queue, timeout=send.timeout)
        if not send.is_under_way:
            return send.rest
        send.withdraw = send.give_up
        return None

    def begin_outside(self) -> bool:
        """Begin it in the thread that makes it, while trio's waits; False if that cannot be."""
        self.withdraw = self.give_up  # however far it comes, if a signal's handler raises meanwhile
        try:
            if self.behind.begin_outside(self, self.message, self.queue, self.timeout):
                self.has_begun = True
                return True
        except Exception:  # noqa: BLE001, S110  # it comes again in trio's thread, and is told
            pass
        self.withdraw = None
        return False

    def tried(self, stored: Stored | SendResult | None) -> None:
        """Take what became of the first try; None if more has to be waited for."""
        if stored is None:
            self.thread.go_on(self, self.rest)
        else:  # as end_with does
            self.withdraw = None
            self._result = send_result(stored)
            self._end()


class Sends(Door[Behind], Generic[Behind, Handing]):
    """A door through which messages are handed over."""

    _new_hand_over: ClassVar[Callable[..., Any]]
    _hand_over: Handing

    def _prepare(self) -> None:
        most, most_bytes = self._limits()
        self._hand_over = type(self)._new_hand_over(
            self._thread,
            self._new_bunch,
            name_servers=self._name_servers,
            most=most,
            most_bytes=most_bytes,
        )

    def _new_bunch(self) -> BeginSoon:
        """Return what gives the object each of some messages that have come together."""
        behind: Any = self._behind
        if isinstance(behind, Producer):
            return partial(behind.begin_soon, behind.client.now_ms(), trio.current_time())

        def begin(
            send: Outstanding, message: Message, queue: Destination | None, _: float | None
        ) -> Coroutine[Any, Any, object]:
            on_done = partial(_pass_on, send)
            waiting: Coroutine[Any, Any, object] = behind.send_soon(message, queue=queue, on_done=on_done)
            return waiting

        return begin

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
        # Two may close it at once, as when closing it was cancelled and then its client is closed: the other
        # may have come further.
        with trio.move_on_at(deadline - LEAVE_SECONDS), suppress(ClosedError):
            await self._flush()
        self._hand_over.stop()  # what still waits for a route, say, shall not hold up the closing
        return deadline

    async def _flush(self) -> None:
        """Wait until all that was handed over until now has its outcome."""
        behind: Any = self._behind
        await self._hand_over.all_given()
        await behind.flush()


def _pass_on(send: Outstanding, done: PendingSend) -> None:
    """Tell a send what it came to; its result is made when somebody asks for it."""
    if done.error is None:
        send.settle(done)
    else:
        send.resolve(done.error, None)
