"""Sends that tasks of asyncio loops await."""

from __future__ import annotations

from contextvars import Context, copy_context

from rocketmq_py.crossing.bridge import Bridge, LoopCall
from rocketmq_py.crossing.sends import SendCall
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer import Producer
from rocketmq_py.producer.send_request import Destination


class AwaitedSend(SendCall, LoopCall[SendResult]):
    """A call of a producer's ``send`` that a task awaits.

    Args:
        bridge: the way to the loop of the task.
        behind, message, queue, timeout: see SendCall.
    """

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
        self.thread: TrioThread = bridge.thread
        self.behind: Producer = behind
        self.message: Message = message
        self.queue: Destination | None = queue
        self.timeout: float | None = timeout
