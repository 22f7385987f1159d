"""Recognizes the proxies of RocketMQ 5.x, which speak the remoting protocol in front of brokers.

A proxy is a name server and all brokers of its cluster at one address. It forwards most requests of
producers and consumers to the broker that their field ``bname`` names. Those of ``_FEATURES`` and of Admin it
refuses, or does not answer at all. It adds the field MSG_REGION to all answers. Brokers add this field only
to the answers to sends and recalls, and name servers to none.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import RocketMQError, UnsupportedByBrokerError
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.property_names import MESSAGE_REGION
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import GetRouteInfoRequest
from rocketmq_py.remoting import ConnectionPool


def is_answer_of_proxy(answer: Command) -> bool:
    """Return whether a proxy sent this answer to a heartbeat or to a request for a route."""
    return MESSAGE_REGION in answer.fields


async def raise_if_proxy(connections: ConnectionPool, address: str, code: int, *, timeout: float) -> None:
    """Raise UnsupportedByBrokerError if the server at ``address`` is a proxy. Asks the server for a route.

    Args:
        connections: the connections to the server.
        address: the server, which has answered REQUEST_CODE_NOT_SUPPORTED.
        code: the code of the refused request.
        timeout: seconds for the answer. If the request fails, the server counts as no proxy.
    """
    if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        return  # a proxy answers this one, so the server is none
    header = GetRouteInfoRequest(topic=DEFAULT_TOPIC, accept_standard_json_only=True)
    try:
        answer = await connections.request(address, header.code, header.to_fields(), timeout=timeout)
    except RocketMQError:
        return
    if is_answer_of_proxy(answer):
        raise unsupported_by_proxy(address, code)


def unsupported_by_proxy(address: str, code: int) -> UnsupportedByBrokerError:
    """Return the error for a request that the proxy at ``address`` does not offer.

    Args:
        address: the proxy's address.
        code: the request code.
    """
    return UnsupportedByBrokerError(
        f"{address} is a proxy, which does not offer {_FEATURES.get(code, 'administration')} "
        f"({RequestCode(code).name}, {code:d}); connect to the name servers of the cluster instead"
    )


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
}
"""What a proxy does not offer, by request code. Any other refused request is one of Admin."""
