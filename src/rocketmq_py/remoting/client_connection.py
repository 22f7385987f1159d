"""A connection of a client: requests survive outdated credentials, and a peer that goes away.

The credentials come from a user's function. They are fetched for each connection, and renewed when access is
denied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import attrs
import trio

from rocketmq_py.codes import ResponseCode
from rocketmq_py.credentials import Credentials, CredentialsProvider, RequestSigner
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.protocol.command import Command, Serialization
from rocketmq_py.remoting.answer_errors import denies_access
from rocketmq_py.remoting.base_channel import ChannelPool
from rocketmq_py.remoting.connection import Connection, Handler
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.nurseries import is_failure
from rocketmq_py.remoting.pending_requests import PendingRequest
from rocketmq_py.remoting.rpc_hooks import RpcHooks
from rocketmq_py.remoting.wire import DEFAULT_MAX_BUFFERED

logger: Final = LibraryLogger("rocketmq_py.remoting")

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
        except BaseException as error:
            if not is_failure(error):
                raise
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


class ClientConnection(Connection):
    """A connection that repeats requests after a denial of access, and moves them away after GO_AWAY.

    Args:
        stream, deadlines, handler, address, serialization, signer, hooks, max_buffered: see Connection.
        credential_source: renews the credentials when the peer denies access, or None.
        pool: has another connection to the address when the peer goes away (GO_AWAY), and records that it
            does so again as soon as it is connected. None makes GO_AWAY an ordinary answer.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        deadlines: Deadlines,
        handler: Handler,
        address: str | None = None,
        serialization: Serialization = Serialization.JSON,
        signer: RequestSigner | None = None,
        credential_source: CredentialSource | None = None,
        hooks: RpcHooks | None = None,
        pool: ChannelPool | None = None,
        max_buffered: int = DEFAULT_MAX_BUFFERED,
    ) -> None:
        super().__init__(
            stream,
            deadlines=deadlines,
            handler=handler,
            address=address,
            serialization=serialization,
            signer=signer,
            hooks=hooks,
            max_buffered=max_buffered,
        )
        self._credential_source = credential_source
        # The opaques of pending requests that are signed with earlier credentials than the current ones.
        self._signed_before_renewal: set[int] = set()
        self._pool = pool

    def _handle_answer(self, answer: Command, pending: PendingRequest | None) -> None:
        # Not with super(), because each answer would take another call.
        if not self.peer_version:
            self._learn_version(answer, pending)
        if answer.code == ResponseCode.GO_AWAY:
            self._go_away(answer, pending)
        elif pending is not None:
            if self._credential_source is not None and denies_access(answer.code, answer.remark):
                self._access_denied(answer, pending, self._credential_source)
            else:
                pending.answered(answer)
        if self.draining and not self._pending:
            self._close_when_written("the peer is going away")

    # A peer that denies access

    def _access_denied(self, answer: Command, pending: PendingRequest, source: CredentialSource) -> None:
        """Send a denied request again if its credentials are not the newest ones, else renew them first."""
        if pending.opaque in self._signed_before_renewal:
            self._signed_before_renewal.remove(pending.opaque)
            self._carry_or_fail(pending)
            return
        assert self._nursery is not None
        assert self._signer is not None
        assert self._signer.credentials is not None
        # It stays in the table, where it times out and a cancellation finds it.
        self._pending[pending.opaque] = pending
        self._nursery.start_soon(self._renew_credentials, answer, pending, source, self._signer.credentials)

    async def _renew_credentials(
        self, answer: Command, pending: PendingRequest, source: CredentialSource, denied: Credentials
    ) -> None:
        """Renew the credentials and send a denied request again. Without new ones, deliver the denial."""
        opaque = pending.opaque
        try:
            credentials = await source.renew(denied)
        except CredentialsUnavailableError as error:
            logger.warning("cannot renew credentials address=%s: %s", self.address, error)
            credentials = None
        is_waiting = self._pending.get(opaque) is pending
        if is_waiting:
            del self._pending[opaque]
        signer = self._signer
        if credentials is not None and signer is not None and signer.credentials is denied:
            self._signer = attrs.evolve(signer, credentials=credentials)
            self._signed_before_renewal = set(self._pending)
        if is_waiting and credentials is not None:
            self._carry_or_fail(pending)
        elif is_waiting:
            pending.answered(answer)

    # A peer that goes away

    def _go_away(self, answer: Command, pending: PendingRequest | None) -> None:
        """Move the request, and all that are not written yet, to another connection.

        A peer that answers GO_AWAY did not process the request. If the peer sends it away again, the request
        waits for the next dial, until its deadline. Java moves a request once, see
        ``NettyRemotingClient.invokeImpl``.
        """
        is_first = not self.draining
        self.draining = True
        self.is_usable = False
        if pending is not None:
            if self._pool is None:
                pending.answered(answer)
            else:
                if pending.was_sent_away and is_first:
                    self._pool.refused_by_peer(self.address)
                pending.was_sent_away = True
                self._carry_or_fail(pending)
        if is_first and self._pool is not None:
            self._move_unwritten()

    def _move_unwritten(self) -> None:
        """Move the requests that are not written yet: oneway requests would be lost, others refused first."""
        for unwritten in [one for one in self._pending.values() if not self.has_written(one)]:
            self.forget(unwritten)
            self._carry_or_fail(unwritten)
        for code, fields, body in self.writer.take_back_oneways():
            try:
                self.oneway_nowait(code, fields, body)
            except RocketMQError as error:
                logger.info(
                    "oneway request lost: the peer is going away, peer=%s code=%d: %s",
                    self.address,
                    code,
                    error,
                )

    def _carry_or_fail(self, pending: PendingRequest) -> None:
        try:
            self.carry(pending)
        except RocketMQError as error:
            pending.answered(error)

    def _carry_elsewhere(self, pending: PendingRequest) -> bool:
        if self._pool is None or not self.draining:
            return super()._carry_elsewhere(pending)
        self._pool.channel_nowait(self.address).carry(pending)
        return True

    def oneway_nowait(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a oneway request, even with a full buffer. Hooks are not called. Raises as :meth:`submit`."""
        if self._pool is None or not self.draining:
            super().oneway_nowait(code, fields, body)
        else:
            self._pool.channel_nowait(self.address).oneway_nowait(code, fields, body)

    def _check_open(self) -> None:
        if self._pool is None or not self.draining:  # else another channel carries the requests
            super()._check_open()

    def _close_when_written(self, reason: str) -> None:
        if self.writer.is_flushed or self._nursery is None:
            self.close(reason)
        else:
            self._nursery.start_soon(self.aclose, reason)
