"""Assignment listeners of users who are not in the trio thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
from rocketmq_py.message import MessageQueue


class CrossingListener(AssignmentListener):
    """Has a listener's methods called elsewhere, and waits for them in the trio thread.

    Args:
        listener: the user's.
        call: calls a method of it with a list of queues, wherever users expect it.
    """

    def __init__(
        self,
        listener: AssignmentListener,
        call: Callable[[Callable[..., object], list[MessageQueue]], Awaitable[object]],
    ) -> None:
        self._listener = listener
        self._call = call

    def on_assigned(self, queues: list[MessageQueue]) -> Awaitable[object]:
        """Call the user's."""
        return self._call(self._listener.on_assigned, queues)

    def on_revoked(self, queues: list[MessageQueue]) -> Awaitable[object]:
        """Call the user's."""
        return self._call(self._listener.on_revoked, queues)
