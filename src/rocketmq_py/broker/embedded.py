"""The embedded broker: a name server and a broker in this process, in memory."""

from __future__ import annotations

import errno
import ipaddress
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self, Unpack

import trio

from rocketmq_py.address import format_address, split_address
from rocketmq_py.arguments import check_instance, check_integer, check_text, optional
from rocketmq_py.broker.broker import Broker
from rocketmq_py.broker.config import BrokerConfig, BrokerOptions, config_of
from rocketmq_py.broker.dispatch import Dispatcher, topic_of
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.profile_rules import name_server_check, server_tls
from rocketmq_py.broker.topics import check_topics
from rocketmq_py.callables import check_callable
from rocketmq_py.environment import current_environment
from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection, serve
from rocketmq_py.remoting.nurseries import check_inside_trio
from rocketmq_py.shown_settings import takes_settings


@takes_settings(BrokerConfig)
class EmbeddedBroker:
    """A RocketMQ name server and broker in this process, for tests, demos and development.

    Clients in any language can connect to it. It keeps everything in memory, and loses it when it stops.
    Beyond ``max_store_bytes`` or ``max_store_messages`` it drops the oldest messages. It runs one broker, a
    master. ``access_keys`` restricts access to users that sign their requests. Access rules are stored and
    listed, but not enforced. Compacted topics and batch topics are not supported::

        async with EmbeddedBroker() as broker:
            async with Producer(broker.name_server_address, group="orders") as producer:
                await producer.send(Message("TopicTest", b"hello"))

    Entering it returns when both servers listen. Leaving it closes all connections and both ports, and ends
    all its tasks, as does a cancellation. It waits on trio's clock only, so tests can use ``autojump_clock``.
    It can be entered once.

    Args:
        host: the IP address to listen on.
        namesrv_port: the port of the name server; 0 for a free port.
        port: the port of the broker; 0 for a free port.
        topics: topics to create, with four queues each, or as many as a mapping gives. ``"Orders:2:FIFO"``
            has two queues and the message type FIFO.
        tls: a server-side SSL context with a certificate; None for plain text, or the profile's certificate.
        on_request: called before each request is answered, with its code, its topic or None, and the client's
            address. If it raises, the request is answered with SYSTEM_ERROR and the error, which is logged.
        **options: settings of the broker.

    Raises:
        ConfigurationError: ``host`` or ``broker_ip1`` is not an IP address, a setting is unknown (the error
            suggests the nearest name) or out of its range, or (when entering) the broker cannot listen on the
            address, for example because a port is in use.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        port: int = 0,
        *,
        topics: Mapping[str, int] | Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
        on_request: Callable[[int, str | None, str], None] | None = None,
        **options: Unpack[BrokerOptions],
    ) -> None:
        if on_request is not None:
            check_callable(on_request, "on_request", "code", "topic", "client_address", awaited=False)
        optional(check_instance, tls, "tls", kind=ssl.SSLContext)
        for name, value in (("namesrv_port", namesrv_port), ("port", port)):
            check_integer(value, name, lowest=0, highest=65_535)
        self.settings: BrokerConfig = config_of(options)
        self._topics = check_topics(topics, self.settings.profile)
        self._tls = server_tls(tls, self.settings)
        self._on_request = on_request
        self._host = host
        self._namesrv_port = namesrv_port
        self._port = port
        self._public_ip = _public_ip(host, self.settings)
        self._environment = current_environment()
        self._name_server_address: str | None = None
        self._broker_address: str | None = None
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None

    @property
    def name_server_address(self) -> str:
        """The name server's ``host:port``, for clients. Raises ClosedError before it listens."""
        return _check_listening(self._name_server_address)

    @property
    def broker_address(self) -> str:
        """The broker's ``host:port``, as in routes. Raises ClosedError before it listens."""
        return _check_listening(self._broker_address)

    async def __aenter__(self) -> Self:
        check_inside_trio(type(self).__name__, "other programs use rocketmq_py.testing.run_broker")
        if self._nursery is not None:
            raise ClosedError("an EmbeddedBroker is entered once; make a new one")
        self._nursery_manager = trio.open_nursery()
        self._nursery = await self._nursery_manager.__aenter__()
        try:
            await self._start(self._nursery)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        assert self._nursery is not None
        assert self._nursery_manager is not None
        self._nursery.cancel_scope.cancel()
        # Without the user's error, which the nursery would wrap in an ExceptionGroup.
        await self._nursery_manager.__aexit__(None, None, None)

    async def _start(self, nursery: trio.Nursery) -> None:
        name_server = NameServer()
        name_server_dispatch = Dispatcher(name_server_check(self.settings))
        name_server_dispatch.add(name_server.handlers())
        now_ms = self._environment.now_ms or _wall_clock()
        broker = Broker(self.settings, lambda: [name_server], now_ms, self._environment.random())
        if self._port:
            # The broker must be open before the first request, and clients may already be trying this port.
            # A free port is unknown to them, and its address is known only when it listens.
            self._open(broker, self._address_on(self._port))
        bound = await nursery.start(self._serve, broker.dispatch, self._port, broker.drop_connection)
        self._broker_address = self._address_on(split_address(bound)[1])
        if not self._port:
            self._open(broker, self._broker_address)
        for task in broker.tasks:
            nursery.start_soon(task)
        bound = await nursery.start(
            self._serve, name_server_dispatch, self._namesrv_port, _ignore_closed_connection
        )
        self._name_server_address = self._address_on(split_address(bound)[1])

    def _open(self, broker: Broker, address: str) -> None:
        broker.open(address)
        for topic in self._topics.values():
            broker.state.topics.put(topic)

    async def _serve(
        self,
        dispatch: Dispatcher,
        port: int,
        on_closed: Callable[[Connection], None],
        *,
        task_status: trio.TaskStatus[str],
    ) -> None:
        on_request = self._on_request

        def observe_and_dispatch(connection: Connection, request: Command) -> None:
            assert on_request is not None
            on_request(request.code, topic_of(request.code, request.fields), connection.peer_address)
            dispatch(connection, request)

        try:
            await serve(
                dispatch if on_request is None else observe_and_dispatch,
                self._host,
                port,
                on_closed=on_closed,
                tls=self._tls,
                task_status=task_status,
            )
        except ConfigurationError as error:
            advice = (
                "choose an IP address of this machine with host"
                if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRNOTAVAIL
                else "stop the server that uses the port, or choose others with namesrv_port and port "
                "(0: any free port)"
            )
            raise ConfigurationError(f"{error}; {advice}") from error

    def _address_on(self, port: int) -> str:
        return format_address((self._public_ip, port))


def _check_listening(address: str | None) -> str:
    if address is None:
        raise ClosedError("the embedded broker does not listen yet: enter it with async with")
    return address


def _public_ip(host: str, config: BrokerConfig) -> str:
    """Return the IP address that clients connect to."""
    listening = _parse_ip(host, "host")
    public = _parse_ip(config.broker_ip1, "broker_ip1") if config.broker_ip1 else listening
    if public.is_unspecified:
        raise ConfigurationError(
            f"{public} stands for all addresses of this machine; set broker_ip1 to the one that clients use"
        )
    return str(public)


def _parse_ip(text: str, name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    check_text(text, name)
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}; it must be an IP address") from None


def _wall_clock() -> Callable[[], int]:
    """Return a clock that starts at the wall clock's time and advances with trio's clock."""
    # Fast path: trio.current_time() looks up the clock on each call.
    current_time = trio.lowlevel.current_clock().current_time
    offset = time.time() - current_time()
    return lambda: int((offset + current_time()) * 1000)


def _ignore_closed_connection(_: Connection) -> None:
    """Do nothing: the name server keeps no state of connections."""
