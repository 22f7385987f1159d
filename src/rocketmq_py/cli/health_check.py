"""The servers of a cluster and whether they answer, for ``rocketmq-py check health``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_py.errors import (
    AccessDeniedError,
    NameServerError,
    NoQueueError,
    RocketMQError,
    UnsupportedByBrokerError,
)

if TYPE_CHECKING:
    from rocketmq_py.admin import Admin
    from rocketmq_py.admin.brokers import BrokerListing

ROLES: Final = ("name server", "broker")
"""The kinds of servers."""
_REFUSALS = (AccessDeniedError, UnsupportedByBrokerError)
"""The errors of servers that answer, although they refuse the request."""


@attrs.frozen
class Server:
    """A name server or a broker, with its error if it did not answer."""

    role: str
    address: str
    error: str | None

    def as_dict(self) -> dict[str, object]:
        """Return the server for JSON."""
        return {"role": self.role, "address": self.address, "up": self.error is None, "error": self.error}


@attrs.frozen
class Servers:
    """The servers of a cluster.

    Attributes:
        servers: the servers that were asked.
        roles: the kinds of servers that must be there.
        note: why servers may be missing. None if they are complete.
        expected: the number of brokers that must answer. None for any number above 0.
    """

    servers: Sequence[Server]
    roles: Sequence[str]
    note: str | None
    expected: int | None

    @property
    def failures(self) -> Sequence[Server]:
        """The servers that did not answer."""
        return [one for one in self.servers if one.error is not None]

    @property
    def reasons(self) -> Sequence[str]:
        """The errors of servers that did not answer, and the notes."""
        return [*[f"{one.role} {one.address}: {one.error}" for one in self.failures], *self.notes]

    @property
    def notes(self) -> Sequence[str]:
        """Why servers may be missing."""
        if self.note is not None:
            return [self.note]  # the brokers are unknown
        known = sum(one.role == "broker" for one in self.servers)
        if self.expected is not None and known < self.expected:
            return [f"name servers know {known} brokers, and {self.expected} are expected"]
        return []

    @property
    def is_critical(self) -> bool:
        """Whether no server of a kind answers, or fewer brokers than expected do."""
        up = {role: self.up_and_total(role)[0] for role in self.roles}
        return min(up.values()) == 0 or up.get("broker", 0) < (self.expected or 0)

    def up_and_total(self, role: str) -> tuple[int, int]:
        """Return the number of servers of a kind that answer, and the number that should."""
        errors = [one.error for one in self.servers if one.role == role]
        expected = self.expected or 0 if role == "broker" else 0
        return errors.count(None), max(len(errors), expected)


async def find_servers(admin: Admin, expected: int | None) -> Servers:
    """Query all servers.

    Args:
        admin: the Admin.
        expected: the number of brokers that must answer. None for any number above 0.
    """
    listed: BrokerListing | None = None
    roles: Sequence[str] = ROLES
    note = None
    try:
        listed = await admin.brokers.list()
    except _REFUSALS as error:
        note = f"brokers cannot be listed: {error}"
        roles = ROLES if expected is not None else ROLES[:1]
    except (NameServerError, NoQueueError) as error:
        note = str(error)
    try:
        answers = await admin.name_servers.settings()
    except NameServerError as error:  # a URL did not return their addresses
        return Servers([], roles, str(error), expected)
    servers = _servers("name server", answers.values, answers.failures)
    if listed is not None:
        servers += _servers("broker", [broker.address for broker in listed], listed.failures)
    elif all(one.error is not None for one in servers):
        note = "no name server answered"  # the reasons of each follow from the servers
    return Servers(servers, roles, note, expected)


def _servers(role: str, answered: Iterable[str], failures: Mapping[str, RocketMQError]) -> list[Server]:
    up = [Server(role, address, None) for address in answered]
    return up + [
        Server(role, address, None if isinstance(error, _REFUSALS) else str(error))
        for address, error in failures.items()
    ]
