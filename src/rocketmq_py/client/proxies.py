"""Says which features a server does not offer, and recognizes the proxies of RocketMQ 5.x.

Managed services, proxies and older servers answer REQUEST_CODE_NOT_SUPPORTED to such requests. Brokers before
4.9.1 and name servers before 5.0.0 do not answer them, so their version is checked first. Proxies speak the
remoting protocol in front of brokers.

A proxy is a name server and all brokers of its cluster at one address. It forwards most requests of
producers and consumers to the broker that their field ``bname`` names. Those of ``_FEATURES`` and of Admin it
refuses, or does not answer at all. It adds the field MSG_REGION to all answers. Brokers add this field only
to the answers to sends and recalls, and name servers to none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from rocketmq_py.client.features import raise_if_older
from rocketmq_py.codes import RequestCode, ResponseCode, version_name
from rocketmq_py.errors import RocketMQError, UnsupportedByBrokerError
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.property_names import MESSAGE_REGION
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import GetRouteInfoRequest
from rocketmq_py.remoting import ConnectionPool

ROUTE_REQUEST: Final = GetRouteInfoRequest(topic=DEFAULT_TOPIC, accept_standard_json_only=True)
"""A request that name servers of each version, and proxies, answer."""


def is_answer_of_proxy(answer: Command) -> bool:
    """Return whether a proxy sent this answer to a heartbeat or to a request for a route."""
    return MESSAGE_REGION in answer.fields


def not_offered(address: str, code: int, version: int = 0) -> UnsupportedByBrokerError:
    """Return the error for a request that the server at ``address`` does not support.

    Args:
        address: the server's address.
        code: the request code.
        version: the server's version. 0 if it is unknown.
    """
    shown = f" (version {version_name(version)})" if version else ""
    return UnsupportedByBrokerError(f"{address}{shown} does not offer {_feature(code)}")


async def raise_not_offered(
    connections: ConnectionPool, address: str, code: int, version: int, *, timeout: float
) -> NoReturn:
    """Raise UnsupportedByBrokerError for a request that a broker does not support: with the reason, if known.

    The arguments are those of :func:`raise_if_proxy` and :func:`not_offered`.
    """
    await raise_if_proxy(connections, address, code, timeout=timeout)
    raise_if_older(address, code, version)
    raise not_offered(address, code, version)


async def raise_if_name_server(
    connections: ConnectionPool, address: str, code: int, version: int, *, timeout: float
) -> None:
    """Raise UnsupportedByBrokerError if the server at ``address`` has routes, so that it is a name server.

    The arguments are those of :func:`raise_if_proxy` and :func:`not_offered`.
    """
    if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        return
    answer = await _ask_for_route(connections, address, timeout)
    if answer is None or answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return
    if is_answer_of_proxy(answer):
        raise unsupported_by_proxy(address, code)
    raise_if_older(address, code, version)
    raise not_offered(address, code, version)


async def raise_if_proxy(connections: ConnectionPool, address: str, code: int, *, timeout: float) -> None:
    """Raise UnsupportedByBrokerError if the server at ``address`` is a proxy. Asks the server for a route.

    Args:
        connections: the connections to the server.
        address: the server, which has answered REQUEST_CODE_NOT_SUPPORTED.
        code: the code of the refused request.
        timeout: seconds for the answer. If the request fails, the server counts as no proxy.
    """
    answer = await _ask_for_route(connections, address, timeout)
    if answer is not None and is_answer_of_proxy(answer):
        raise unsupported_by_proxy(address, code)


async def _ask_for_route(connections: ConnectionPool, address: str, timeout: float) -> Command | None:
    """Return the answer of a server to a request for a route. None if the request fails."""
    code, fields = ROUTE_REQUEST.code, ROUTE_REQUEST.to_fields()
    try:
        return await connections.request(address, code, fields, timeout=timeout)
    except RocketMQError:
        return None


def unsupported_by_proxy(address: str, code: int) -> UnsupportedByBrokerError:
    """Return the error for a request that the proxy at ``address`` does not offer.

    Args:
        address: the proxy's address.
        code: the request code.
    """
    return UnsupportedByBrokerError(
        f"{address} is a proxy, which does not offer {_feature(code)}; connect to the name servers of the "
        "cluster instead"
    )


def _feature(code: int) -> str:
    """Return the feature that a request belongs to, with the request."""
    return f"{_FEATURES.get(code, 'administration')} ({RequestCode(code).name}, {code:d})"


_FEATURES: Mapping[int, str] = {
    RequestCode.POP_MESSAGE: "pop consumption",
    RequestCode.POP_LITE_MESSAGE: "lite topics",
    RequestCode.LITE_SUBSCRIPTION_CTL: "lite topics",
    RequestCode.ACK_MESSAGE: "acknowledgements of popped messages",
    RequestCode.BATCH_ACK_MESSAGE: "acknowledgements of popped messages",
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: "changes of the invisible time",
    RequestCode.QUERY_MESSAGE: "queries by key or id",
    RequestCode.VIEW_MESSAGE_BY_ID: "queries by id",
    RequestCode.SEND_REPLY_MESSAGE: "requests with replies",
    RequestCode.SEND_REPLY_MESSAGE_V2: "requests with replies",
    RequestCode.GET_EARLIEST_MSG_STORETIME: "store times of first messages",
    RequestCode.QUERY_ASSIGNMENT: "queue assignments",
    RequestCode.SEND_BATCH_MESSAGE: "batches",
    RequestCode.RECALL_MESSAGE: "recalls of timed messages",
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "offsets by time",
    RequestCode.LOCK_BATCH_MQ: "locks of queues, which ordered consumers need",
    RequestCode.GET_BROKER_CLUSTER_INFO: "information about the cluster",
    RequestCode.GET_BROKER_RUNTIME_INFO: "the status of brokers",
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: "the list of topics",
    RequestCode.UPDATE_AND_CREATE_TOPIC: "the creation and change of topics",
    RequestCode.DELETE_TOPIC_IN_BROKER: "the deletion of topics",
    RequestCode.DELETE_TOPIC_IN_NAMESRV: "the deletion of topics",
    RequestCode.GET_ALL_TOPIC_CONFIG: "the settings of topics",
    RequestCode.GET_TOPIC_CONFIG: "the settings of topics",
    RequestCode.GET_TOPIC_STATS_INFO: "the state of topics",
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: "the creation and change of groups",
    RequestCode.DELETE_SUBSCRIPTIONGROUP: "the deletion of groups",
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "the settings of groups",
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: "the settings of groups",
    RequestCode.GET_CONSUME_STATS: "the state of groups",
    RequestCode.GET_CONSUMER_CONNECTION_LIST: "the members of groups",
    RequestCode.GET_PRODUCER_CONNECTION_LIST: "the members of producer groups",
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: "resets of offsets",
    RequestCode.GET_BROKER_CONFIG: "the settings of brokers",
    RequestCode.UPDATE_BROKER_CONFIG: "the settings of brokers",
    RequestCode.GET_NAMESRV_CONFIG: "the settings of name servers",
    RequestCode.UPDATE_NAMESRV_CONFIG: "the settings of name servers",
}
"""Features that servers may not offer, by request code. All other refused requests are those of Admin."""
