"""The cached clients and producers of a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from rocketmq_py.blocking import Client
from rocketmq_py.message import Message
from rocketmq_py.spark import connections
from rocketmq_py.spark.connections import ProcessCache, client_for, has_master, producer_for
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.sink_options import SinkOptions


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    connections.close_all()


@pytest.fixture
def connection(broker_address: str) -> ConnectionOptions:
    return ConnectionOptions(name_server=broker_address)


def test_each_configuration_has_one_client(connection: ConnectionOptions, broker_address: str) -> None:
    client = client_for(connection)
    assert client_for(ConnectionOptions(name_server=broker_address)) is client
    other = client_for(ConnectionOptions(name_server=broker_address, namespace="n"))
    assert other is not client


def test_sinks_that_send_alike_share_a_producer(connection: ConnectionOptions, topic: str) -> None:
    one = producer_for(SinkOptions(connection=connection, topic=topic, job_id="1"))
    assert producer_for(SinkOptions(connection=connection, topic="other", job_id="2")) is one
    assert producer_for(SinkOptions(connection=connection, producer_group="other")) is not one
    assert one.send(Message(topic, b"x")).queue.topic == topic


def test_closed_clients_and_producers_are_replaced(connection: ConnectionOptions, topic: str) -> None:
    options = SinkOptions(connection=connection)
    producer = producer_for(options)
    client = client_for(connection)
    client.close()
    assert not producer.is_open
    assert client_for(connection) is not client
    assert producer_for(options).send(Message(topic, b"x")).queue.topic == topic


def test_master_is_known_from_the_route_of_a_topic(connection: ConnectionOptions, topic: str) -> None:
    producer_for(SinkOptions(connection=connection)).send(Message(topic, b"x"))
    assert has_master(connection, "broker-a")
    assert not has_master(connection, "broker-b")


def test_forked_child_opens_its_own_producer(connection: ConnectionOptions, topic: str) -> None:
    options = SinkOptions(connection=connection)
    producer_for(options).send(Message(topic, b"parent"))
    child = os.fork()
    if not child:
        try:
            producer_for(options).send(Message(topic, b"child"))
            os._exit(0)
        except BaseException:  # noqa: BLE001 - nothing may leave the child
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer_for(options).send(Message(topic, b"parent again"))
    with client_for(connection).reader() as reader:
        assert sum([end - first for first, end in reader.offsets(topic).values()]) == 3


class FakeResource:
    """A fake of a client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


def test_full_cache_closes_the_least_recently_used() -> None:
    cache = ProcessCache(FakeResource, max_size=2)
    one, two = cache.get("one"), cache.get("two")
    assert cache.get("one") is one
    three = cache.get("three")
    assert (one.is_open, two.is_open, three.is_open) == (True, False, True)
    assert len(cache) == 2
    cache.close()
    assert not one.is_open
    assert len(cache) == 0


def test_concurrent_threads_share_a_resource() -> None:
    barrier = threading.Barrier(8)
    cache = ProcessCache(FakeResource, max_size=8)
    resources: list[FakeResource] = []

    def get() -> None:
        barrier.wait()
        resources.append(cache.get("one"))

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(resources) == 8
    assert len({id(resource) for resource in resources}) == 1


def test_failure_to_open_leaves_the_cache_usable(connection: ConnectionOptions) -> None:
    invalid = ConnectionOptions(name_server=connection.name_server, use_tls=True, tls_ca_file="/no/such/file")
    with pytest.raises(Exception, match="/no/such/file"):
        client_for(invalid)
    assert isinstance(client_for(connection), Client)
