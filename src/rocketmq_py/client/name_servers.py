"""Requests to the name servers of a cluster, with failover from one to the next."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import trio

from rocketmq_py.address import format_address, split_address
from rocketmq_py.client.discovery import Discovery
from rocketmq_py.client.flow_control import ask_within
from rocketmq_py.client.health import ServerHealth
from rocketmq_py.client.host_lookup import has_host_name, resolve_hosts
from rocketmq_py.client.namespace import Namespace, missing_topic_advice
from rocketmq_py.client.proxies import raise_if_name_server
from rocketmq_py.client.retry_log import RetryLog, RetryLogs
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.error_texts import one_line
from rocketmq_py.errors import (
    ConnectError,
    ConnectionLostError,
    Delivery,
    NameServerError,
    NoQueueError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UnsupportedByBrokerError,
)
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.bodies import ClusterInfo, TopicList, TopicRoute
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import ConnectionPool
from rocketmq_py.remoting.answer_errors import broker_error
from rocketmq_py.remoting.back_off import BackOff
from rocketmq_py.remoting.reachability import RECHECK_SECONDS

logger: Final = LibraryLogger("rocketmq_py.client")

DISCOVERY_BACK_OFF = 0.1
"""Seconds between two discoveries while calls wait for the first addresses."""
LOOKUP_INTERVAL = 1.0
"""Minimum seconds between two lookups of host names because no name server answers."""
FAILOVER_SECONDS = 1.0
"""Seconds that a name server has to answer if there is another one to ask. The last has the whole timeout."""
RETRY_PAUSE = 0.1
"""Seconds until the name servers are asked again if none can be reached."""
REGISTRATION_BACK_OFF: Final = BackOff(0.1, longest=0.8)
"""Seconds until the name servers are asked again if no broker is registered."""

Found = TypeVar("Found")


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
        unencrypted_https: the addresses that the user has written with ``https://``, although TLS is off.
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
        unencrypted_https: Collection[str] = (),
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
        self._unencrypted_https = unencrypted_https
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
        """Return all addresses, for requests to every name server.

        Raises NameServerError if there are none within the timeout, because the URL does not return them.
        """
        await self._discover(trio.current_time() + self._timeout)
        return sorted(self._addresses)

    async def request(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Command:
        """Send a request to the name servers one after the other, and return the first answer.

        The answer may have any code but REQUEST_CODE_NOT_SUPPORTED. A peer that answers with that, also to a
        request for a route, is not a name server.

        While none can be reached, no host name can be resolved, or the URL does not return addresses, this
        tries again, up to ``timeout`` seconds.

        Raises:
            NameServerError: none answered within FAILOVER_SECONDS, the last not within the timeout. It has a
                reason for each name server.
            UnsupportedByBrokerError: the name server, or a proxy in its place, does not offer this request.
        """
        return (await self._request(code, fields, body))[1]

    async def _request(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> tuple[str, Command]:
        """Request as :meth:`request`, and return also the address of the name server that has answered."""
        deadline = trio.current_time() + self._timeout
        await self._discover(deadline)
        while True:
            answer, errors = await self._request_once(code, fields, body)
            if answer is not None:
                return answer
            if trio.current_time() >= deadline or not any(map(_may_pass, errors.values())):
                raise self._no_answer(errors)
            await self._wait_for_any(deadline)

    async def _request_once(
        self, code: int, fields: Mapping[str, str], body: bytes
    ) -> tuple[tuple[str, Command] | None, Mapping[str, RocketMQError]]:
        """Ask each name server once. Return the first answer with its address, and the errors of others."""
        errors: dict[str, RocketMQError] = {}
        answer = await self._request_from(self._addresses, code, fields, body, errors)
        if answer is None and self._has_names:
            await self._look_up_again()
            new = [address for address in self._addresses if address not in errors]
            answer = await self._request_from(new, code, fields, body, errors)
        return answer, errors

    async def _wait_for_any(self, deadline: float) -> None:
        """Wait until a name server can be reached, but look at the addresses again after a second."""
        pause = RETRY_PAUSE if self._addresses else RECHECK_SECONDS
        await trio.sleep(min(pause, deadline - trio.current_time()))
        if self._addresses:
            recheck_at = min(deadline, trio.current_time() + RECHECK_SECONDS)
            with suppress(ConnectError, RequestTimeoutError):
                await self._connections.get_any_before(self._addresses, recheck_at)

    async def _request_from(
        self,
        addresses: Sequence[str],
        code: int,
        fields: Mapping[str, str],
        body: bytes,
        errors: dict[str, RocketMQError],
    ) -> tuple[str, Command] | None:
        """Return the first answer of some name servers, with its address.

        If none answers, add their errors to ``errors``. One that cannot be reached is skipped.
        """
        left = len(addresses)
        for address in list(addresses):
            left -= 1
            timeout = min(self._timeout, FAILOVER_SECONDS) if left else self._timeout
            try:
                answer = await self._request_one(address, code, fields, body, timeout)
            except RocketMQError as error:
                errors[address] = error
            else:
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._request_logs.succeeded(address)
                    self._errors[address] = None
                    return address, answer
                try:
                    await raise_if_name_server(
                        self._connections, address, code, answer.version, timeout=self._timeout
                    )
                except UnsupportedByBrokerError:
                    self._request_logs.succeeded(address)
                    self._errors[address] = None  # it answers
                    raise
                errors[address] = RocketMQError(
                    f"{address} is not a name server, but perhaps a broker: {one_line(answer.remark)}"
                )
            self._errors[address] = self._reason(address, errors[address])
            if len(self._addresses) > 1:
                self._request_logs.failed(address, errors[address])
                self._move_to_end(address)
        return None

    def _reason(self, address: str, error: RocketMQError) -> str:
        """Return the text of an error, with advice if the user may expect TLS."""
        if self._unencrypted_https:
            host, port = split_address(address)
            given = format_address((self._connections.host_names.get(address, host), port))
            if given in self._unencrypted_https:
                return f"{error}; the address begins with https://, but TLS is off: pass tls=True"
        return str(error)

    def _no_answer(self, errors: Mapping[str, RocketMQError]) -> NameServerError:
        """Return the error of a request that no name server has answered."""
        no_answer = NameServerError(
            {address: self._reason(address, error) for address, error in errors.items()}
        )
        no_answer._not_reached = any(
            _may_pass(error) or isinstance(error, RequestTimeoutError) for error in errors.values()
        )
        return no_answer

    async def _request_one(
        self, address: str, code: int, fields: Mapping[str, str], body: bytes, timeout: float
    ) -> Command:
        deadline = trio.current_time() + timeout
        connection = await self._connections.get(address, deadline=deadline)
        ask = partial(connection.request, code, fields, body)
        return await ask_within(max(deadline - trio.current_time(), 0.0), ask)

    def not_answered(self, seconds: float) -> RocketMQError:
        """Return the error of a caller that has waited for an answer for this time."""
        if not any(map(self._connections.is_unreachable, self._addresses)):
            return RequestTimeoutError(self.addresses, seconds, Delivery.NOT_SENT)
        return self._no_answer(
            {address: self._connections.not_connected(address, seconds) for address in self._addresses}
        )

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
        full_name = self._namespace.wrap_topic(topic)
        header = headers.GetRouteInfoRequest(
            topic=full_name,
            accept_standard_json_only=True,
            zone_name=self._zone or None,
            zone_mode=True if self._zone else None,
        )
        address, answer = await self._request(header.code, header.to_fields())
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            namespace = self._namespace.name
            advice = missing_topic_advice(topic, namespace, self._unresolved)
            raise TopicNotFoundError(topic, self.addresses, namespace, full_name=full_name, advice=advice)
        return TopicRoute.decode(_body(address, answer))

    async def find_route(self, topic: str) -> TopicRoute:
        """Return the route of a topic as :meth:`route`, but wait for brokers as :meth:`until_registered`."""
        return await self.until_registered(lambda: self.route(topic))

    async def until_registered(self, look_up: Callable[[], Awaitable[Found]]) -> Found:
        """Look up a topic. Repeat it up to ``timeout`` seconds while no broker is registered.

        Name servers forget the topics of a broker whose process ends until it is back. ``look_up`` raises
        TopicNotFoundError then. This raises it if the topic is still missing, and other errors at once.
        """
        pauses, was_empty = _registration_pauses(trio.current_time() + self._timeout), False
        while True:
            try:
                return await look_up()
            except TopicNotFoundError as error:
                is_empty = error._not_reached or await self.has_no_broker(error)
                # A broker may have registered between the two requests.
                if not (is_empty or was_empty) or (pause := next(pauses, None)) is None:
                    raise
                was_empty = is_empty
            await trio.sleep(pause)

    async def has_no_broker(self, missing: TopicNotFoundError) -> bool:
        """Whether no broker is registered, which ``missing`` then says. False if no name server answers."""
        try:
            if (await self.cluster_info()).broker_addr_table:
                return False
        except RocketMQError:
            return False
        missing._not_reached = True
        missing.args = (f"{missing}; no broker is registered there at the moment",)
        return True

    async def cluster_with_brokers(self) -> ClusterInfo:
        """Return all clusters and brokers. Wait up to ``timeout`` seconds until one is registered.

        Raises NoQueueError if none is, and as :meth:`cluster_info`.
        """
        pauses = _registration_pauses(trio.current_time() + self._timeout)
        while not (info := await self.cluster_info()).broker_addr_table:
            if (pause := next(pauses, None)) is None:
                error = NoQueueError(f"no broker is registered at the name servers {self.addresses}")
                error._not_reached = True
                raise error
            await trio.sleep(pause)
        return info

    async def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers. Raises NameServerError or BrokerError."""
        return ClusterInfo.decode(_body(*await self._request(RequestCode.GET_BROKER_CLUSTER_INFO, {})))

    async def topics(self) -> Sequence[str]:
        """Return the names of all topics with their namespaces. Raises NameServerError or BrokerError."""
        answer = await self._request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        return sorted(TopicList.decode(_body(*answer)).topic_list)

    async def _discover(self, deadline: float) -> None:
        """Make the first discovery or lookup, and repeat it until the deadline. Concurrent tasks share it."""
        while not self._addresses:
            async with self._discovery_lock:
                if self._addresses:  # another task has found them while this one waited
                    return
                if trio.current_time() >= self._no_discovery_until:
                    try:
                        await self._fetch()
                    except NameServerError as error:
                        self._discovery_errors = error.reasons
                        self._no_discovery_until = trio.current_time() + DISCOVERY_BACK_OFF
                    else:
                        return
            if trio.current_time() >= deadline:
                raise NameServerError(self._discovery_errors)
            await trio.sleep_until(min(self._no_discovery_until, deadline))

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


def _registration_pauses(deadline: float) -> Iterator[float]:
    """Yield the seconds to wait before each further request, until the deadline."""
    requests = 1
    while (left := deadline - trio.current_time()) > 0:
        yield min(REGISTRATION_BACK_OFF.after(requests), left)
        requests += 1


def _may_pass(error: RocketMQError) -> bool:
    """Whether a name server may answer soon: it cannot be reached now, or has closed the connection."""
    return error._not_reached or isinstance(error, ConnectionLostError)


def _body(address: str, answer: Command) -> bytes:
    """Return the body of a successful answer. Raises BrokerError that names ``address``."""
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark, address)
    return answer.body
