"""Claims of messages, and the protocol of the stores that hold them."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

import attrs

from rocketmq_py.errors import RocketMQError


class ClaimState(enum.Enum):
    """The result of an attempt to claim a key."""

    CLAIMED = "claimed"
    """The caller has the claim and handles the message."""
    HELD = "held"
    """Another process or task has the claim."""
    DONE = "done"
    """The message was handled."""


class ClaimLostError(RocketMQError):
    """The claim of a message expired while its handler ran, and another delivery may be handling it."""


class DeduplicationStore(Protocol):
    """Holds claims and marks of handled messages. Both methods are atomic for all processes that share it.

    Methods may block: they are called in threads, or in a worker thread for handlers on an event loop. An
    error of :meth:`claim` counts as a failure of the handler.
    """

    def claim(self, key: str, token: str, seconds: float) -> ClaimState:
        """Claim a key, unless it is done or has a claim that has not expired.

        Args:
            key: the group and the message's id or key.
            token: a random text that identifies the claim.
            seconds: the claim expires after this time.
        """

    def settle(self, key: str, token: str, seconds: float) -> bool:
        """Turn a claim into a mark "done" that expires after ``seconds``, or remove it if that is 0.

        A mark is never removed. Returns False, and changes nothing, if the key has no claim or mark with this
        token.
        """


@attrs.define(kw_only=True)
class Claims:
    """The claims of one handler call.

    Attributes:
        store: holds the claims.
        ttl: seconds that marks are kept.
        token: identifies the claims.
        keys: the claimed keys.
    """

    store: DeduplicationStore
    ttl: float
    token: str = attrs.field(factory=lambda: uuid.uuid4().hex)
    keys: Sequence[str] = ()


current_claims: ContextVar[Claims | None] = ContextVar("rocketmq_py_claims", default=None)
"""The claims of the handler call that is running."""
