"""Sends that threads wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context, copy_context

from rocketmq_py.crossing.call import ThreadCall
from rocketmq_py.crossing.sends import SendCall
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer import Producer
from rocketmq_py.producer.send_request import Destination


class AwaitedSend(SendCall, ThreadCall[SendResult]):
    """A call of a producer's ``send`` that a thread waits for.

    Args:
        thread, behind, message, queue, timeout: see SendCall.
    """

    def __init__(
        self,
        thread: TrioThread,
        behind: Producer,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
    ) -> None:
        # There is one for each message: what its bases do is done right here.
        self.context: Context = copy_context()
        self._turns = thread.turns
        self._done = threading.Lock()
        self._done.acquire()
        self.wake: Callable[[], None] = self._done.release
        self.thread: TrioThread = thread
        self.behind: Producer = behind
        self.message: Message = message
        self.queue: Destination | None = queue
        self.timeout: float | None = timeout
