"""The name servers of a cluster: any of them answers, and one that fails is passed over."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from rocketmq_py.client.discovery import Discovery
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.retry_log import RetryLog, RetryLogs
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerError, NameServerError, RocketMQError, TopicNotFoundError
from rocketmq_py.formatting import one_line
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.bodies import ClusterInfo, TopicList, TopicRoute
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import ConnectionPool

logger: Final = logging.getLogger("rocketmq_py.client")

DISCOVERY_BACK_OFF = 0.1
"""Seconds after a question to the URL that failed: many ask for their first route at the same time."""


class NameServers:
    """Asks one name server, and the next when that one fails. It stays with one that answers.

    Args:
        connections: how they are reached.
        addresses: them, or where a URL names them.
        namespace: whose topics are asked for.
        timeout: seconds for one request.
        refresh_interval: seconds between two looks at the URL.
        rng: chooses which one is asked first.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        addresses: Sequence[str] | Discovery,
        *,
        namespace: Namespace,
        timeout: float,
        refresh_interval: float,
        rng: random.Random,
    ) -> None:
        self._connections = connections
        self._namespace = namespace
        self._timeout = timeout
        self._refresh_interval = refresh_interval
        self._rng = rng
        self._discovery = addresses if isinstance(addresses, Discovery) else None
        url = None if self._discovery is None else self._discovery.url
        self._discovery_log = RetryLog(logger, "name server discovery", url=url)
        self._request_logs = RetryLogs(logger, "name server request", "name_server")
        self._discovering = trio.Lock()
        self._undiscoverable: Mapping[str, str] = {}
        self._undiscoverable_until = -math.inf
        self._addresses: list[str] = []
        if not isinstance(addresses, Discovery):
            self._take_over(addresses)

    @property
    def addresses(self) -> str:
        """All addresses, as a user writes them; the URL as long as it has not named any."""
        if not self._addresses and self._discovery is not None:
            return self._discovery.url
        return ";".join(sorted(self._addresses))

    async def run(self) -> None:
        """Look at the URL now and then; ends at once where there is none."""
        while self._discovery is not None:
            await trio.sleep(self._refresh_interval)
            try:
                async with self._discovering:  # what is asked for just now is not asked for twice
                    self._take_over(await self._discovery.fetch())
            except NameServerError as error:
                # Those that were named before go on being used.
                self._discovery_log.failed(error, retry_in=self._refresh_interval)
            else:
                self._discovery_log.succeeded()

    async def all_addresses(self) -> Sequence[str]:
        """Return all addresses, for what each must be told. Raises NameServerError as a request does."""
        await self._discover()
        return sorted(self._addresses)

    async def request(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Command:
        """Return the first answer that any name server gives, whatever its code is.

        A peer that does not know the request is no name server, and counts as one that fails. Raises
        NameServerError, with the reason of each, when none answers within its time-out.
        """
        await self._discover()
        reasons: dict[str, str] = {}
        for address in list(self._addresses):
            try:
                answer = await self._connections.request(address, code, fields, body, timeout=self._timeout)
            except RocketMQError as error:
                reasons[address] = str(error)
            else:
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._request_logs.succeeded(address)
                    return answer
                reasons[address] = (
                    f"{address} is no name server, but a broker perhaps: {one_line(answer.remark)}"
                )
            if len(self._addresses) > 1:
                self._request_logs.failed(address, reasons[address])
                self._pass_over(address)
        raise NameServerError(reasons)

    async def route(self, topic: str) -> TopicRoute:
        """Return where a topic's queues are.

        Raises:
            TopicNotFoundError: there is no such topic.
            NameServerError: none answered. BrokerError: one answered something else.
        """
        header = headers.GetRouteInfoRequest(
            topic=self._namespace.wrap_topic(topic), accept_standard_json_only=True
        )
        answer = await self.request(header.code, header.to_fields())
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFoundError(topic, self.addresses, self._namespace.name)
        return TopicRoute.decode(self._checked(answer).body)

    async def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers. Raises NameServerError or BrokerError."""
        answer = await self.request(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        return ClusterInfo.decode(self._checked(answer).body)

    async def topics(self) -> Sequence[str]:
        """Return all topics' names, as they are on the wire. Raises NameServerError or BrokerError."""
        answer = await self.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        return sorted(TopicList.decode(self._checked(answer).body).topic_list)

    def _checked(self, answer: Command) -> Command:
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.from_answer(answer.code, answer.remark, self._addresses[0])
        return answer

    async def _discover(self) -> None:
        """Ask the URL for the first time. Several who need an address share one question."""
        if self._discovery is None or self._addresses:
            return
        async with self._discovering:
            if self._addresses:  # another task has asked while this one waited
                return
            if trio.current_time() < self._undiscoverable_until:  # and in vain
                raise NameServerError(self._undiscoverable)
            try:
                self._take_over(await self._discovery.fetch())
            except NameServerError as error:
                self._undiscoverable = error.reasons
                self._undiscoverable_until = trio.current_time() + DISCOVERY_BACK_OFF
                raise

    def _take_over(self, addresses: Sequence[str]) -> None:
        """Use these and no others, beginning with those that are in use already."""
        new = [address for address in addresses if address not in self._addresses]
        # Each client starts with another one, so that they share the load (as Java does).
        self._rng.shuffle(new)
        gone = [address for address in self._addresses if address not in addresses]
        if self._addresses and (new or gone):
            logger.info("name servers are now %s, were %s", ";".join(sorted(addresses)), self.addresses)
        self._addresses = [address for address in self._addresses if address not in gone] + new
        for address in gone:
            self._connections.close(address, "it is no name server any more")

    def _pass_over(self, address: str) -> None:
        """Ask this one last from now on."""
        if address in self._addresses:
            self._addresses.remove(address)
            self._addresses.append(address)
