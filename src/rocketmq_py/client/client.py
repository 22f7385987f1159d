"""The client: connections, routes and heartbeats, shared by producers and consumers."""

from __future__ import annotations

import ipaddress
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, TypeAlias, Unpack

from rocketmq_py.arguments import check_instance, optional
from rocketmq_py.callables import check_callable
from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.config import ClientConfig, ClientOptions, name_servers, split_options, zone_of
from rocketmq_py.client.discovery import Discovery
from rocketmq_py.client.health import ClientHealth, ServerHealth, find_reasons
from rocketmq_py.client.heartbeats import Heartbeats
from rocketmq_py.client.identity import new_client_id, outgoing_address
from rocketmq_py.client.lifespan import Lifespan, start_soon
from rocketmq_py.client.name_servers import NameServers
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.routes import Route, Routes
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.message_id import UniqueIdGenerator
from rocketmq_py.queues import is_logical_broker_name
from rocketmq_py.remoting import Connection, ConnectionPool, RpcHook, RpcHooks

RequestHandler: TypeAlias = Callable[[Connection, Command], bool]
"""Takes a request of a broker, answers it now or later, and returns True. Returns False if the request is for
another handler. Must not block."""


def wall_clock_ms() -> int:
    """Return the current time, epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Client(Lifespan):
    """Connections, routes and heartbeats that producers and consumers share. Java: ``MQClientInstance``.

    Connections are dialled when they are needed. Opening a client succeeds even if the cluster is down.

    Args:
        address: name servers as ``host:port;host:port``, or a URL that returns their addresses. None reads
            NAMESRV_ADDR, else 127.0.0.1:9876.
        *configs: a ClientConfig. Keywords may set fields that it leaves at their defaults.
        rng: the source of randomness, for tests that replay a run.
        now_ms: the wall clock, epoch milliseconds.
        **options: the fields of ClientConfig.

    Raises:
        ConfigurationError: an address or a setting is invalid, or a setting is given twice.

    Attributes:
        client_id: the id that brokers know this client by.
        namespace: converts the user's names of topics and groups to those on the wire, and back.
        unique_ids: generates the ids of messages.
        connections, name_servers, routes, heartbeats, brokers: the parts, set when it is opened.
        config: the settings.
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
        *configs: ClientConfig,
        rng: random.Random | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__()
        check_callable(now_ms, "now_ms", awaited=False)
        given: object = address  # type checkers consider the check impossible
        if given is not None and not isinstance(given, str):
            kind = type(given)
            raise ConfigurationError(
                "client must be an address (host:port;host:port) or an open rocketmq_py.Client, "
                f"not {kind.__name__} of {kind.__module__}"
            )
        (settings,) = split_options(options, ClientConfig, configs=configs)
        self.config: ClientConfig = ClientConfig(**settings)
        self.namespace: Namespace = Namespace(self.config.namespace)
        self._addresses = addresses = name_servers(address, self.config)
        self.rng: Final = optional(check_instance, rng, "rng", kind=random.Random) or random.Random()
        server = addresses.server if isinstance(addresses, Discovery) else addresses[0]
        proxy = self.config.proxy
        self.host: str = outgoing_address(server if proxy is None else proxy.address)
        self.client_id: str = new_client_id(
            self.host, self.config.instance_name, self.rng, unit_name=self.config.unit_name
        )
        self.now_ms = now_ms
        self.unique_ids: UniqueIdGenerator = UniqueIdGenerator(
            ipaddress.ip_address(self.host).packed, process_id=os.getpid, now_ms=now_ms, random=self.rng
        )
        self._rpc_hooks = RpcHooks()
        self._on_route: list[Callable[[Route], None]] = []
        self._on_members_changed: dict[str, Callable[[], None]] = {}
        self._request_handlers: dict[int, list[RequestHandler]] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: [self._members_changed],
        }

    async def _open(self) -> None:
        config = self.config
        self.connections = ConnectionPool(
            self.nursery,
            self._handle_request,
            tls=config.tls,
            proxy=config.proxy,
            serialization=config.serialization,
            credentials=config.credentials,
            hooks=self._rpc_hooks,
            max_buffered=config.max_buffered,
            connect_timeout=config.connect_timeout,
            on_open=lambda connection: self.nursery.start_soon(self.heartbeats.send_anew, connection),
        )
        self.name_servers = NameServers(
            self.connections,
            self._addresses,
            namespace=self.namespace,
            timeout=config.request_timeout,
            refresh_interval=config.name_server_refresh_interval,
            resolves_names=config.proxy is None,
            zone=zone_of(config),
            rng=self.rng,
        )
        self.routes = Routes(
            self.name_servers,
            default_topic_queues=config.default_topic_queues,
            refresh_interval=config.route_refresh_interval,
            on_change=self._route_changed,
        )
        self.heartbeats = Heartbeats(
            self.nursery,
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
        self.nursery.start_soon(self.name_servers.run)
        self.nursery.start_soon(self.routes.run)
        self.nursery.start_soon(self.heartbeats.run)

    async def _close(self) -> None:
        await self.connections.aclose()

    def add_rpc_hook(self, hook: RpcHook) -> Callable[[], None]:
        """Add a hook that runs around every request. Returns a function that removes it."""
        return self._rpc_hooks.add(hook)

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
            start_soon(self.nursery, self.name_servers.check)
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
                with suppress(RocketMQError):  # raised during the back-off after a failed attempt
                    self.connections.channel_nowait(address)

    def on_route(self, changed: Callable[[Route], None]) -> Callable[[], None]:
        """Call ``changed`` with each new or changed route. Returns a function that ends this."""
        self._on_route.append(changed)
        return lambda: self._on_route.remove(changed)

    def on_members_changed(self, group: str, changed: Callable[[], None] | None) -> None:
        """Call ``changed`` when a broker reports a change of the group's members. None ends this."""
        if changed is None:
            self._on_members_changed.pop(group, None)
        else:
            self._on_members_changed[group] = changed

    def add_request_handler(self, code: int, handler: RequestHandler) -> Callable[[], None]:
        """Pass brokers' requests with this code to ``handler``. Returns a function that ends this.

        Several handlers may have the same code. They are called in order until one returns True.
        """
        handlers = self._request_handlers.setdefault(code, [])
        handlers.append(handler)
        return lambda: handlers.remove(handler)

    def _route_changed(self, route: Route) -> None:
        self.heartbeats.request_round()
        for changed in list(self._on_route):
            changed(route)

    def _handle_request(self, connection: Connection, request: Command) -> None:
        handlers = tuple(self._request_handlers.get(request.code, ()))  # a handler may remove itself
        if not any(handle(connection, request) for handle in handlers):
            connection.respond(
                request,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"this client does not serve request {request.code}",
            )

    def _members_changed(self, _: Connection, request: Command) -> bool:
        group = headers.NotifyConsumerIdsChangedRequest.from_fields(request.fields).consumer_group
        changed = self._on_members_changed.get(self.namespace.unwrap_group(group))
        if changed is not None:
            changed()
        return True
