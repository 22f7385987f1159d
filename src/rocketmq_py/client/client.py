"""What all producers and consumers of one client share."""

from __future__ import annotations

import ipaddress
import os
import random
import time
from collections.abc import Callable
from typing import Final, TypeAlias, Unpack

from rocketmq_py.arguments import check_instance, optional
from rocketmq_py.callables import check_callable
from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.config import ClientConfig, ClientOptions, name_servers, split_options
from rocketmq_py.client.discovery import Discovery
from rocketmq_py.client.heartbeats import Heartbeats
from rocketmq_py.client.identity import new_client_id, outgoing_address
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.name_servers import NameServers
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.routes import Route, Routes
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.message_id import UniqueIdGenerator
from rocketmq_py.remoting import Connection, ConnectionPool, RpcHook, RpcHooks

Serve: TypeAlias = Callable[[Connection, Command], bool]
"""Takes a request of a broker, answers it at once or later, and returns True; or returns False: not mine.
It must not block."""


def wall_clock_ms() -> int:
    """Return the time of day, epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Client(Lifespan):
    """Connections, routes and heartbeats, shared. Java: ``MQClientInstance``, which is hidden there.

    Nothing is dialled before it is needed: opening one cannot fail for a cluster that is away.

    Args:
        address: name servers, ``host:port;host:port``, or a URL that says where they are; None reads
            NAMESRV_ADDR, else 127.0.0.1:9876.
        *configs: a ClientConfig, instead of its fields as keywords or beside some of them.
        rng: the source of randomness, for tests that replay a run.
        now_ms: the wall clock, epoch milliseconds.
        **options: the fields of ClientConfig. One that the ClientConfig sets, too, is refused.

    Raises:
        ConfigurationError: an address or a setting is wrong.

    Attributes:
        client_id: what brokers know this client by.
        namespace: turns the user's names into those on the wire, and back.
        unique_ids: makes the ids of messages.
        connections, name_servers, routes, heartbeats, brokers: the parts; only while it is open.
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
        given: object = address
        if given is not None and not isinstance(given, str):
            kind = type(given)
            raise ConfigurationError(
                "client is an address (host:port;host:port) or an open rocketmq_py.Client, "
                f"not {kind.__name__} of {kind.__module__}"
            )
        self.config: ClientConfig = ClientConfig(**split_options(options, ClientConfig, configs=configs)[0])
        self.namespace: Namespace = Namespace(self.config.namespace)
        self._addresses = addresses = name_servers(address, self.config)
        self.rng: Final = optional(check_instance, rng, "rng", kind=random.Random) or random.Random()
        self.host: str = outgoing_address(
            addresses.server if isinstance(addresses, Discovery) else addresses[0]
        )
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
        self._servers: dict[int, list[Serve]] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: [self._members_changed],
        }

    async def _open(self) -> None:
        config = self.config
        self.connections = ConnectionPool(
            self.nursery,
            self._answer,
            tls=config.tls,
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
        """Have a hook called around every request from now on; returns what removes it."""
        return self._rpc_hooks.add(hook)

    def on_route(self, changed: Callable[[Route], None]) -> Callable[[], None]:
        """Call ``changed`` with each route that is new or changes; returns what ends that."""
        self._on_route.append(changed)
        return lambda: self._on_route.remove(changed)

    def on_members_changed(self, group: str, changed: Callable[[], None] | None) -> None:
        """Call ``changed`` when a broker says that the group's members changed; None ends that."""
        if changed is None:
            self._on_members_changed.pop(group, None)
        else:
            self._on_members_changed[group] = changed

    def serve(self, code: int, server: Serve) -> Callable[[], None]:
        """Have ``server`` answer brokers' requests of this code; returns what ends that.

        Several members of a client may serve the same code: they are asked in turn until one takes it.
        """
        servers = self._servers.setdefault(code, [])
        servers.append(server)
        return lambda: servers.remove(server)

    def _route_changed(self, route: Route) -> None:
        self.heartbeats.submit()
        for changed in list(self._on_route):
            changed(route)

    def _answer(self, connection: Connection, request: Command) -> None:
        servers = tuple(self._servers.get(request.code, ()))  # one may end itself meanwhile
        if not any(server(connection, request) for server in servers):
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
