"""Requests to the name servers of a cluster, with failover from one to the next."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from rocketmq_py.client.discovery import Discovery
from rocketmq_py.client.health import ServerHealth
from rocketmq_py.client.host_lookup import has_host_name, resolve_hosts
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.proxies import raise_if_proxy
from rocketmq_py.client.retry_log import RetryLog, RetryLogs
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.error_texts import one_line
from rocketmq_py.errors import NameServerError, RocketMQError, TopicNotFoundError
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.bodies import ClusterInfo, TopicList, TopicRoute
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import ConnectionPool
from rocketmq_py.remoting.answer_errors import broker_error

logger: Final = logging.getLogger("rocketmq_py.client")

DISCOVERY_BACK_OFF = 0.1
"""Seconds after a failed discovery in which no other is made: many tasks may need their first route."""
LOOKUP_INTERVAL = 1.0
"""Minimum seconds between two lookups of host names because no name server answers."""


class NameServers:
    """Sends requests to one name server, and to the next if that fails.

    A host name with several addresses stands for several name servers. It is looked up before the first
    request, every ``refresh_interval`` seconds, and if no name server answers.

    Args:
        connections: the connections to name servers.
        addresses: the addresses, or the Discovery that fetches them.
        namespace: converts the names of topics.
        timeout: seconds for one request.
        refresh_interval: seconds between two discoveries or lookups of host names.
        resolves_names: whether to look up host names here. If False, a proxy does.
        zone: the zone whose brokers routes contain. Empty for all brokers.
        rng: chooses the first name server.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        addresses: Sequence[str] | Discovery,
        *,
        namespace: Namespace,
        timeout: float,
        refresh_interval: float,
        resolves_names: bool = True,
        zone: str = "",
        rng: random.Random,
    ) -> None:
        self._connections = connections
        self._namespace = namespace
        self._timeout = timeout
        self._refresh_interval = refresh_interval
        self._rng = rng
        self._discovery = addresses if isinstance(addresses, Discovery) else None
        self._resolves_names = resolves_names
        self._zone = zone
        # The configured or discovered addresses, whose hosts may be names.
        self._unresolved: Sequence[str] = () if isinstance(addresses, Discovery) else addresses
        url = None if self._discovery is None else self._discovery.url
        self._discovery_log = RetryLog(logger, "name server discovery", url=url)
        self._request_logs = RetryLogs(logger, "name server request", "name_server")
        self._discovery_lock = trio.Lock()
        self._discovery_errors: Mapping[str, str] = {}
        self._no_discovery_until = -math.inf
        self._no_lookup_until = -math.inf
        self._addresses: list[str] = []
        # The error of the last request to each address. None after an answer.
        self._errors: dict[str, str | None] = {}
        self._is_checking = False
        if self._discovery is None and not self._has_names:
            self._set_addresses(self._unresolved)

    @property
    def addresses(self) -> str:
        """All addresses as ``host:port;host:port``. Before the first discovery, its URL."""
        if not self._addresses and self._discovery is not None:
            return self._discovery.url
        return ";".join(sorted(self._addresses or self._unresolved))

    @property
    def _has_names(self) -> bool:
        return self._resolves_names and any(map(has_host_name, self._unresolved))

    async def run(self) -> None:
        """Repeat the discovery, or the lookup of host names, every ``refresh_interval`` seconds.

        Return at once if all addresses are fixed.
        """
        while self._discovery is not None or self._has_names:
            await trio.sleep(self._refresh_interval)
            try:
                async with self._discovery_lock:
                    await self._fetch()
            except NameServerError as error:
                # The known addresses remain in use.
                self._discovery_log.failed(error, retry_in=self._refresh_interval)
            else:
                self._discovery_log.succeeded()

    async def all_addresses(self) -> Sequence[str]:
        """Return all addresses, for requests to every name server. Raises NameServerError without any."""
        await self._discover()
        return sorted(self._addresses)

    async def request(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Command:
        """Send a request to the name servers one after the other, and return the first answer.

        The answer may have any code but REQUEST_CODE_NOT_SUPPORTED. A peer that answers with that is not a
        name server.

        Raises:
            NameServerError: none answered within its timeout. The error has a reason for each name server.
            UnsupportedByBrokerError: the address is a proxy's, which does not offer this request.
        """
        return (await self._request(code, fields, body))[1]

    async def _request(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> tuple[str, Command]:
        """Request as :meth:`request`, and return also the address of the name server that has answered."""
        await self._discover()
        reasons: dict[str, str] = {}
        answer = await self._request_from(self._addresses, code, fields, body, reasons)
        if answer is None and self._has_names:
            await self._look_up_again()
            new = [address for address in self._addresses if address not in reasons]
            answer = await self._request_from(new, code, fields, body, reasons)
        if answer is None:
            raise NameServerError(reasons)
        return answer

    async def _request_from(
        self,
        addresses: Sequence[str],
        code: int,
        fields: Mapping[str, str],
        body: bytes,
        reasons: dict[str, str],
    ) -> tuple[str, Command] | None:
        """Return the first answer of some name servers, with its address.

        If none answers, add their reasons to ``reasons``.
        """
        for address in list(addresses):
            try:
                answer = await self._connections.request(address, code, fields, body, timeout=self._timeout)
            except RocketMQError as error:
                reasons[address] = str(error)
            else:
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._request_logs.succeeded(address)
                    self._errors[address] = None
                    return address, answer
                await raise_if_proxy(self._connections, address, code, timeout=self._timeout)
                reasons[address] = (
                    f"{address} is not a name server, but perhaps a broker: {one_line(answer.remark)}"
                )
            self._errors[address] = reasons[address]
            if len(self._addresses) > 1:
                self._request_logs.failed(address, reasons[address])
                self._move_to_end(address)
        return None

    @property
    def is_closed(self) -> bool:
        """Whether the client closes. Its requests in flight fail, which is no failure of the servers."""
        return self._connections.is_closed

    @property
    def has_answer(self) -> bool:
        """Whether a name server has answered the last request to it."""
        return any(self._errors.get(address, "") is None for address in self._addresses)

    def health(self) -> tuple[ServerHealth, ...]:
        """Return the state of each name server, sorted by address.

        Before the first discovery or lookup: the state of its URL, or of the host names.
        """
        if not self._addresses:
            return tuple(
                ServerHealth(address=name, connected=False, error=self._discovery_errors.get(name))
                for name in self.addresses.split(";")
            )
        return tuple(
            ServerHealth(
                address=address,
                connected=self._connections.get_nowait(address) is not None,
                error=self._errors.get(address),
            )
            for address in sorted(self._addresses)
        )

    async def check(self) -> None:
        """Ask for the route of the default topic, so that :meth:`health` is up to date.

        Returns at once if another check is running. Errors are ignored.
        """
        if self._is_checking:
            return
        self._is_checking = True
        try:
            await self.route(DEFAULT_TOPIC)
        except RocketMQError:
            pass  # health() reports it
        finally:
            self._is_checking = False

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic.

        Raises:
            TopicNotFoundError: the topic does not exist.
            NameServerError: no name server answered.
            BrokerError: a name server answered with an error.
        """
        header = headers.GetRouteInfoRequest(
            topic=self._namespace.wrap_topic(topic),
            accept_standard_json_only=True,
            zone_name=self._zone or None,
            zone_mode=True if self._zone else None,
        )
        address, answer = await self._request(header.code, header.to_fields())
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFoundError(topic, self.addresses, self._namespace.name)
        return TopicRoute.decode(_body(address, answer))

    async def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers. Raises NameServerError or BrokerError."""
        return ClusterInfo.decode(_body(*await self._request(RequestCode.GET_BROKER_CLUSTER_INFO, {})))

    async def topics(self) -> Sequence[str]:
        """Return the names of all topics with their namespaces. Raises NameServerError or BrokerError."""
        answer = await self._request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        return sorted(TopicList.decode(_body(*answer)).topic_list)

    async def _discover(self) -> None:
        """Make the first discovery or lookup. Concurrent tasks share it."""
        if self._addresses:
            return
        async with self._discovery_lock:
            if self._addresses:  # another task has found them while this one waited
                return
            if trio.current_time() < self._no_discovery_until:
                raise NameServerError(self._discovery_errors)
            try:
                await self._fetch()
            except NameServerError as error:
                self._discovery_errors = error.reasons
                self._no_discovery_until = trio.current_time() + DISCOVERY_BACK_OFF
                raise

    async def _look_up_again(self) -> None:
        """Look up the host names, at most every LOOKUP_INTERVAL seconds."""
        async with self._discovery_lock:
            if trio.current_time() >= self._no_lookup_until:
                self._no_lookup_until = trio.current_time() + LOOKUP_INTERVAL
                await self._resolve()

    async def _fetch(self) -> None:
        """Make a discovery, if there is a URL, and look up the host names."""
        if self._discovery is not None:
            self._unresolved = await self._discovery.fetch()
        await self._resolve()

    async def _resolve(self) -> None:
        if not self._has_names:
            self._set_addresses(self._unresolved)
            return
        hosts = await resolve_hosts(self._unresolved, timeout=self._timeout)
        self._connections.host_names = hosts  # TLS certificates are for these names, not for the addresses
        self._set_addresses(list(hosts))

    def _set_addresses(self, addresses: Sequence[str]) -> None:
        """Replace the addresses. Those in use keep their places, new ones come last in random order."""
        new = [address for address in addresses if address not in self._addresses]
        # Clients start with different name servers, and share the load, as in Java.
        self._rng.shuffle(new)
        removed = [address for address in self._addresses if address not in addresses]
        if self._addresses and (new or removed):
            logger.info("name servers changed: now=%s before=%s", ";".join(sorted(addresses)), self.addresses)
        self._addresses = [address for address in self._addresses if address not in removed] + new
        for address in removed:
            self._errors.pop(address, None)
            self._connections.close(address, "it is not a name server of the cluster any more")

    def _move_to_end(self, address: str) -> None:
        """Make this the last name server to get requests."""
        if address in self._addresses:
            self._addresses.remove(address)
            self._addresses.append(address)


def _body(address: str, answer: Command) -> bytes:
    """Return the body of a successful answer. Raises BrokerError that names ``address``."""
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark, address)
    return answer.body
