"""Sends that tasks of asyncio loops await."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from rocketmq_py.crossing.bridge import Bridge, LoopCall
from rocketmq_py.crossing.call import Rest
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer import Producer
from rocketmq_py.producer.begun import Begun
from rocketmq_py.producer.send_request import Destination, Stored, send_result


def _begin(call: Any) -> Rest[SendResult] | None:
    send: AwaitedSend = call
    begun = send.behind.begin(send.message, send.tried, send.queue, send.timeout)
    if begun is None:
        return partial(send.behind.send, send.message, queue=send.queue, timeout=send.timeout)
    if not begun.is_under_way:
        return begun.rest
    send.begun = begun
    send.withdraw = begun.cancel
    return None


class AwaitedSend(LoopCall[SendResult]):
    """A call of a producer's ``send``, without a task of trio's for as long as only a broker is waited for.

    As with BeginSend, which it needs no object of beside itself: most calls of most programs are these.

    Args:
        bridge: the way to the loop of the task that awaits it.
        behind: the producer.
        message, queue, timeout: what its ``send`` is given.

    Attributes:
        behind, message, queue, timeout: see above.
        begun: its first try; None when that is over.
    """

    begun: Begun | None = None
    withdraw: Callable[[], object] | None = None
    _begin = staticmethod(_begin)

    def __init__(
        self,
        bridge: Bridge,
        behind: Producer,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
    ) -> None:
        # There is one for each message: what its bases do is done right here.
        self.context: Context = copy_context()
        self._bridge = bridge
        self._loop = bridge.loop
        self.behind = behind
        self.message = message
        self.queue = queue
        self.timeout = timeout

    def tried(self, stored: Stored | SendResult | None) -> None:
        """Take what became of the first try; None if more has to be waited for."""
        begun, self.begun = self.begun, None  # it refers to this
        assert begun is not None
        if stored is None:
            self._bridge.thread.go_on(self, begun.rest)
        else:
            self.withdraw = None
            self._result = send_result(stored)
            self._bridge.deliver(self._finish)
