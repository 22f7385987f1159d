"""Requests that are held until a message arrives, or until their time is over: long polling."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection, Deadlines


class HeldRequest:
    """A request that waits for a message.

    Args:
        connection: the client's connection.
        request: the request.
        keys: the keys under which HeldRequests finds it, such as its queues.

    Attributes:
        connection, request, keys: see above.
        table: the table that holds it. None before.
        tick: used by ``Deadlines``.
    """

    __slots__ = ("connection", "keys", "request", "table", "tick")

    def __init__(self, connection: Connection, request: Command, keys: Sequence[Hashable]) -> None:
        self.connection: Connection = connection
        self.request: Command = request
        self.keys: Sequence[Hashable] = keys
        self.table: HeldRequests[Any] | None = None
        self.tick: int = 0

    def expire(self) -> None:
        """Answer the request. ``Deadlines`` calls this when its time is over."""
        assert self.table is not None
        self.table.release(self)


Held = TypeVar("Held", bound=HeldRequest)
Answered = TypeVar("Answered", bound=HeldRequest, contravariant=True)


class HoldingProcessor(Protocol[Answered]):
    """The processor whose requests are held."""

    def answer_held(self, held: Answered) -> None:
        """Answer a request that is no longer held."""


class KeyWatcher(Protocol):
    """Watches the keys of held requests, such as queues, for messages."""

    def watch(self, key: Hashable) -> None:
        """Watch a key. It is that of the first request that waits for it."""

    def stop_watching(self, key: Hashable) -> None:
        """Watch a key no longer: no request waits for it any more."""


class HeldRequests(Generic[Held]):
    """The held requests of a processor, by key and by connection.

    Args:
        processor: answers the requests.
        deadlines: watches the time of the requests. Its ``run`` must be running.
        watcher: watches the keys. None if nobody needs to.
    """

    def __init__(
        self, processor: HoldingProcessor[Held], deadlines: Deadlines, watcher: KeyWatcher | None = None
    ) -> None:
        self._processor = processor
        self._deadlines = deadlines
        self._watcher = watcher
        self._by_key: dict[Hashable, dict[Held, None]] = {}
        self._by_connection: dict[Connection, dict[Held, None]] = {}

    def hold(self, held: Held, expires_at: float) -> None:
        """Hold a request, at most until a time on trio's clock."""
        held.table = self
        self._by_connection.setdefault(held.connection, {})[held] = None
        for key in held.keys:
            if key not in self._by_key:
                self._by_key[key] = {}
                if self._watcher is not None:
                    self._watcher.watch(key)
            self._by_key[key][held] = None
        self._deadlines.add(held, expires_at)

    def postpone(self, held: Held, expires_at: float) -> None:
        """Change the time at which a request is answered without a message."""
        self._deadlines.remove(held)
        self._deadlines.add(held, expires_at)

    def all_keys(self) -> Iterator[Hashable]:
        """Yield the keys of all held requests."""
        return iter(list(self._by_key))

    def of(self, key: Hashable) -> list[Held]:
        """Return the requests that wait for a key, oldest first."""
        return list(self._by_key.get(key, ()))

    def count(self, key: Hashable) -> int:
        """Return the number of requests that wait for a key."""
        return len(self._by_key.get(key, ()))

    def release(self, held: Held) -> None:
        """Answer a request."""
        self._remove(held)
        self._processor.answer_held(held)

    def drop_connection(self, connection: Connection) -> None:
        """Drop the requests of a closed connection."""
        for held in list(self._by_connection.get(connection, ())):
            self._remove(held)

    def _remove(self, held: Held) -> None:
        self._deadlines.remove(held)
        _discard(self._by_connection, held.connection, held)
        for key in held.keys:
            if _discard(self._by_key, key, held) and self._watcher is not None:
                self._watcher.stop_watching(key)


Key = TypeVar("Key", bound=Hashable)


def _discard(table: dict[Key, dict[Held, None]], key: Key, held: Held) -> bool:
    """Remove a request from the entry of a key. Remove an empty entry, and return whether it was one."""
    requests = table.get(key, {})
    requests.pop(held, None)
    if requests:
        return False
    return table.pop(key, None) is not None
