"""Clients and producers of a Python process, cached by their configuration.

Spark's worker processes outlive a task, and opening a client costs connections, routes and a heartbeat.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, Self, TypeVar

import attrs

from rocketmq_py.blocking import Client, Producer
from rocketmq_py.client import core_of
from rocketmq_py.producer.settings import USUAL_LINGER
from rocketmq_py.spark.batch_sender import BatchSender
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.sink_options import SinkOptions

MAX_CLIENTS = 8
"""Maximum number of clients of a process. Opening another one closes the least recently used."""


class Closeable(Protocol):
    """A client or producer: it can be closed, and may close itself after a failure."""

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""

    def close(self) -> None:
        """Close it. Repeatable."""


Key = TypeVar("Key", bound=Hashable)
Resource = TypeVar("Resource", bound=Closeable)


class ProcessCache(Generic[Key, Resource]):
    """Opens one resource per key and process, and closes the least recently used ones. Thread-safe.

    A forked child opens resources of its own, because inherited sockets belong to its parent. A resource that
    has been closed or has failed is opened again.

    Args:
        open: opens the resource of a key.
        max_size: the maximum number of open resources.
    """

    def __init__(self, open: Callable[[Key], Resource], max_size: int) -> None:  # noqa: A002
        self._open = open
        self._max_size = max_size
        self._resources: OrderedDict[Key, Resource] = OrderedDict()
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):  # Windows cannot fork
            os.register_at_fork(after_in_child=self._reset)

    def get(self, key: Key) -> Resource:
        """Return the resource of a key, and open it if necessary. Raises the errors of opening it.

        Other threads wait while a resource is opened, so that no key is opened twice.
        """
        evicted = None
        with self._lock:
            resource = self._resources.pop(key, None)
            if resource is None or not resource.is_open:
                resource = self._open(key)
            self._resources[key] = resource
            if len(self._resources) > self._max_size:
                _, evicted = self._resources.popitem(last=False)
        if evicted is not None:
            evicted.close()
        return resource

    def close(self) -> None:
        """Close all resources."""
        with self._lock:
            resources = list(self._resources.values())
            self._resources.clear()
        for resource in resources:
            resource.close()

    def __len__(self) -> int:
        return len(self._resources)

    def _reset(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it during the fork
        self._resources = OrderedDict()


def _open_client(connection: ConnectionOptions) -> Client:
    return Client(connection.name_server, **connection.client_options())


@attrs.frozen
class _ProducerSettings:
    """The settings of a producer. Sinks with equal ones share it, although other options may differ.

    Attributes:
        connection: how to reach the cluster.
        group: the producer group.
        arguments: the keyword arguments of ``Client.producer``, as pairs.
    """

    connection: ConnectionOptions
    group: str
    arguments: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, options: SinkOptions) -> Self:
        """Return the settings of a sink's producer."""
        arguments = {
            "linger": USUAL_LINGER,
            "max_batch_bytes": options.max_batch_bytes,
            **options.producer_options(),
        }
        return cls(options.connection, options.producer_group, tuple(arguments.items()))


def _open_producer(settings: _ProducerSettings) -> Producer:
    return client_for(settings.connection).producer(settings.group, **dict(settings.arguments))


_clients = ProcessCache(_open_client, MAX_CLIENTS)
_producers = ProcessCache(_open_producer, MAX_CLIENTS)


def client_for(connection: ConnectionOptions) -> Client:
    """Return this process's client for a connection.

    Do not close it: it stays open until the process ends, or until MAX_CLIENTS others have been used.

    Raises:
        ConfigurationError: the options are unusable, for example a certificate file that does not exist.
    """
    return _clients.get(connection)


def has_master(connection: ConnectionOptions, broker_name: str) -> bool:
    """Return whether this process's client knows a master of a broker. Without one, a replica answers."""
    return core_of(client_for(connection)._target).routes.master_address_nowait(broker_name) is not None


def producer_for(options: SinkOptions) -> Producer:
    """Return this process's producer for a sink. It uses the sink's client of this process."""
    return _producers.get(_ProducerSettings.of(options))


def sender_for(options: SinkOptions) -> BatchSender:
    """Return a sender of a sink's rows, on this process's producer for it."""
    return BatchSender(producer_for(options))


def close_all() -> None:
    """Close all clients and producers of this process."""
    _producers.close()
    _clients.close()
