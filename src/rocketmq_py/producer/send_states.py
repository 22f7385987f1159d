"""The states of a send, and the table of their transitions. The page "Internals" has a drawing of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class SendState(StrEnum):
    """A state of a send."""

    COMPRESSING = "waiting for compression"
    READY = "ready"
    WAITING_FOR_ROUTE = "waiting for a route"
    WAITING_FOR_CONNECTION = "waiting for a connection"
    WRITTEN = "written"
    BACKING_OFF = "backing off"
    ANSWERED = "answered"
    DONE = "done"


COMPRESSING: Final = SendState.COMPRESSING
READY: Final = SendState.READY
WAITING_FOR_ROUTE: Final = SendState.WAITING_FOR_ROUTE
WAITING_FOR_CONNECTION: Final = SendState.WAITING_FOR_CONNECTION
WRITTEN: Final = SendState.WRITTEN
BACKING_OFF: Final = SendState.BACKING_OFF
ANSWERED: Final = SendState.ANSWERED
DONE: Final = SendState.DONE

NEXT_STATES: Final[Mapping[SendState, frozenset[SendState]]] = {
    # A large body is compressed before the first attempt.
    COMPRESSING: frozenset({READY, DONE}),
    # Without a route or a connection, the send waits for it. If no queue can be chosen, the attempt fails.
    READY: frozenset({WAITING_FOR_ROUTE, WAITING_FOR_CONNECTION, WRITTEN, BACKING_OFF, ANSWERED, DONE}),
    WAITING_FOR_ROUTE: frozenset({READY, BACKING_OFF, DONE}),
    # In the queue of its broker, for a dial, a heartbeat, or space in the buffer.
    WAITING_FOR_CONNECTION: frozenset({WRITTEN, BACKING_OFF, DONE}),
    # Passed to a connection, until the answer.
    WRITTEN: frozenset({BACKING_OFF, ANSWERED, DONE}),
    # An attempt has failed. A task decides about another one, and waits before it.
    BACKING_OFF: frozenset({READY, ANSWERED, DONE}),
    # The outcome is known, but hooks have to run, or the reply has to arrive.
    ANSWERED: frozenset({DONE}),
    # The receiver has the outcome, or the send was cancelled.
    DONE: frozenset(),
}
"""The states that may follow each state."""
