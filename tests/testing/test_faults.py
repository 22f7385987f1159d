"""Faults of requests, networks and whole brokers."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import trio

from rocketmq_py import Message, MessageQueue, Producer, blocking
from rocketmq_py.address import split_address
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import (
    BrokerError,
    ConfigurationError,
    ConnectionLostError,
    Delivery,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_py.testing import TestCluster, World, run_broker, run_cluster, simulate

pytestmark = pytest.mark.sockets


def producer(cluster: TestCluster, group: str = "p", **options: object) -> blocking.Producer:
    return blocking.Producer(cluster.name_server_address, group=group, **options)  # type: ignore[arg-type]


def bodies(broker: TestCluster, topic: str = "T") -> list[bytes]:
    return [message.body for message in broker.messages(topic)]


def test_fail_affects_the_given_number_of_requests() -> None:
    with run_broker(topics=["T", "U"]) as broker, producer(broker, retries=0) as sender:
        fault = broker.fail("SEND_MESSAGE", code=ResponseCode.NO_PERMISSION, remark="no", times=2, topic="T")
        for _ in range(2):
            with pytest.raises(BrokerError, match="no") as failed:
                sender.send(Message("T", b"x"))
            assert failed.value.code == ResponseCode.NO_PERMISSION
            assert failed.value.delivery is Delivery.REFUSED
        sender.send(Message("U", b"another topic"))
        sender.send(Message("T", b"the third"))
        assert fault.count == 2
        assert bodies(broker) == [b"the third"]


def test_a_retry_succeeds_after_a_failure() -> None:
    with run_broker(topics=["T"]) as broker, producer(broker) as sender:
        fault = broker.fail("SEND_MESSAGE", times=1)
        sender.send(Message("T", b"x"))
        assert (fault.count, bodies(broker)) == (1, [b"x"])


def test_a_lost_answer_leaves_the_delivery_unknown() -> None:
    with run_broker(topics=["T"]) as broker, producer(broker, retries=0) as sender:
        sender.send(Message("T", b"x"))
        with broker.lose_answers("SEND_MESSAGE"), pytest.raises(RequestTimeoutError) as failed:
            sender.send(Message("T", b"y"), timeout=0.1)
        assert failed.value.delivery is Delivery.UNKNOWN
        assert bodies(broker) == [b"x", b"y"]
        sender.send(Message("T", b"z"))


def test_a_lost_request_is_not_handled() -> None:
    with run_broker(topics=["T"]) as broker, producer(broker, retries=0) as sender:
        sender.send(Message("T", b"x"))
        with broker.lose_requests("SEND_MESSAGE"), pytest.raises(RequestTimeoutError):
            sender.send(Message("T", b"y"), timeout=0.1)
        assert bodies(broker) == [b"x"]


def test_a_delayed_request_is_handled_later_on_the_clock_of_the_broker() -> None:
    with run_broker(topics=["T"]) as broker, producer(broker, retries=0) as sender:
        sender.send(Message("T", b"x"))
        broker.delay("SEND_MESSAGE", "1h", times=1)
        with pytest.raises(RequestTimeoutError):
            sender.send(Message("T", b"y"), timeout=0.1)
        assert bodies(broker) == [b"x"]
        broker.advance("1h")
        assert bodies(broker) == [b"x", b"y"]


def is_sent(sender: blocking.Producer, message: Message) -> bool:
    try:
        sender.send(message)
    except ConnectionLostError:
        return False  # the producer has not noticed the closed connection yet
    return True


def test_a_delayed_request_is_lost_with_its_connection() -> None:
    with run_broker(topics=["T"]) as broker, producer(broker, retries=0) as sender:
        sender.send(Message("T", b"x"))
        broker.delay("SEND_MESSAGE", "1h", times=1)
        with pytest.raises(RequestTimeoutError):
            sender.send(Message("T", b"y"), timeout=0.1)
        broker.cut()
        broker.wait_until(lambda: is_sent(sender, Message("T", b"z")))
        broker.advance("1h")
        assert bodies(broker) == [b"x", b"z"]


def test_a_fault_can_affect_a_single_client() -> None:
    with (
        run_broker(topics=["T"]) as broker,
        producer(broker, retries=0) as one,
        producer(broker, retries=0, instance_name="other") as other,
    ):
        one.send(Message("T", b"x"))
        other.send(Message("T", b"x"))
        first, _ = broker.requests("SEND_MESSAGE")
        with broker.fail("SEND_MESSAGE", client=first.client_address):
            other.send(Message("T", b"y"))
            with pytest.raises(BrokerError):
                one.send(Message("T", b"y"))
        with broker.fail("SEND_MESSAGE", client="other"):
            one.send(Message("T", b"z"))
            with pytest.raises(BrokerError):
                other.send(Message("T", b"z"))
        assert sorted(bodies(broker)) == [b"x", b"x", b"y", b"z"]


def test_a_fault_can_affect_a_single_broker() -> None:
    with run_cluster(2, topics={"T": 1}) as cluster, producer(cluster) as sender:
        with cluster.fail(None, server="broker-a"):
            results = [sender.send(Message("T", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}


def test_a_frozen_broker_continues_when_the_fault_ends() -> None:
    with run_broker(topics=["T"]) as broker, producer(broker, retries=0) as sender:
        sender.send(Message("T", b"x"))
        with broker.freeze("broker-a"):
            pending = sender.submit(Message("T", b"y"))
            with pytest.raises(AssertionError):
                broker.wait_for("T", 2, timeout=0.05)
        assert pending.result(10).queue_offset == 0
        assert bodies(broker) == [b"x", b"y"]


def test_a_partition_separates_clients_from_a_broker() -> None:
    with run_cluster(2, topics={"T": 1}) as cluster, producer(cluster, try_timeout=0.2) as sender:
        sent = {sender.send(Message("T", b"x")).queue.broker_name for _ in range(4)}
        assert sent == {"broker-a", "broker-b"}
        with cluster.partition("clients", "broker-a"):
            results = [sender.send(Message("T", b"y")) for _ in range(2)]
            assert {result.queue.broker_name for result in results} == {"broker-b"}
        with pytest.raises(ConfigurationError, match="neither 'one' nor 'other' is a broker"):
            cluster.partition("one", "other")


def test_a_broker_registers_when_a_partition_from_a_name_server_ends() -> None:
    with run_cluster(1, 2) as cluster:
        partitioned, other = cluster.name_server_address.split(";")
        with cluster.partition("broker-a", partitioned):
            cluster.create_topic("T")
            with blocking.Reader(partitioned) as reader:
                assert "T" not in reader.topics()
            with blocking.Reader(other) as reader:
                assert "T" in reader.topics()
        cluster.advance("31s")
        with blocking.Reader(partitioned) as reader:
            assert "T" in reader.topics()


def test_a_client_reconnects_after_a_cut() -> None:
    with run_broker(topics=["T"]) as broker, producer(broker) as sender:
        sender.send(Message("T", b"x"))
        broker.cut("broker-a")
        sender.send(Message("T", b"y"))
        clients = {request.client_address for request in broker.requests("SEND_MESSAGE")}
        assert (len(clients), bodies(broker)) == (2, [b"x", b"y"])


def test_a_connection_that_breaks_before_it_is_accepted_does_no_harm() -> None:
    with run_broker(topics=["T"]) as broker, producer(broker) as sender:
        address = split_address(broker.broker_address)
        for _ in range(100):
            with socket.create_connection(address) as client:
                # Closing sends a reset, often before the broker has accepted the connection.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sender.send(Message("T", b"x"))
        assert bodies(broker) == [b"x"]


def test_slow_and_sliced_networks_deliver_all_bytes() -> None:
    # On a busy machine, each piece takes much longer than the latency.
    with run_broker(topics=["T"]) as broker, producer(broker, send_timeout=300.0) as sender:
        broker.slice(7)
        sender.send(Message("T", b"x" * 1000))
        began = time.monotonic()
        with broker.slow(latency=0.001, bytes_per_second=1_000_000):
            sender.send(Message("T", b"y" * 1000))
        assert time.monotonic() - began > 0.1  # over 100 pieces, a millisecond each
        assert bodies(broker) == [b"x" * 1000, b"y" * 1000]


@pytest.mark.parametrize("by", ["client", "server"])
def test_a_network_fault_can_affect_a_single_client_or_broker(by: str) -> None:
    """Runs in virtual time, so that durations are exact."""

    async def program(world: World) -> None:
        address = world.name_server_address
        async with (
            Producer(address, instance_name="one") as one,
            Producer(address, instance_name="other") as other,
        ):
            pairs = [
                (one, MessageQueue("T", "broker-a", 0)),
                (other, MessageQueue("T", "broker-a" if by == "client" else "broker-b", 0)),
            ]

            async def seconds() -> list[int]:
                taken: list[int] = []
                for producer, queue in pairs:
                    began = trio.current_time()
                    with contextlib.suppress(RequestTimeoutError):
                        await producer.send(Message("T", b"x"), queue=queue, timeout=20)
                    taken.append(round(trio.current_time() - began))
                return taken

            client, server = ("one", None) if by == "client" else (None, "broker-a")
            assert await seconds() == [0, 0]
            with world.slow(latency=5, client=client, server=server):
                assert await seconds() == [10, 0], "there and back"
            with (
                world.slice(100, client=client, server=server),
                world.slow(bytes_per_second=100, client=client, server=server),
            ):
                slow, fast = await seconds()
                assert slow > 1
                assert fast == 0
            with world.freeze(client=client, server=server):
                assert await seconds() == [20, 0]
            connections = {one.client_address for one in world.requests("SEND_MESSAGE")}
            world.cut(client=client, server=server)
            assert await seconds() == [0, 0]
            assert len({one.client_address for one in world.requests("SEND_MESSAGE")} - connections) == 1

    simulate(program, seed=1, brokers=2, topics={"T": 1}, split=0.0)


def test_delayed_bytes_arrive_when_the_fault_ends() -> None:
    async def program(world: World) -> None:
        async with (
            Producer(world.name_server_address, retries=0) as producer,
            trio.open_nursery() as nursery,
        ):
            await producer.send(Message("T", b"x"))
            with world.slow(latency=60):
                nursery.start_soon(partial(producer.send, Message("T", b"y"), timeout=200))
                await trio.sleep(5)
            await trio.sleep(1)
            assert len(world.messages("T")) == 2

    simulate(program, seed=1, topics={"T": 1})


def test_a_freeze_holds_up_bytes_that_are_delayed_already() -> None:
    async def program(world: World) -> None:
        async with (
            Producer(world.name_server_address, retries=0) as producer,
            trio.open_nursery() as nursery,
        ):
            await producer.send(Message("T", b"x"))
            world.slow(latency=2)
            nursery.start_soon(partial(producer.send, Message("T", b"y"), timeout=60))
            await trio.sleep(1)
            with world.freeze():
                await trio.sleep(5)
                assert len(world.messages("T")) == 1
            await trio.sleep(1)
            assert len(world.messages("T")) == 2

    simulate(program, seed=1, topics={"T": 1})


def test_keep_selects_the_data_after_a_crash() -> None:
    with run_broker(topics={"T": 1}) as broker, producer(broker, retries=0) as sender:
        sender.send(Message("T", b"flushed", keys="k"))
        broker.flush()
        sender.send(Message("T", b"not flushed", keys="k"))
        broker.crash()
        with pytest.raises(RocketMQError):
            sender.send(Message("T", b"lost"), timeout=0.2)
        broker.restart()
        assert len(bodies(broker)) == 2
        with blocking.Admin(broker.name_server_address) as admin:
            assert len(admin.messages.find("T", "k").messages) == 2
        broker.crash(keep="flushed")
        broker.restart()
        assert bodies(broker) == [b"flushed"]
        with producer(broker) as later, blocking.Admin(broker.name_server_address) as admin:
            result = later.send(Message("T", b"after", keys="k"))
            assert result.queue_offset == 1
            assert [one.body for one in admin.messages.find("T", "k").messages] == [b"flushed", b"after"]
        broker.crash(keep="nothing")
        assert (bodies(broker), broker.committed("g")) == ([], {})
        broker.create_topic("U", queues=1)
        broker.crash(keep="flushed")
        broker.restart()
        assert bodies(broker) == []


def test_a_recall_that_was_not_flushed_is_lost_in_a_crash() -> None:
    with run_broker(topics={"T": 1}) as broker:
        with producer(broker) as sender:
            handle = sender.send(Message("T", b"x", delay=60)).recall_handle
            assert handle is not None
            broker.flush()
            sender.recall("T", handle)
        broker.crash(keep="flushed")
        broker.restart()
        broker.advance("2m")
        assert bodies(broker) == [b"x"]


def test_routes_leave_out_a_crashed_broker_until_it_restarts() -> None:
    with run_cluster(2, topics={"T": 1}) as cluster:
        cluster.crash("broker-a")
        with producer(cluster) as sender:
            assert [queue.broker_name for queue in sender.queues("T")] == ["broker-b"]
        cluster.restart("broker-a")
        with producer(cluster) as sender:
            assert [queue.broker_name for queue in sender.queues("T")] == ["broker-a", "broker-b"]


def test_a_restarted_name_server_leaves_out_a_broker_that_crashed_meanwhile() -> None:
    with run_cluster(2, 2, topics={"T": 1}) as cluster:
        first = cluster.name_server_address.split(";")[0]
        cluster.crash(first)
        cluster.crash("broker-a")
        cluster.restart(first)
        with blocking.Producer(first, group="p") as sender:
            assert [queue.broker_name for queue in sender.queues("T")] == ["broker-b"]


def test_clients_use_the_remaining_name_server() -> None:
    with run_cluster(1, 2, topics=["T"]) as cluster:
        first = cluster.name_server_address.split(";")[0]
        cluster.crash(first)
        for _ in range(3):
            with producer(cluster) as sender:
                sender.send(Message("T", b"x"))
        assert len(bodies(cluster)) == 3


def test_heal_and_reset_end_all_faults() -> None:
    # The producer retries, because the reset breaks its connection. A fault would fail all retries.
    with run_broker(topics=["T"]) as broker, producer(broker) as sender:
        broker.fail(None)
        broker.freeze()
        broker.heal()
        sender.send(Message("T", b"x"))
        broker.fail("SEND_MESSAGE")
        broker.reset()
        sender.send(Message("T", b"y"))
        assert bodies(broker) == [b"y"]


def test_invalid_faults_are_refused() -> None:
    invalid = cast(Any, "1.5")
    with run_cluster(1, replicas=True) as cluster:
        calls: list[tuple[str, Callable[[], object]]] = [
            ("there is no request 'SEND'", lambda: cluster.fail("SEND")),
            ("request is 10.5; it must be a whole", lambda: cluster.fail(cast(Any, 10.5))),
            ("both parties are 'broker-a'", lambda: cluster.partition("broker-a", "broker-a")),
            ("times is 0; it must be 1 or more", lambda: cluster.fail("SEND_MESSAGE", times=0)),
            ("times is 1.5; it must be a whole", lambda: cluster.fail(None, times=cast(Any, 1.5))),
            ("there is no broker or name server 'broker-z'; .*broker-a", lambda: cluster.freeze("broker-z")),
            ("code is '1.5'; expected a ResponseCode", lambda: cluster.fail("SEND_MESSAGE", code=invalid)),
            ("keep is '1.5'; it must be one of all, fl", lambda: cluster.crash(keep=invalid)),
            ("size is 0; it must be 1 or more", lambda: cluster.slice(0)),
            ("size is 1.5; it must be a whole number", lambda: cluster.slice(cast(Any, 1.5))),
            ("latency is -1; it must be 0 or more", lambda: cluster.slow(latency=-1)),
            ("latency is nan; it must be 0 or more", lambda: cluster.slow(latency=math.nan)),
            ("latency is '1.5'; it must be a number", lambda: cluster.slow(latency=invalid)),
            ("bytes_per_second is 0; it must be above 0", lambda: cluster.slow(bytes_per_second=0)),
            ("'broker-a-1' is not a broker; there are broker-a", lambda: cluster.flush("broker-a-1")),
            ("'.*' is not a broker", lambda: cluster.change_topic("T", server=cluster.name_server_address)),
        ]
        for error, call in calls:
            with pytest.raises(ConfigurationError, match=error):
                call()
