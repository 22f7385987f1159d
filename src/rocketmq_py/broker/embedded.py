"""The embedded broker: a name server and a broker in this process, in memory."""

from __future__ import annotations

import ipaddress
import random
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

import attrs
import trio

from rocketmq_py.address import format_address, split_address
from rocketmq_py.arguments import check_instance, check_integer, optional
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.core import Broker
from rocketmq_py.broker.dispatch import Dispatch, topic_of
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.topics import TopicConfig, checked_topics
from rocketmq_py.callables import check_callable
from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection, SendHandler, serve
from rocketmq_py.remoting.running import check_inside_trio


class EmbeddedBroker:
    """A RocketMQ name server and broker inside of this process, for tests, demos and development.

    Clients of any language talk to it as to a real one. It keeps everything in memory: what it holds is
    gone when it ends, and beyond ``BrokerConfig.max_store_bytes`` or ``max_store_messages`` the oldest
    messages are dropped. There is one broker, a master. Who may ask can be limited
    (``BrokerConfig.access_keys``); rules of what users may do are kept and told, and bind nobody. Topics are
    of the usual kind only, not lite, compacted or of batches::

        async with EmbeddedBroker() as broker:
            async with Producer(broker.name_server_address, group="orders") as producer:
                await producer.send(Message("TopicTest", b"hello"))

    Entering it returns when it listens. Leaving it closes every connection and both ports, and leaves no
    task behind; a cancellation does the same. All its waiting is on trio's clock, so tests can use
    ``autojump_clock``. It is used once: entering it again is an error.

    Args:
        host: the IP address to listen on.
        namesrv_port: the name server's port; 0 takes a free one.
        port: the broker's port; 0 takes a free one.
        config: the settings; None for the default ones.
        topics: are there from the beginning, with four queues or as many as a mapping says.
        tls: a server's context with a certificate, for clients that talk TLS; None for plain text.
        on_request: is told of each request, before it is answered: its code, the topic that it names or None,
            and the client's address.
        settings: fields of BrokerConfig, to be changed in ``config``.
        now_ms: the time for messages, epoch milliseconds; by default the wall clock's at the start, going
            on with trio's clock.
        rng: chooses a queue where a sender leaves that to the broker.

    Raises:
        ConfigurationError: an address is no IP address, a setting is out of its range, or (when entering)
            a port cannot be listened on.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        port: int = 0,
        *,
        config: BrokerConfig | None = None,
        topics: Mapping[str, int] | Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
        on_request: Callable[[int, str | None, str], None] | None = None,
        now_ms: Callable[[], int] | None = None,
        rng: random.Random | None = None,
        **settings: Any,
    ) -> None:
        if on_request is not None:
            check_callable(on_request, "on_request", "code", "topic", "client_address", awaited=False)
        if now_ms is not None:
            check_callable(now_ms, "now_ms", awaited=False)
        optional(check_instance, config, "config", kind=BrokerConfig)
        optional(check_instance, tls, "tls", kind=ssl.SSLContext)
        optional(check_instance, rng, "rng", kind=random.Random)
        for name, value in (("namesrv_port", namesrv_port), ("port", port)):
            check_integer(value, name, lowest=0, highest=65_535)
        self.config: BrokerConfig = attrs.evolve(config or BrokerConfig(), **settings)
        self._topics = checked_topics(topics)
        self._tls = tls
        self._on_request = on_request
        self._host = host
        self._namesrv_port = namesrv_port
        self._port = port
        self._public_ip = _public_ip(host, self.config)
        self._now_ms = now_ms
        self._rng = rng or random.Random()
        self._name_server_address: str | None = None
        self._broker_address: str | None = None
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None

    @property
    def name_server_address(self) -> str:
        """The name server's ``host:port``: what clients are given. Raises ClosedError before it listens."""
        if self._name_server_address is None:
            raise ClosedError("the embedded broker does not listen yet: enter it with async with")
        return self._name_server_address

    @property
    def broker_address(self) -> str:
        """The broker's ``host:port``, which routes lead to. Raises ClosedError before it listens."""
        if self._broker_address is None:
            raise ClosedError("the embedded broker does not listen yet: enter it with async with")
        return self._broker_address

    async def __aenter__(self) -> Self:
        check_inside_trio(type(self).__name__)
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
        # The nursery is not told of the user's own error: it would wrap it into an ExceptionGroup.
        await self._nursery_manager.__aexit__(None, None, None)

    async def _start(self, nursery: trio.Nursery) -> None:
        name_server = NameServer()
        name_server_dispatch = Dispatch()
        name_server_dispatch.add(name_server.handlers())
        broker = Broker(self.config, lambda: [name_server], self._now_ms or _wall_clock(), self._rng)
        if self._port:
            # Clients that wait for this port may be there at once: everything is ready before it listens.
            self._open(broker, self._address_on(self._port))
        bound = await nursery.start(
            self._serve, broker.dispatch, self._port, broker.forget, lambda: broker.send_handler
        )
        self._broker_address = self._address_on(split_address(bound)[1])
        if not self._port:
            self._open(broker, self._broker_address)
        for task in broker.tasks:
            nursery.start_soon(task)
        bound = await nursery.start(self._serve, name_server_dispatch, self._namesrv_port, _ignore)
        self._name_server_address = self._address_on(split_address(bound)[1])

    def _open(self, broker: Broker, address: str) -> None:
        broker.open(address)
        for topic, queues in self._topics.items():
            broker.topics.put(TopicConfig(topic, queues, queues))

    async def _serve(
        self,
        dispatch: Dispatch,
        port: int,
        on_closed: Callable[[Connection], None],
        send_handler: Callable[[], SendHandler | None] = lambda: None,
        *,
        task_status: trio.TaskStatus[str],
    ) -> None:
        told = self._on_request

        def tell(connection: Connection, request: Command) -> None:
            assert told is not None
            told(request.code, topic_of(request.code, request.fields), connection.peer_address)
            dispatch(connection, request)

        try:
            await serve(
                dispatch if told is None else tell,
                self._host,
                port,
                # Who is told of requests is told of all.
                send_handler=send_handler if told is None else lambda: None,
                on_closed=on_closed,
                tls=self._tls,
                task_status=task_status,
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}; choose another port, or 0 for any that is free") from error

    def _address_on(self, port: int) -> str:
        return format_address((self._public_ip, port))


def _public_ip(host: str, config: BrokerConfig) -> str:
    """Return the IP address that clients are told."""
    try:
        listening = ipaddress.ip_address(host)
        public = ipaddress.ip_address(config.broker_ip1) if config.broker_ip1 else listening
    except ValueError as error:
        raise ConfigurationError(f"the embedded broker needs an IP address: {error}") from None
    if public.is_unspecified:
        raise ConfigurationError(
            f"{host} stands for all addresses of this machine: broker_ip1 must say which one clients use"
        )
    return str(public)


def _wall_clock() -> Callable[[], int]:
    """Return the wall clock as it goes on from now with trio's clock."""
    current_time = trio.lowlevel.current_clock().current_time  # what trio.current_time() asks by three calls
    ahead = time.time() - current_time()
    return lambda: int((ahead + current_time()) * 1000)


def _ignore(_: Connection) -> None:
    """Do nothing: the name server knows nothing of its connections."""
