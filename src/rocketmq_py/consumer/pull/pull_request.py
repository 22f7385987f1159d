"""A pull that waits for its answer."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_py.codes import RequestCode
from rocketmq_py.credentials import Credentials
from rocketmq_py.protocol.command import Serialization
from rocketmq_py.protocol.headers import PullRequestBuilder
from rocketmq_py.protocol.send_answer import SendAnswer
from rocketmq_py.remoting.pending_requests import Answer, PendingRequest


class PullRequest(PendingRequest):
    """A pull that waits for its answer: its bytes come from a template wherever that is possible.

    Args:
        form: what its header has in common with others.
        offset, system_flag, commit: as ``PullRequestBuilder.fields`` has them.
        timeout: seconds until it has failed.
    """

    __slots__ = ("_commit", "_form", "_offset", "_system_flag")

    def __init__(
        self, form: PullRequestBuilder, offset: int, system_flag: int, commit: int, timeout: float
    ) -> None:
        super().__init__(RequestCode.PULL_MESSAGE, {}, b"", timeout)
        self._form = form
        self._offset = offset
        self._system_flag = system_flag
        self._commit = commit

    @property
    def fields(self) -> dict[str, str]:
        """The header's fields, not signed."""
        return self._form.fields(self._offset, self._system_flag, self._commit)

    def frame(self, opaque: int, serialization: Serialization, credentials: Credentials | None) -> bytes:
        """Return its bytes: from the template, where neither credentials nor a binary header are wanted."""
        frame = None
        if credentials is None and not serialization:
            frame = self._form.frame(opaque, self._offset, self._system_flag, self._commit)
        return super().frame(opaque, serialization, credentials) if frame is None else frame


class SubmittedPull(PullRequest):
    """One that nobody waits for: ``on_answer`` gets the answer, in another task; it must not raise."""

    __slots__ = ("_on_answer",)

    def __init__(
        self,
        form: PullRequestBuilder,
        offset: int,
        system_flag: int,
        timeout: float,
        on_answer: Callable[[Answer], None],
    ) -> None:
        super().__init__(form, offset, system_flag, 0, timeout)
        self._on_answer = on_answer

    def answered(self, answer: Answer | SendAnswer) -> None:
        """Hand the answer on."""
        assert not isinstance(answer, SendAnswer)
        self._on_answer(answer)
