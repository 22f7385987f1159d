"""Credentials from a user's function: fetched for each connection, and renewed when access is denied."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from rocketmq_py.credentials import Credentials, CredentialsProvider

MAX_CALLS = 4
"""Calls of a provider at the same time. One that hangs must not use up the threads of trio."""
RENEWAL_INTERVAL = 1.0
"""Minimum seconds between two renewals. A lasting denial must not call the provider for each request,
nor keep the client from new credentials when keys are rotated meanwhile.
"""


class CredentialsUnavailableError(Exception):
    """The provider raised an exception, or did not return Credentials."""


class CredentialSource:
    """The credentials of one client's connections.

    Args:
        provider: returns the credentials. It runs in a thread, and may block.
        now: the time in seconds. Replaced in tests.
    """

    def __init__(self, provider: CredentialsProvider, now: Callable[[], float] = trio.current_time) -> None:
        self._provider = provider
        self._now = now
        self._newest: Credentials | None = None
        self._renewal_started_at = -math.inf
        self._limiter = trio.CapacityLimiter(MAX_CALLS)
        self._renewing = trio.Lock()

    async def fetch(self) -> Credentials:
        """Call the provider, and return its credentials, which are the newest from now on.

        Raises CredentialsUnavailableError. If cancelled, the call is abandoned.
        """
        try:
            credentials = await trio.to_thread.run_sync(
                self._provider, abandon_on_cancel=True, limiter=self._limiter
            )
        except Exception as error:
            raise CredentialsUnavailableError(
                f"the function that provides credentials raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(credentials, Credentials):
            raise CredentialsUnavailableError(
                "the function that provides credentials must return Credentials(...), not "
                f"{type(credentials).__name__}"
            )
        self._newest = credentials
        return credentials

    async def renew(self, denied: Credentials) -> Credentials | None:
        """Return credentials other than the denied ones.

        None if the provider has none, or was asked to renew them less than RENEWAL_INTERVAL ago. Concurrent
        calls share one call of the provider. Raises CredentialsUnavailableError.
        """
        async with self._renewing:
            if self._newest is None or self._newest == denied:
                now = self._now()
                if now - self._renewal_started_at < RENEWAL_INTERVAL:
                    return None
                self._renewal_started_at = now
                try:
                    await self.fetch()
                except trio.Cancelled:  # the connection was closed. Others may still need a renewal
                    self._renewal_started_at = -math.inf
                    raise
            return self._newest if self._newest != denied else None
