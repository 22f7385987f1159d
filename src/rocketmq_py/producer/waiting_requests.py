"""Pipelined requests that wait for a broker which cannot take them yet."""

from __future__ import annotations

from collections import deque

import trio

from rocketmq_py.producer.send_request import SendRequest


class WaitingRequests:
    """Pipelined requests that wait for one broker, in their order."""

    def __init__(self) -> None:
        self.requests: deque[SendRequest] = deque()
        self._scope = trio.CancelScope()

    def add(self, request: SendRequest) -> None:
        """Put one behind all others."""
        self.requests.append(request)
        if request.deadline < self._scope.deadline:
            self._scope.deadline = request.deadline

    def scope_until_one_expires(self) -> trio.CancelScope:
        """Return a scope that ends when the time of any of them is up, of those that are added, too."""
        self._scope = trio.CancelScope(deadline=min([request.deadline for request in self.requests]))
        return self._scope

    def take_expired(self, now: float) -> list[SendRequest]:
        """Remove and return those whose time is up."""
        expired = [one for one in self.requests if one.deadline <= now]
        if expired:
            self.requests = deque([one for one in self.requests if one.deadline > now])
        return expired
