"""Clients of this process, kept from one task or batch to the next.

Spark's worker processes live on between batches, and a client costs connections, routes and a heartbeat.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

import attrs

from rocketmq_py.blocking import BatchingProducer, Client
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.sink_options import SinkOptions

MOST_CLIENTS = 8
"""Of different configurations; a further one closes the one that was not asked for the longest."""


class _Door(Protocol):
    @property
    def is_open(self) -> bool: ...

    def close(self) -> None: ...


Key = TypeVar("Key", bound=Hashable)
Thing = TypeVar("Thing", bound=_Door)


class Kept(Generic[Key, Thing]):
    """What is opened once a process and configuration. Safe to use from several threads.

    A child that was forked opens its own: what it inherits is its parent's. What was closed, or has failed,
    is opened anew.

    Args:
        open: opens one.
        most: how many are kept.
    """

    def __init__(self, open: Callable[[Key], Thing], most: int) -> None:  # noqa: A002
        self._open = open
        self._most = most
        self._things: OrderedDict[Key, Thing] = OrderedDict()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew)

    def get(self, key: Key) -> Thing:
        """Return the one for a configuration. Raises what its opening raises."""
        superfluous = None
        with self._lock:
            thing = self._things.pop(key, None)
            if thing is None or not thing.is_open:
                thing = self._open(key)
            self._things[key] = thing
            if len(self._things) > self._most:
                _, superfluous = self._things.popitem(last=False)
        if superfluous is not None:
            superfluous.close()
        return thing

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            things = list(self._things.values())
            self._things.clear()
        for thing in things:
            thing.close()

    def __len__(self) -> int:
        return len(self._things)

    def _renew(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._things = OrderedDict()


def _open_client(connection: ConnectionOptions) -> Client:
    return Client(connection.name_server, **connection.client_options())


def _open_producer(options: SinkOptions) -> BatchingProducer:
    return client_for(options.connection).batching_producer(
        options.producer_group, max_batch_size=options.max_batch_bytes, **options.producer_options()
    )


_clients = Kept(_open_client, MOST_CLIENTS)
_producers = Kept(_open_producer, MOST_CLIENTS)


def client_for(connection: ConnectionOptions) -> Client:
    """Return this process's client for a connection, opened if there is none yet.

    It stays open until the process ends, or until MOST_CLIENTS others were asked for: do not close it.

    Raises:
        ConfigurationError: the connection's options cannot be used, as a certificate that is not there.
    """
    return _clients.get(connection)


def producer_for(options: SinkOptions) -> BatchingProducer:
    """Return this process's batching producer for a sink, of the client for its connection."""
    return _producers.get(attrs.evolve(options, topic=None, stamp=True, job_id=None, retry_timeout=1.0))


def close_all() -> None:
    """Close what this process keeps."""
    _producers.close()
    _clients.close()
