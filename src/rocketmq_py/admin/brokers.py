"""Brokers and name servers: status, configuration and write permission."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import attrs

from rocketmq_py.address import normal_address
from rocketmq_py.admin.fan_out import Listing, PartialResults, change_each, query_each
from rocketmq_py.admin.operations import Operations, call_all_name_servers, call_broker, call_name_server
from rocketmq_py.arguments import check_not_blank, check_settings
from rocketmq_py.client.core import ClientCore
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.protocol.bodies import MASTER_ID, KeyValueTable, read_properties, write_properties
from rocketmq_py.protocol.headers import (
    AddWritePermissionAnswer,
    AddWritePermissionRequest,
    GetBrokerConfigRequest,
    GetBrokerRuntimeInfoRequest,
    GetNameServerConfigRequest,
    UpdateBrokerConfigRequest,
    UpdateNameServerConfigRequest,
    WipeWritePermissionAnswer,
    WipeWritePermissionRequest,
)


@attrs.frozen(kw_only=True)
class BrokerStatus:
    """The runtime figures of a broker. Java: ``brokerStatus`` and ``clusterList``.

    Attributes:
        broker_name: the broker's name. A master and its replicas share it.
        cluster: the broker's cluster.
        broker_id: 0 for a master, another number for a replica.
        address: ``host:port``.
        version: such as ``5.5.0``.
        started_ms: start time, epoch milliseconds. None if the broker does not report it.
        put_rate: messages stored per second, over the last 10 s.
        get_rate: messages read per second, over the last 10 s.
        put_today: messages stored since midnight.
        get_today: messages read since midnight.
        disk_ratio: used share of the disk that holds the commit log, 0 to 1. None if the broker does not
            report it.
        send_queue: sends that wait in the broker.
        send_wait_ms: milliseconds that the oldest of them has waited.
        pull_queue: pulls that wait in the broker.
        pull_wait_ms: milliseconds that the oldest of them has waited.
        details: all figures that the broker reports, under Java's names.
    """

    broker_name: str
    cluster: str
    broker_id: int
    address: str
    version: str
    started_ms: int | None
    put_rate: float
    get_rate: float
    put_today: int
    get_today: int
    disk_ratio: float | None
    send_queue: int
    send_wait_ms: int
    pull_queue: int
    pull_wait_ms: int
    details: Mapping[str, str] = attrs.field(repr=False)

    @property
    def is_master(self) -> bool:
        """Whether the broker is a master."""
        return self.broker_id == MASTER_ID

    @classmethod
    def _of(
        cls, name: str, cluster: str, broker_id: int, address: str, details: Mapping[str, str]
    ) -> BrokerStatus:
        """Return the status in a broker's response to GET_BROKER_RUNTIME_INFO."""
        started_ms = _first_number(details, "bootTimestamp")
        disk_ratio = _first_number(details, "commitLogDiskRatio")
        return cls(
            broker_name=name,
            cluster=cluster,
            broker_id=broker_id,
            address=address,
            version=details.get("brokerVersionDesc", "").removeprefix("V").replace("_", ".") or "unknown",
            started_ms=None if started_ms is None else int(started_ms),
            put_rate=_first_number(details, "putTps") or 0.0,
            # Brokers of 4.x misspell the name.
            get_rate=_first_number(details, "getTransferredTps")
            or _first_number(details, "getTransferedTps")
            or 0.0,
            put_today=_difference(details, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
            get_today=_difference(details, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
            disk_ratio=None if disk_ratio is None or disk_ratio < 0 else disk_ratio,
            send_queue=int(_first_number(details, "sendThreadPoolQueueSize") or 0),
            send_wait_ms=int(_first_number(details, "sendThreadPoolQueueHeadWaitTimeMills") or 0),
            pull_queue=int(_first_number(details, "pullThreadPoolQueueSize") or 0),
            pull_wait_ms=int(_first_number(details, "pullThreadPoolQueueHeadWaitTimeMills") or 0),
            details=details,
        )


def _first_number(details: Mapping[str, str], name: str) -> float | None:
    """Return the first number of a figure. None if it has none.

    Rates have three numbers, such as ``0.5 0.4 0.1``, for the last 10 seconds, minute and 10 minutes.
    """
    words = details.get(name, "").split()
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None


def _difference(details: Mapping[str, str], now: str, morning: str) -> int:
    return int((_first_number(details, now) or 0) - (_first_number(details, morning) or 0))


@attrs.frozen(kw_only=True)
class BrokerListing(Listing[BrokerStatus]):
    """All brokers.

    Attributes:
        brokers: the brokers that answered, sorted by cluster, name and id.
        failures: the error of each other broker, by its address.
    """

    brokers: tuple[BrokerStatus, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[BrokerStatus, ...]:
        return self.brokers


@attrs.frozen
class RegisteredBroker:
    """A broker as name servers know it."""

    name: str
    cluster: str
    broker_id: int
    address: str


class Brokers(Operations):
    """``admin.brokers``. The argument ``broker`` is the name of a master, or the address of any broker.

    All methods raise NameServerError if no name server answers. Methods with ``broker`` raise
    ConfigurationError if name servers do not know the broker, and BrokerError, ConnectError,
    ConnectionLostError or RequestTimeoutError if a request to it fails.
    """

    async def list(self) -> BrokerListing:
        """Return all brokers of all clusters, with replicas. Java: ``clusterList``, ``brokerStatus``."""
        registered = {broker.address: broker for broker in await _registered(self._client)}
        results = await query_each(registered, lambda address: self._status(registered[address]))
        return BrokerListing(brokers=tuple(results.values.values()), failures=results.failures)

    async def describe(self, broker: str) -> BrokerStatus:
        """Return the runtime figures of a broker. Java: ``brokerStatus``."""
        return await self._status(await find_broker(self._client, broker))

    async def settings(self, broker: str) -> Mapping[str, str]:
        """Return a broker's configuration under Java's names, sorted. Java: ``getBrokerConfig``."""
        address = (await find_broker(self._client, broker)).address
        answer = await call_broker(self._client, address, GetBrokerConfigRequest())
        return dict(sorted(read_properties(answer.body).items()))

    async def alter(self, broker: str, settings: Mapping[str, str]) -> None:
        """Change the configuration of a broker, and its configuration file. Java: ``updateBrokerConfig``.

        Some settings take effect only after a restart of the broker. A broker ignores a value of the wrong
        type, without an error.

        Raises:
            ConfigurationError: the broker has no such setting, or a value cannot be encoded. Nothing was
                changed.
        """
        settings = check_settings(settings, "settings")
        body = write_properties(settings)
        known = await self.settings(broker)
        if unknown := sorted(settings.keys() - known.keys()):
            raise ConfigurationError(f"broker {broker!r} has no setting {', '.join(unknown)}")
        address = (await find_broker(self._client, broker)).address
        await call_broker(self._client, address, UpdateBrokerConfigRequest(), body)

    async def wipe_write_permission(self, broker: str) -> Mapping[str, int]:
        """Stop producers from sending to a broker, before it is taken down. Consumers are not affected.

        The permission is removed on all name servers. The broker's own configuration does not change, and
        producers send to it again once it restarts. So they do to a topic that is created or changed on it.
        Java: ``wipeWritePerm``.

        Returns:
            The number of the broker's topics that lost the permission, by the address of the name server.

        Raises:
            SomeBrokersFailedError: the change failed on some of several name servers. With a single one its
                own error is raised.
        """
        name = (await find_broker(self._client, broker)).name
        header = WipeWritePermissionRequest(broker=name)

        async def wipe(address: str) -> int:
            answer = await call_name_server(self._client, address, header)
            return WipeWritePermissionAnswer.from_fields(answer.fields).wipe_topic_count

        return await self._change_name_servers(wipe, f"wiping the write permission of {name}")

    async def add_write_permission(self, broker: str) -> Mapping[str, int]:
        """Undo :meth:`wipe_write_permission`. Java: ``addWritePerm``.

        Returns:
            The number of the broker's topics that regained the permission, by the address of the name server.

        Raises:
            SomeBrokersFailedError: the change failed on some of several name servers. With a single one its
                own error is raised.
        """
        name = (await find_broker(self._client, broker)).name
        header = AddWritePermissionRequest(broker=name)

        async def add(address: str) -> int:
            answer = await call_name_server(self._client, address, header)
            return AddWritePermissionAnswer.from_fields(answer.fields).add_topic_count

        return await self._change_name_servers(add, f"adding the write permission of {name}")

    async def _change_name_servers(
        self, change: Callable[[str], Awaitable[int]], action: str
    ) -> Mapping[str, int]:
        """Run a change on each name server, since they do not share state."""
        return await change_each(await self._client.name_servers.all_addresses(), change, action)

    async def _status(self, broker: RegisteredBroker) -> BrokerStatus:
        answer = await call_broker(self._client, broker.address, GetBrokerRuntimeInfoRequest())
        details = dict(sorted(KeyValueTable.decode(answer.body).table.items()))
        return BrokerStatus._of(broker.name, broker.cluster, broker.broker_id, broker.address, details)


async def find_broker(client: ClientCore, broker: str) -> RegisteredBroker:
    """Return the broker with this address, or the master with this name.

    Raises ConfigurationError if name servers do not know it, and NameServerError if none answers.
    """
    check_not_blank(broker, "broker")
    registered = await _registered(client)
    address = normal_address(broker)
    for one in registered:
        if address == one.address or (broker == one.name and one.broker_id == MASTER_ID):
            return one
    if replicas := [one.address for one in registered if one.name == broker]:
        raise ConfigurationError(
            f"broker {broker!r} has no master now; use the address of a replica: {', '.join(replicas)}"
        )
    known = ", ".join(f"{one.name} ({one.address})" for one in registered) or "none"
    raise ConfigurationError(f"broker {broker!r} does not exist; brokers: {known}")


async def _registered(client: ClientCore) -> tuple[RegisteredBroker, ...]:
    """Return all brokers that name servers know, sorted by cluster, name and id."""
    info = await client.name_servers.cluster_with_brokers()
    clusters = {name: cluster for cluster, names in info.cluster_addr_table.items() for name in names}
    registered = [
        RegisteredBroker(name, clusters.get(name, broker.cluster), broker_id, address)
        for name, broker in info.broker_addr_table.items()
        for broker_id, address in broker.broker_addrs.items()
    ]
    return tuple(sorted(registered, key=lambda one: (one.cluster, one.name, one.broker_id)))


class NameServers(Operations):
    """``admin.name_servers``: all name servers whose addresses the client has."""

    async def settings(self) -> PartialResults[str, Mapping[str, str]]:
        """Return the configuration of each name server by its address, under Java's names, sorted.

        Java: ``getNamesrvConfig``.
        """
        client = self._client

        async def query(address: str) -> Mapping[str, str]:
            answer = await call_name_server(client, address, GetNameServerConfigRequest())
            return dict(sorted(read_properties(answer.body).items()))

        return await query_each(await client.name_servers.all_addresses(), query)

    async def alter(self, settings: Mapping[str, str]) -> None:
        """Change the configuration of all name servers. Java: ``updateNamesrvConfig``.

        Raises:
            ConfigurationError: a name server has no such setting, or a value cannot be encoded. Nothing was
                changed.
            SomeBrokersFailedError: the change failed on some of several name servers. With a single one its
                own error is raised.
        """
        settings = check_settings(settings, "settings")
        body = write_properties(settings)
        for address, known in (await self.settings()).values.items():
            if unknown := sorted(settings.keys() - known.keys()):
                raise ConfigurationError(f"name server {address} has no setting {', '.join(unknown)}")
        header = UpdateNameServerConfigRequest()
        await call_all_name_servers(self._client, header, "changing settings of name servers", body)
