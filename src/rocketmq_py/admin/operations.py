"""Base class of the operations of ``Admin``, and requests to single brokers and name servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rocketmq_py.admin.fan_out import change_each
from rocketmq_py.arguments import check_text, check_texts, optional
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.features import FEATURE_OF_REQUEST, Feature, raise_if_older
from rocketmq_py.client.proxies import ROUTE_REQUEST, raise_not_offered
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import ConfigurationError, NoQueueError
from rocketmq_py.protocol.bodies import MASTER_ID, BrokerData
from rocketmq_py.protocol.bodies.base import Body
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers.base import Request
from rocketmq_py.remoting.answer_errors import broker_error


class Operations:
    """The operations of ``Admin`` on one kind of resource, such as ``admin.topics``.

    Args:
        client: returns the client, or raises ClosedError.
    """

    def __init__(self, client: Callable[[], ClientCore]) -> None:
        self._open_client = client

    @property
    def _client(self) -> ClientCore:
        return self._open_client()

    async def _select_brokers(
        self, brokers: Iterable[str] | None = None, cluster: str | None = None
    ) -> Mapping[str, BrokerData]:
        """Return the brokers with these names, those of a cluster, or all.

        Raises:
            ConfigurationError: the cluster or a broker does not exist.
            NameServerError: no name server answered.
            NoQueueError: no broker is registered.
        """
        names = optional(check_texts, brokers, "brokers")
        optional(check_text, cluster, "cluster")
        info = await self._client.name_servers.cluster_with_brokers()
        known = info.broker_addr_table
        if cluster is not None:
            if cluster not in info.cluster_addr_table:
                raise ConfigurationError(
                    f"cluster {cluster!r} does not exist; clusters: {_joined(info.cluster_addr_table)}"
                )
            known = {name: known[name] for name in info.cluster_addr_table[cluster] if name in known}
        if names is None:
            return dict(sorted(known.items()))
        selected = list(dict.fromkeys(names))
        return {name: broker_named(name, known) for name in selected}


def _joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def broker_named(name: str, brokers: Mapping[str, BrokerData]) -> BrokerData:
    """Return the broker with a name. Raises ConfigurationError if it does not exist."""
    if name not in brokers:
        raise ConfigurationError(f"broker {name!r} does not exist; brokers: {_joined(brokers)}")
    return brokers[name]


def master_address(broker: BrokerData) -> str:
    """Return the address of a broker's master. Raises NoQueueError if it has none at the moment."""
    if MASTER_ID not in broker.broker_addrs:
        raise NoQueueError(f"broker {broker.broker_name!r} has no master at the moment; try again later")
    return broker.broker_addrs[MASTER_ID]


def any_address(broker: BrokerData) -> str:
    """Return the address of a broker's master, or of a replica if it has no master at the moment.

    Raises NoQueueError if it has neither.
    """
    if not broker.broker_addrs:
        raise NoQueueError(f"broker {broker.broker_name!r} has no address at the moment; try again later")
    return broker.broker_addrs[min(broker.broker_addrs)]


async def call_broker(client: ClientCore, address: str, header: Request, body: Body | bytes = b"") -> Command:
    """Send a request to the broker at ``address`` and return its successful response.

    Raises:
        UnsupportedByBrokerError: the broker does not support this request.
        BrokerError: the broker answered with another error.
        ConnectError and others: as ``BrokerCalls.call`` does.
    """
    return await client.brokers.call(address, header, body)


async def call_name_server(client: ClientCore, address: str, header: Request, body: bytes = b"") -> Command:
    """Send a request to the name server at ``address`` and return its successful response.

    Raises as :func:`call_broker` does.
    """
    connections, timeout = client.connections, client.settings.request_timeout
    if header.code in FEATURE_OF_REQUEST:
        # Every answer contains the version.
        route = await connections.request(
            address, ROUTE_REQUEST.code, ROUTE_REQUEST.to_fields(), timeout=timeout
        )
        raise_if_older(address, header.code, route.version)
    fields = client.brokers.fields(header)
    answer = await connections.request(address, header.code, fields, body, timeout=timeout)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        await raise_not_offered(connections, address, header.code, answer.version, timeout=timeout)
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark, address)
    return answer


async def call_all_name_servers(
    client: ClientCore, header: Request, action: str, body: bytes = b""
) -> Mapping[str, Command]:
    """Send a request to every name server, since they do not share state. Return responses by address.

    Raises:
        SomeBrokersFailedError: the change failed on some of several name servers. With a single one its own
            error is raised.
    """
    return await change_each(
        await client.name_servers.all_addresses(),
        lambda address: call_name_server(client, address, header, body),
        action,
    )


async def require_feature(client: ClientCore, address: str, feature: Feature, name: str) -> None:
    """Raise UnsupportedByBrokerError if the broker at ``address`` is too old for a feature.

    Args:
        client: the client.
        address: the broker's address.
        feature: the feature.
        name: describes the feature more closely, for the error.
    """
    feature.require(address, await client.brokers.version(address), name=name)
