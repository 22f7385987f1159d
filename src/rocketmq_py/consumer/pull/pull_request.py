"""A pull that waits for its answer."""

from __future__ import annotations

from rocketmq_py.codes import RequestCode
from rocketmq_py.credentials import Credentials
from rocketmq_py.protocol.command import Serialization
from rocketmq_py.protocol.pull_request import PullForm
from rocketmq_py.remoting.pending_request import PendingRequest


class PullRequest(PendingRequest):
    """A pull that waits for its answer: its bytes come from a template wherever that is possible.

    Args:
        form: what its header has in common with others.
        offset, system_flag, commit: as ``PullForm.fields`` has them.
        timeout: seconds until it has failed.
    """

    __slots__ = ("_commit", "_form", "_offset", "_system_flag")

    def __init__(self, form: PullForm, offset: int, system_flag: int, commit: int, timeout: float) -> None:
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
