"""The first attempt of an awaited send, without a task that waits for the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import SendResult
from rocketmq_py.producer.batch import BatchResults
from rocketmq_py.producer.outcome import Acknowledgement, Outcome, send_result
from rocketmq_py.producer.send_request import SendRequest
from rocketmq_py.producer.sender import Sender

OnAnswer: TypeAlias = Callable[[Acknowledgement | SendResult | None], None]
"""Called once with the outcome of the first attempt: the acknowledgement, or None if
:meth:`FirstAttempt.rest` must be awaited."""


# Fast path: no task per send, saves 40 % of awaited sends of the asyncio and threads APIs.
class FirstAttempt:
    """The first attempt of an awaited send.

    Args:
        sender: sends requests to brokers.
        request: the request.
        on_answer: called with the answer, if ``is_in_flight`` is true.

    Attributes:
        is_in_flight: whether the request was written and waits for its answer. If not, :meth:`rest` must be
            awaited.
    """

    __slots__ = ("_error", "_on_answer", "_request", "_sender", "is_in_flight")

    def __init__(self, sender: Sender, request: SendRequest, on_answer: OnAnswer) -> None:
        self._sender = sender
        self._request = request
        self._on_answer = on_answer
        self._error: RocketMQError | None = None
        request.on_answer = sender.on_answer
        self.is_in_flight: bool = not request.may_be_compressed and sender.write_now(request)
        if self.is_in_flight:  # otherwise the reference cycle would last until the garbage collector runs
            request.on_done, request.is_retried_by_caller = self._answered, True

    def _answered(self, request: SendRequest, outcome: Outcome) -> None:
        self.is_in_flight = False
        del request.on_done  # it is a reference cycle
        if isinstance(outcome, RocketMQError):
            self._error = outcome
            self._on_answer(None)
        else:
            self._sender.counters.sent += len(request.messages)
            self._on_answer(outcome)

    async def rest(self) -> SendResult:
        """Make the remaining attempts. Returns, raises and is cancelled as :meth:`Producer.send`."""
        return await self._sender.deliver(self._request, self._error)

    def forget(self) -> None:
        """Ignore the answer. The message may still be stored."""
        self.is_in_flight = False
        self._request.forget()


class BatchAttempt(FirstAttempt):
    """The first attempt of a batch in one request.

    Args:
        sender, request, on_answer: as for FirstAttempt.
        unique_ids: the id of each message.
    """

    __slots__ = ("_unique_ids",)

    def __init__(
        self, sender: Sender, request: SendRequest, on_answer: OnAnswer, unique_ids: Sequence[str]
    ) -> None:
        self._unique_ids = unique_ids
        super().__init__(sender, request, on_answer)

    def results(self, outcome: Acknowledgement | SendResult) -> BatchResults:
        """Return each message's result, for the argument of ``on_answer`` or the result of :meth:`rest`."""
        return BatchResults(send_result(outcome), self._unique_ids)
