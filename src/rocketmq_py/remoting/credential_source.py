"""Credentials from a user's function: fetched for each connection, and renewed when access is denied."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from rocketmq_py.credentials import Credentials, CredentialsProvider

RENEWAL_INTERVAL = 10.0
"""Minimum seconds between two renewals. A lasting denial must not call the provider for each request."""


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
        self._renewed_at = -math.inf
        self._renewing = trio.Lock()

    async def fetch(self) -> Credentials:
        """Call the provider and return its credentials, for a new connection.

        Raises CredentialsUnavailableError. If cancelled, the call is abandoned.
        """
        try:
            credentials = await trio.to_thread.run_sync(self._provider, abandon_on_cancel=True)
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
        """Return other credentials than the denied ones, or None if there are none.

        Concurrent calls share one call of the provider. Raises CredentialsUnavailableError.
        """
        async with self._renewing:
            if self._newest is None or self._newest == denied:
                now = self._now()
                if now - self._renewed_at < RENEWAL_INTERVAL:
                    return None
                self._renewed_at = now
                await self.fetch()
            return self._newest if self._newest != denied else None
