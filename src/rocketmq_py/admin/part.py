"""What the parts of ``Admin`` have in common, and which brokers they ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rocketmq_py.admin.calling import check_is_5
from rocketmq_py.arguments import check_text, check_texts, optional
from rocketmq_py.client import Client
from rocketmq_py.errors import ConfigurationError, NoQueueError
from rocketmq_py.protocol.bodies import MASTER_ID, BrokerData


class Part:
    """A part of ``Admin``, such as ``admin.topics``.

    Args:
        client: returns the client, or raises ClosedError.
    """

    def __init__(self, client: Callable[[], Client]) -> None:
        self._open_client = client

    @property
    def _client(self) -> Client:
        return self._open_client()

    async def _chosen(
        self, brokers: Iterable[str] | None = None, cluster: str | None = None
    ) -> Mapping[str, BrokerData]:
        """Return the brokers of these names, or all of a cluster, or all; see :func:`choose`."""
        names = optional(check_texts, brokers, "brokers")
        optional(check_text, cluster, "cluster")
        info = await self._client.name_servers.cluster_info()
        known = info.broker_addr_table
        if cluster is not None:
            if cluster not in info.cluster_addr_table:
                raise ConfigurationError(
                    f"there is no cluster {cluster!r}; there is {_listed(info.cluster_addr_table)}"
                )
            known = {name: known[name] for name in info.cluster_addr_table[cluster] if name in known}
        if names is None:
            return dict(sorted(known.items()))
        chosen = list(dict.fromkeys(names))
        for name in chosen:
            if name not in known:
                raise ConfigurationError(f"there is no broker {name!r}; there is {_listed(known)}")
        return {name: known[name] for name in chosen}

    async def _check_knows_attributes(
        self, brokers: Mapping[str, BrokerData], attributes: Iterable[str], kind: str
    ) -> None:
        """Raise UnsupportedByBrokerError if there are attributes and a broker is older than 5.0.

        Args:
            brokers: the brokers to ask for their version.
            attributes: the names of attributes to set or remove.
            kind: ``topic`` or ``group``, for the error.
        """
        if names := ", ".join(attributes):
            for broker in brokers.values():
                await check_is_5(self._client, master_of(broker), f"a {kind} with {names}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


# Attributes of topics and groups: name -> value, or None to remove the attribute.


def applicable(changes: Mapping[str, str | None], attributes: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes that a broker accepts: it refuses to remove an attribute that is not set."""
    return {name: value for name, value in changes.items() if value is not None or name in attributes}


def changed_by(changes: Mapping[str, str | None], attributes: Mapping[str, str]) -> dict[str, str]:
    """Return ``attributes`` after ``changes``."""
    return {name: value for name, value in {**attributes, **changes}.items() if value is not None}


def master_of(broker: BrokerData) -> str:
    """Return the address of a broker's master. Raises NoQueueError if there is none now."""
    if MASTER_ID not in broker.broker_addrs:
        raise NoQueueError(f"broker {broker.broker_name!r} has no master now")
    return broker.broker_addrs[MASTER_ID]


def any_of(broker: BrokerData) -> str:
    """Return the address of a broker's master, or of a replica while there is none.

    Raises NoQueueError if there is neither.
    """
    if not broker.broker_addrs:
        raise NoQueueError(f"broker {broker.broker_name!r} has no address now")
    return broker.broker_addrs[min(broker.broker_addrs)]
