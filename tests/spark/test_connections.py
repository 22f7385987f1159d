from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from rocketmq_py.blocking import Client
from rocketmq_py.message import Message
from rocketmq_py.spark import connections
from rocketmq_py.spark.connections import Kept, client_for, producer_for
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.sink_options import SinkOptions


@pytest.fixture(autouse=True)
def closed_afterwards() -> Iterator[None]:
    yield
    connections.close_all()


@pytest.fixture
def connection(broker_address: str) -> ConnectionOptions:
    return ConnectionOptions(name_server=broker_address)


def test_one_for_each_configuration(connection: ConnectionOptions, broker_address: str) -> None:
    client = client_for(connection)
    assert client_for(ConnectionOptions(name_server=broker_address)) is client
    other = client_for(ConnectionOptions(name_server=broker_address, namespace="n"))
    assert other is not client


def test_producers_of_one_client(connection: ConnectionOptions, topic: str) -> None:
    one = producer_for(SinkOptions(connection=connection, topic=topic, job_id="1"))
    assert producer_for(SinkOptions(connection=connection, topic="other", job_id="2")) is one
    assert producer_for(SinkOptions(connection=connection, producer_group="other")) is not one
    assert one.send(Message(topic, b"x")).queue.topic == topic


def test_what_was_closed_is_opened_anew(connection: ConnectionOptions, topic: str) -> None:
    options = SinkOptions(connection=connection)
    producer = producer_for(options)
    client = client_for(connection)
    client.close()
    assert not producer.is_open
    assert client_for(connection) is not client
    assert producer_for(options).send(Message(topic, b"x")).queue.topic == topic


def test_a_child_has_its_own(connection: ConnectionOptions, topic: str) -> None:
    options = SinkOptions(connection=connection)
    producer_for(options).send(Message(topic, b"parent"))
    child = os.fork()
    if not child:
        try:
            producer_for(options).send(Message(topic, b"child"))
            os._exit(0)
        except BaseException:  # noqa: BLE001 - this process is the test's copy
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer_for(options).send(Message(topic, b"parent again"))
    with client_for(connection).reader() as reader:
        assert sum([end - first for first, end in reader.offsets(topic).values()]) == 3


class Door:
    """Stands in for a client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


def test_only_so_many_are_kept() -> None:
    kept = Kept(Door, most=2)
    one, two = kept.get("one"), kept.get("two")
    assert kept.get("one") is one
    three = kept.get("three")
    assert (one.is_open, two.is_open, three.is_open) == (True, False, True)
    assert len(kept) == 2
    kept.close()
    assert not one.is_open
    assert len(kept) == 0


def test_threads_that_ask_together_get_the_same() -> None:
    barrier = threading.Barrier(8)
    kept = Kept(Door, most=8)
    got: list[Door] = []

    def ask() -> None:
        barrier.wait()
        got.append(kept.get("one"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert len({id(door) for door in got}) == 1


def test_one_that_cannot_be_opened_leaves_nothing(connection: ConnectionOptions) -> None:
    wrong = ConnectionOptions(name_server=connection.name_server, use_tls=True, tls_ca_file="/no/such/file")
    with pytest.raises(Exception, match="/no/such/file"):
        client_for(wrong)
    assert isinstance(client_for(connection), Client)
