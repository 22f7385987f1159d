"""Brokers: how they are doing, their settings, and whether producers send to them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketmq_py.address import normal_address
from rocketmq_py.admin.asking import ask_each
from rocketmq_py.admin.broker_values import BrokerListing, BrokerStatus
from rocketmq_py.admin.calling import call, tell_name_servers
from rocketmq_py.admin.part import Part
from rocketmq_py.arguments import check_not_blank, check_settings
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import MASTER_ID, KeyValueTable, read_properties, write_properties
from rocketmq_py.protocol.headers import (
    AddWritePermissionAnswer,
    AddWritePermissionRequest,
    GetBrokerConfigRequest,
    GetBrokerRuntimeInfoRequest,
    UpdateBrokerConfigRequest,
    WipeWritePermissionAnswer,
    WipeWritePermissionRequest,
)


@attrs.frozen
class _Place:
    name: str
    cluster: str
    broker_id: int
    address: str


class Brokers(Part):
    """``admin.brokers``. A broker is named by its name, which means its master, or by its address.

    All methods raise NameServerError if no name server answers, and ConfigurationError for a broker that
    name servers do not know.
    """

    async def list(self) -> BrokerListing:
        """Return all brokers of all clusters, replicas too. Java: ``clusterList``, ``brokerStatus``."""
        places = {place.address: place for place in await self._places()}
        answers = await ask_each(places, lambda address: self._status(places[address]))
        return BrokerListing(brokers=tuple(answers.values.values()), failures=answers.failures)

    async def describe(self, broker: str) -> BrokerStatus:
        """Return how a broker is doing. Raises BrokerError, ConnectError and others as a request does."""
        return await self._status(await self._place(broker))

    async def settings(self, broker: str) -> Mapping[str, str]:
        """Return a broker's settings under Java's names, sorted. Java: ``getBrokerConfig``.

        Raises BrokerError, ConnectError and others as a request does.
        """
        answer = await call(self._client, (await self._place(broker)).address, GetBrokerConfigRequest())
        return dict(sorted(read_properties(answer.body).items()))

    async def alter(self, broker: str, settings: Mapping[str, str]) -> None:
        """Change settings of a broker; it keeps them in its file. Java: ``updateBrokerConfig``.

        Some take effect at its next start only. A broker does not say that a value is of the wrong kind.

        Raises:
            ConfigurationError: the broker has no such setting, or a value cannot be written; nothing was
                changed.
            BrokerError, ConnectError and others: as a request does.
        """
        settings = check_settings(settings, "settings")
        body = write_properties(settings)
        known = await self.settings(broker)
        if unknown := sorted(settings.keys() - known.keys()):
            raise ConfigurationError(f"broker {broker!r} has no setting {', '.join(unknown)}")
        await call(self._client, (await self._place(broker)).address, UpdateBrokerConfigRequest(), body)

    async def wipe_write_permission(self, broker: str) -> int:
        """Have producers stop sending to a broker, before it is taken away; consumers go on.

        All name servers are told; the broker's own settings stay as they are, and it is written to again
        when it starts anew. Java: ``wipeWritePerm``.

        Returns:
            How many of its topics could be written to.

        Raises:
            SomeBrokersFailedError: not all of several name servers did it; of a single one its own error.
        """
        place = await self._place(broker)
        header = WipeWritePermissionRequest(broker=place.name)
        answers = await tell_name_servers(self._client, header, f"closing {place.name} to producers")
        return max(
            WipeWritePermissionAnswer.from_fields(answer.fields).wipe_topic_count
            for answer in answers.values()
        )

    async def add_write_permission(self, broker: str) -> int:
        """Undo :meth:`wipe_write_permission`; return how many topics that changed. Java: ``addWritePerm``.

        Raises:
            SomeBrokersFailedError: not all of several name servers did it; of a single one its own error.
        """
        place = await self._place(broker)
        header = AddWritePermissionRequest(broker=place.name)
        answers = await tell_name_servers(self._client, header, f"opening {place.name} to producers")
        return max(
            AddWritePermissionAnswer.from_fields(answer.fields).add_topic_count for answer in answers.values()
        )

    async def _status(self, place: _Place) -> BrokerStatus:
        answer = await call(self._client, place.address, GetBrokerRuntimeInfoRequest())
        details = dict(sorted(KeyValueTable.decode(answer.body).table.items()))
        return BrokerStatus.of(place.name, place.cluster, place.broker_id, place.address, details)

    async def _places(self) -> tuple[_Place, ...]:
        """Return where all brokers are, sorted by cluster, name and id."""
        info = await self._client.name_servers.cluster_info()
        clusters = {name: cluster for cluster, names in info.cluster_addr_table.items() for name in names}
        places = [
            _Place(name, clusters.get(name, broker.cluster), broker_id, address)
            for name, broker in info.broker_addr_table.items()
            for broker_id, address in broker.broker_addrs.items()
        ]
        return tuple(sorted(places, key=lambda place: (place.cluster, place.name, place.broker_id)))

    async def _place(self, broker: str) -> _Place:
        check_not_blank(broker, "broker")
        places = await self._places()
        address = normal_address(broker)
        for place in places:
            if address == place.address or (broker == place.name and place.broker_id == MASTER_ID):
                return place
        known = ", ".join(f"{place.name} ({place.address})" for place in places) or "none"
        raise ConfigurationError(f"there is no broker {broker!r}; there is {known}")
