"""The client that a threaded program opens to share it among several producers and readers."""

from __future__ import annotations

from typing import Unpack

from rocketmq_py import shared_client
from rocketmq_py.blocking.door import Door
from rocketmq_py.blocking.producer import BatchingProducer, Producer
from rocketmq_py.blocking.reader import Reader
from rocketmq_py.client.config import ClientOptions
from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.producer.batching_config import BatchingOptions
from rocketmq_py.producer.config import ProducerOptions


class Client(Door[shared_client.Client]):
    """``rocketmq_py.Client`` for threads: connections, routes and heartbeats of one cluster, shared.

    Closing it closes what was opened from it first.

    Args:
        address: name servers as ``host:port;host:port``, or a URL that says where they are; None reads
            NAMESRV_ADDR, else 127.0.0.1:9876.
        **options: the fields of ClientConfig.

    Raises:
        ConfigurationError: an address or a setting is wrong. Nothing is dialled before it is needed.
    """

    def __init__(self, address: str | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(shared_client.Client(address, **options))

    @property
    def _client(self) -> ClientInstance:
        return self._behind

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> Producer:
        """Open a producer of this client; see Producer."""
        return Producer(self, group=group, **options)

    def batching_producer(self, group: str, **options: Unpack[BatchingOptions]) -> BatchingProducer:
        """Open a batching producer of this client; see BatchingProducer."""
        return BatchingProducer(self, group=group, **options)

    def reader(self) -> Reader:
        """Open a reader of this client; see Reader."""
        return Reader(self)
