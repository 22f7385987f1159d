"""The core of a client: its connections, routes and heartbeats."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias, TypeVar, Unpack

from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.discovery import Discovery
from rocketmq_py.client.health import ClientHealth, ServerHealth, find_reasons
from rocketmq_py.client.heartbeats import Heartbeats
from rocketmq_py.client.identity import new_client_id, outgoing_address
from rocketmq_py.client.lifespan import Lifespan, from_any_thread, start_soon
from rocketmq_py.client.name_servers import NameServers
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.routes import Route, Routes
from rocketmq_py.client.settings import (
    ClientOptions,
    ClientSettings,
    name_servers,
    namespace_of,
    split_options,
    unencrypted_https,
    uses_start_deliver_time,
    zone_of,
)
from rocketmq_py.client.unused_connections import UnusedConnections
from rocketmq_py.codes import ResponseCode
from rocketmq_py.environment import current_environment, wall_clock_ms
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers.base import Request
from rocketmq_py.protocol.message_id import UniqueIdGenerator
from rocketmq_py.queues import is_logical_broker_name
from rocketmq_py.remoting import Connection, ConnectionPool, RpcHook, RpcHooks

HeaderT = TypeVar("HeaderT", bound=Request)
Result = TypeVar("Result")

MAX_BUFFERED: Final = 4 * 1024 * 1024
"""Bytes in the buffer of a connection above which senders wait."""
NAME_SERVER_REFRESH_SECONDS: Final = 120.0
"""Seconds between two requests to the URL for name servers, and between two lookups of their host names."""

RequestHandler: TypeAlias = Callable[[Connection, Command, HeaderT], bool]
"""Takes a request of a broker and its header, answers it now or later, and returns True. Returns False if the
request is for another handler. Must not block."""


class _Body(Protocol):
    """The body of an answer."""

    def encode(self) -> bytes: ...


class ClientCore(Lifespan):
    """Connections, routes and heartbeats that producers and consumers share. Java: ``MQClientInstance``.

    Each Client, and each producer and consumer that does not share one, has a core. Connections are dialled
    when they are needed. Opening it succeeds even if the cluster is down.

    Args:
        address: name servers as ``host:port;host:port``, also with ``http://`` in front, or a URL with a path
            that returns their addresses. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        **options: the settings of a Client.

    Raises:
        ConfigurationError: an address or a setting is invalid.

    Attributes:
        client_id: the id that brokers know this client by.
        namespace: converts the user's names of topics and groups to those on the wire, and back.
        uses_start_deliver_time: whether the address is of a service that delivers timed messages by the
            property __STARTDELIVERTIME.
        unique_ids: generates the ids of messages.
        connections, name_servers, routes, heartbeats, brokers: the parts, set when it is opened.
        settings: the settings.
        rpc_hooks: the hooks around requests.
        host: the IP address of this machine towards the name servers.
        rng, now_ms: the source of randomness, and the wall clock.
    """

    connections: ConnectionPool
    name_servers: NameServers
    routes: Routes
    heartbeats: Heartbeats
    brokers: BrokerCalls

    def __init__(
        self,
        address: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__()
        given: object = address  # type checkers consider the check impossible
        if given is not None and not isinstance(given, str):
            kind = type(given)
            raise ConfigurationError(
                "client must be an address (host:port;host:port) or an open rocketmq_py.Client, "
                f"not {kind.__name__} of {kind.__module__}"
            )
        (settings,) = split_options(options, ClientSettings)
        self.settings: ClientSettings = ClientSettings(**settings)
        self._addresses = addresses = name_servers(address, self.settings)
        self._unencrypted_https = unencrypted_https(address, self.settings)
        self.namespace: Namespace = Namespace(namespace_of(address, self.settings))
        self.uses_start_deliver_time: bool = uses_start_deliver_time(address)
        environment = current_environment()
        self.rng: Final = environment.random()
        self.now_ms: Final = environment.now_ms or wall_clock_ms
        server = addresses.server if isinstance(addresses, Discovery) else addresses[0]
        proxy = self.settings.proxy
        self.host: str = outgoing_address(server if proxy is None else proxy.address)
        self.client_id: str = new_client_id(
            self.host, self.settings.instance_name, self.rng, unit_name=self.settings.unit_name
        )
        self.unique_ids: UniqueIdGenerator = UniqueIdGenerator(
            ipaddress.ip_address(self.host).packed, process_id=os.getpid, now_ms=self.now_ms, random=self.rng
        )
        self.rpc_hooks: RpcHooks = RpcHooks()
        self._on_route: list[Callable[[Route], None]] = []
        self._on_members_changed: dict[str, Callable[[], None]] = {}
        self._request_handlers: dict[int, list[tuple[type[Request], RequestHandler[Any]]]] = {}
        self.add_request_handler(headers.NotifyConsumerIdsChangedRequest, self._members_changed)

    @property
    def _name(self) -> str:
        return "Client"

    async def _open(self) -> None:
        config = self.settings
        self.connections = ConnectionPool(
            self._nursery,
            self._handle_request,
            tls=config.tls,
            proxy=config.proxy,
            credentials=config.credentials,
            namespace_v2=config.namespace_v2,
            hooks=self.rpc_hooks,
            max_buffered=MAX_BUFFERED,
            connect_timeout=config.connect_timeout,
            rng=self.rng,
            on_open=lambda connection: self._nursery.start_soon(self.heartbeats.send_anew, connection),
        )
        self.name_servers = NameServers(
            self.connections,
            self._addresses,
            namespace=self.namespace,
            timeout=config.request_timeout,
            refresh_interval=NAME_SERVER_REFRESH_SECONDS,
            resolves_names=config.proxy is None,
            unencrypted_https=self._unencrypted_https,
            zone=zone_of(config),
            rng=self.rng,
        )
        self.routes = Routes(
            self.name_servers,
            refresh_interval=config.route_refresh_interval,
            on_change=self._route_changed,
        )
        self.heartbeats = Heartbeats(
            self._nursery,
            self.client_id,
            self.connections,
            self.routes,
            namespace=self.namespace,
            unit_mode=config.unit_mode,
            interval=config.heartbeat_interval,
            timeout=config.request_timeout,
        )
        self.brokers = BrokerCalls(
            self.connections,
            self.routes,
            namespace=self.namespace,
            vip_channel=config.vip_channel,
            timeout=config.request_timeout,
        )
        self._nursery.start_soon(self.name_servers.run)
        self._nursery.start_soon(self.routes.run)
        self._nursery.start_soon(self.heartbeats.run)
        self._nursery.start_soon(UnusedConnections(self.connections, self.routes, self.brokers).run)

    async def _close(self) -> None:
        await self.connections.aclose()

    def add_rpc_hook(self, hook: RpcHook) -> Callable[[], None]:
        """Add a hook that runs around every request. Returns a function that removes it."""
        return self.rpc_hooks.add(hook)

    @from_any_thread
    def health(self) -> ClientHealth:
        """Return whether the name servers and brokers can be reached. For readiness probes.

        This does not wait. In the background, it asks a name server unless one is connected and has answered,
        and opens missing connections to brokers, so that the next call knows more. A client that is not open
        is unhealthy.
        """
        if not self.is_open:
            return ClientHealth(reasons=(str(self._not_open()),))
        self._check_open()  # raises in another thread
        brokers = tuple(self._broker_health())
        name_servers = self.name_servers.health()
        has_answer = self.name_servers.has_answer
        if not has_answer or not any(one.connected for one in name_servers):
            start_soon(self._nursery, self.name_servers.check)
        routes = filter(None, map(self.routes.get_nowait, self.routes.topics()))
        return ClientHealth(
            reasons=find_reasons(
                name_servers,
                brokers,
                [(route.topic, route.brokers) for route in routes],
                has_answer=has_answer,
            ),
            name_servers=name_servers,
            brokers=brokers,
            route_age=self.routes.oldest_age(),
        )

    def _broker_health(self) -> Iterator[ServerHealth]:
        for name, addresses in sorted(self.routes.brokers().items()):
            if not addresses or is_logical_broker_name(name):
                continue
            address = addresses[min(addresses)]
            connected = self.connections.get_nowait(address) is not None
            heartbeat_age, error = self.heartbeats.health(address)
            yield ServerHealth(
                address=address,
                broker_name=name,
                connected=connected,
                heartbeat_age=heartbeat_age,
                error=error or self.connections.failure(address),
            )
            if not connected:
                with suppress(RocketMQError):  # the client closes
                    self.connections.dial_soon(address)

    def watch_routes(self, changed: Callable[[Route], None]) -> Callable[[], None]:
        """Call ``changed`` with each new or changed route. Returns a function that ends this."""
        self._on_route.append(changed)
        return lambda: self._on_route.remove(changed)

    def watch_members(self, group: str, changed: Callable[[], None] | None) -> None:
        """Call ``changed`` when a broker reports a change of the group's members. None ends this."""
        group = self.namespace.unwrap_group(group)
        if changed is None:
            self._on_members_changed.pop(group, None)
        else:
            self._on_members_changed[group] = changed

    def add_request_handler(
        self, header: type[HeaderT], handler: RequestHandler[HeaderT]
    ) -> Callable[[], None]:
        """Pass brokers' requests of this type to ``handler``. Returns a function that ends this.

        Several handlers may have the same type. They are called in order until one returns True. The names in
        the header are the user's. :meth:`body_of` and :meth:`respond` convert those in bodies.
        """
        handlers = self._request_handlers.setdefault(header.code, [])
        handlers.append((header, handler))
        return lambda: handlers.remove((header, handler))

    def body_of(self, request: Command, decode: Callable[[bytes], Result]) -> Result:
        """Return the decoded body of a broker's request, with the user's names."""
        return self.namespace.unwrap(decode(request.body))

    def respond(self, connection: Connection, request: Command, body: _Body) -> None:
        """Answer a broker's request with success. The names in ``body`` are the user's."""
        connection.respond(request, ResponseCode.SUCCESS, body=self.namespace.wrap(body).encode())

    def _route_changed(self, route: Route) -> None:
        self.heartbeats.route_changed()
        for changed in list(self._on_route):
            changed(route)

    def _handle_request(self, connection: Connection, request: Command) -> None:
        handlers = tuple(self._request_handlers.get(request.code, ()))  # a handler may remove itself
        if not any(
            handle(connection, request, self.namespace.unwrap(header.from_fields(request.fields)))
            for header, handle in handlers
        ):
            connection.respond(
                request,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"this client does not serve request {request.code}",
            )

    def _members_changed(
        self, _: Connection, __: Command, header: headers.NotifyConsumerIdsChangedRequest
    ) -> bool:
        changed = self._on_members_changed.get(header.consumer_group)
        if changed is not None:
            changed()
        return True
