"""The health of a client: snapshots for readiness probes, taken without a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

MAX_NAMED = 3
"""Topics or queues that a reason names. A number stands for the others."""


@attrs.frozen(kw_only=True)
class Health:
    """The base class of all health values.

    Attributes:
        reasons: why it cannot do its work now, one sentence for each cause. Empty if it can.
    """

    reasons: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether it can do its work, as far as it knows."""
        return not self.reasons

    def __str__(self) -> str:
        return "healthy" if self.healthy else f"unhealthy: {'; '.join(self.reasons)}"


@attrs.frozen(kw_only=True)
class ServerHealth:
    """A name server or a broker, as a client sees it.

    Attributes:
        address: its address.
        broker_name: the name of a broker. Empty for name servers.
        connected: whether a connection is open. Servers close those that are idle.
        heartbeat_age: seconds since the broker answered a heartbeat. None before the first answer, and for
            name servers.
        error: the error of the last request, heartbeat or connection attempt. None after a success, and
            before the first one.
    """

    address: str
    broker_name: str = ""
    connected: bool
    heartbeat_age: float | None = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class ClientHealth(Health):
    """The health of a client: its name servers, brokers and routes.

    Attributes:
        reasons: why it cannot do its work now. Name servers may be down while brokers answer, because known
            routes stay in use. A broker may be down while each topic in use has another one.
        name_servers: the name servers, sorted by address. One with the URL before it was fetched.
        brokers: the masters of the topics in use, sorted by name. If a broker has no master, its replica with
            the lowest id.
        route_age: seconds since the refresh of the topic whose route is the oldest. None without routes.
    """

    name_servers: tuple[ServerHealth, ...] = ()
    brokers: tuple[ServerHealth, ...] = ()
    route_age: float | None = None


def find_reasons(
    name_servers: Sequence[ServerHealth],
    brokers: Sequence[ServerHealth],
    topics: Iterable[tuple[str, Iterable[str]]],
    *,
    has_answer: bool,
) -> tuple[str, ...]:
    """Return why a client cannot do its work.

    Args:
        name_servers: all name servers.
        brokers: all brokers.
        topics: each topic in use, with the names of its brokers.
        has_answer: whether a name server has answered its last request.
    """
    if not brokers:
        if has_answer:
            return ()
        errors = ", ".join(f"{one.address} ({one.error or 'not asked yet'})" for one in name_servers)
        return (f"no name server has answered: {errors}",)
    failing = {one.broker_name: one for one in brokers if one.error is not None}
    by_brokers: dict[frozenset[str], list[str]] = {}
    for topic, names in topics:
        by_brokers.setdefault(frozenset(names), []).append(topic)
    return tuple(
        f"no broker of {some_of('topic', unreachable)} can be reached: "
        + ", ".join(f"{name} at {failing[name].address} ({failing[name].error})" for name in sorted(names))
        for names, unreachable in by_brokers.items()
        if names and names <= failing.keys()
    )


def some_of(noun: str, names: Sequence[str]) -> str:
    """Return the first names of a list in words: ``topics A, B, C and 4 more``."""
    named = ", ".join(names[:MAX_NAMED])
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {named}{more}"
