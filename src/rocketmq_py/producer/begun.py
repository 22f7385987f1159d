"""Sends that are begun in one plain call, for those who wait for them elsewhere than in a task of trio's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import SendResult
from rocketmq_py.producer.batch import BatchResults
from rocketmq_py.producer.send_request import Outcome, SendRequest, Stored, send_result
from rocketmq_py.producer.sender import Sender

OnDone: TypeAlias = Callable[[Stored | SendResult | None], None]
"""Called in another task, once, when a first try that was written at once has its answer: with what the
broker says, or with None if the rest has to be awaited."""


class Begun:  # no ABC: isinstance() takes longer then, and doors ask what crosses for its class
    """What :meth:`Producer.send` does, without a task for as long as only an answer has to be waited for.

    Attributes:
        request: what is sent, once that has been made.
        is_under_way: whether :meth:`tried` will be called; else :meth:`rest` has to be awaited.
    """

    __slots__ = ("_first_error", "_sender", "is_under_way", "request")

    def begin_first_try(self, sender: Sender, request: SendRequest, *, outside: bool = False) -> None:
        """Begin, with a request that ``sender`` brings to a broker; see :meth:`Producer.begin_outside`."""
        self._sender: Sender = sender
        self.request: SendRequest = request
        self._first_error: RocketMQError | None = None
        request.on_done, request.on_answer, request.is_awaited = self._tried, sender.on_answer, True
        self.is_under_way: bool = not request.may_be_compressed and sender.write_now(request, outside=outside)

    def _tried(self, request: SendRequest, outcome: Outcome) -> None:
        self.is_under_way = False
        del request.on_done  # they would refer to each other, and wait for the garbage collector
        if isinstance(outcome, RocketMQError):
            self._first_error = outcome
            self.tried(None)
        else:
            self._sender.counters.sent += len(request.messages)
            self.tried(outcome)

    @abstractmethod
    def tried(self, stored: Stored | SendResult | None) -> None:
        """Take what became of the first try; None if the rest has to be awaited."""

    async def rest(self) -> SendResult:
        """Do what is left; returns, raises and is cancelled as :meth:`Producer.send`."""
        return await self._sender.deliver(self.request, self._first_error)

    def give_up(self) -> None:
        """Wait no more for what is under way: :meth:`tried` is not called. It may still be stored."""
        self.is_under_way = False
        request = getattr(self, "request", None)
        if request is not None and hasattr(request, "channel"):  # else it was interrupted before that
            request.forget()


class BegunBatch(Begun):
    """What :meth:`Producer.send_batch` does with messages that go in one request; see :class:`Begun`.

    Args:
        sender: brings requests to brokers.
        request: the messages'.
        on_done: hears of the first try, if that is under way when this has been made.
        unique_ids: the id of each message.
    """

    __slots__ = ("_on_done", "_unique_ids")

    def __init__(
        self, sender: Sender, request: SendRequest, on_done: OnDone, unique_ids: Sequence[str]
    ) -> None:
        self._on_done = on_done
        self._unique_ids = unique_ids
        self.begin_first_try(sender, request)

    def tried(self, stored: Stored | SendResult | None) -> None:
        """Hand it on."""
        self._on_done(stored)

    def results(self, outcome: Stored | SendResult) -> BatchResults:
        """Return each message's own result, for what ``on_done`` was given or :meth:`rest` returned."""
        return BatchResults(send_result(outcome), self._unique_ids)
