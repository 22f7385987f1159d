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
    """The claim of a message expired while its handler ran, or was already turned into a mark.

    If it expired, another delivery may be handling the message.
    """


class DeduplicationStore(Protocol):
    """Holds claims and marks of handled messages. Both methods are atomic for all processes that share it.

    Methods may block: they are called in the thread of a plain handler, and in a worker thread for an async
    one. An error of :meth:`claim` counts as a failure of the handler. One of :meth:`settle` is logged.
    """

    def claim(self, key: str, token: str, expires_in: float) -> ClaimState:
        """Claim a key, unless it is done or has a claim that has not expired.

        Args:
            key: the group and the message's id or key.
            token: a random string that identifies the claim.
            expires_in: seconds until the claim expires.
        """

    def settle(self, key: str, token: str, expires_in: float) -> bool:
        """Turn a claim into a mark "done", or remove the claim.

        Args:
            key: the key.
            token: the token of the claim. Claims and marks of other tokens are not changed.
            expires_in: seconds until the mark expires. A mark of the same token is extended. 0 removes the
                claim, but never a mark.

        Returns:
            True if there was a claim or mark to change. False if there was none, and nothing was changed. An
            expired claim that no other token has taken may count as either.
        """


@attrs.define(kw_only=True)
class Claims:
    """The claims of one handler call.

    Attributes:
        store: holds the claims.
        ttl: seconds that the marks will be kept.
        token: identifies the claims.
        keys: the claimed keys.
    """

    store: DeduplicationStore
    ttl: float
    token: str = attrs.field(factory=lambda: uuid.uuid4().hex)
    keys: Sequence[str] = ()


current_claims: ContextVar[Claims | None] = ContextVar("rocketmq_py_claims", default=None)
"""The claims of the handler call that is running. ``SQLiteStore.transaction`` reads them."""
