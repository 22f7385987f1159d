"""The name servers of a cluster: any of them answers, and one that fails is passed over."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerError, NameServerError, RocketMQError, TopicNotFoundError
from rocketmq_py.protocol.bodies import ClusterInfo, TopicList, TopicRoute
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import GetRouteInfoRequest
from rocketmq_py.remoting import Connections

logger = logging.getLogger("rocketmq_py.client")


class NameServers:
    """Asks one name server, and the next when that one fails. It stays with one that answers."""

    def __init__(
        self, connections: Connections, addresses: Sequence[str], *, timeout: float, rng: random.Random
    ) -> None:
        self._connections = connections
        self._addresses = list(addresses)
        # Each client starts with another one, so that they share the load (as Java does).
        rng.shuffle(self._addresses)
        self._timeout = timeout

    @property
    def addresses(self) -> str:
        """All addresses, as a user writes them."""
        return ";".join(sorted(self._addresses))

    async def request(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Command:
        """Return the first answer that any name server gives, whatever its code is.

        Raises NameServerError, with the reason of each, when none answers within its time-out.
        """
        reasons: dict[str, str] = {}
        for address in list(self._addresses):
            try:
                return await self._connections.request(address, code, fields, body, timeout=self._timeout)
            except RocketMQError as error:
                reasons[address] = str(error)
                if len(self._addresses) > 1:
                    logger.warning("name server %s: %s; trying the next", address, error)
                    self._addresses.remove(address)
                    self._addresses.append(address)
        raise NameServerError(reasons)

    async def route(self, topic: str) -> TopicRoute:
        """Return where a topic's queues are.

        Raises:
            TopicNotFoundError: there is no such topic.
            NameServerError: none answered. BrokerError: one answered something else.
        """
        header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        answer = await self.request(header.code, header.to_fields())
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFoundError(topic, self.addresses)
        return TopicRoute.decode(self._checked(answer).body)

    async def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers. Raises NameServerError or BrokerError."""
        answer = await self.request(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        return ClusterInfo.decode(self._checked(answer).body)

    async def topics(self) -> Sequence[str]:
        """Return the names of all topics. Raises NameServerError or BrokerError."""
        answer = await self.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        return sorted(TopicList.decode(self._checked(answer).body).topic_list)

    def _checked(self, answer: Command) -> Command:
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.from_answer(answer.code, answer.remark, self._addresses[0])
        return answer
