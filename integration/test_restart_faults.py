"""Steady sends, handlers and polls while the only broker of a cluster, its name server, or both restart."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import trio

from integration.clusters.cluster import NAME_SERVER, Cluster
from integration.clusters.plugin import start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.java.peer import java_peer
from integration.peers import PeerError
from integration.sending import PATIENT
from rocketmq_py import Client, LitePullConsumer, Message, Producer, ReceivedMessage
from tests.behaviours.conftest import create_topic
from tests.behaviours.test_restarts import Sends, Traffic

BROKER = "broker-a"
DOWNTIME = 3.0
"""Seconds from the broker's end until its process is started again, which takes seconds more."""
TIMEOUT = 60.0
GRACE = 12.0
"""Seconds in which the first send, handler call and poll must succeed after the broker listens: one for the
library, the rest for a broker that has just started."""
JAVA = "5.5.0"
JAVA_SECONDS = 30


@pytest.fixture(params=VERSIONS)
def lone_broker(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with start_own_cluster(request.param, brokers=1, settings=PATIENT) as cluster:
        yield cluster


def needs_processes(cluster: Cluster) -> None:
    """Skip the test if the name server of a cluster cannot be ended."""
    if cluster.origin != "maven":
        pytest.skip("only the name server of a cluster from Maven can be ended")


async def restart(cluster: Cluster, thread: ThreadPoolExecutor, *nodes: str, gently: bool = False) -> float:
    """End nodes, the broker last, and start them again. Return the time at which the broker listens."""
    for node in nodes:
        await trio.to_thread.run_sync(partial(cluster.kill, node, gently=gently))
    await trio.sleep(DOWNTIME)
    for node in nodes[:-1]:
        await trio.to_thread.run_sync(thread.submit(cluster.restart, node).result)
    listening_at = 0.0

    async def until_listening() -> None:
        nonlocal listening_at
        host, port = cluster.brokers[BROKER].rsplit(":", 1)
        while not listening_at:
            try:
                stream = await trio.open_tcp_stream(host, int(port))
            except OSError:
                await trio.sleep(0.02)
            else:
                listening_at = trio.current_time()
                await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(until_listening)
        await trio.to_thread.run_sync(thread.submit(cluster.restart, BROKER).result)
    return listening_at


@pytest.mark.parametrize(
    ("nodes", "gently"),
    [((BROKER,), False), ((BROKER,), True), ((NAME_SERVER, BROKER), False)],
    ids=["killed", "stopped", "with the name server"],
)
async def test_nothing_fails_while_the_only_broker_is_restarted(
    lone_broker: Cluster, restart_thread: ThreadPoolExecutor, nodes: tuple[str, ...], gently: bool
) -> None:
    if NAME_SERVER in nodes:
        needs_processes(lone_broker)
    handled: list[tuple[float, bytes]] = []
    polled: list[tuple[float, bytes]] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append((trio.current_time(), message.body))

    async def poll(consumer: LitePullConsumer) -> None:
        while True:
            polled.extend((trio.current_time(), message.body) for message in await consumer.poll(wait=1))

    async with Client(lone_broker.name_servers) as client:
        await create_topic(client, "Restarts", queues=4)
        traffic = Traffic(client, "Restarts", TIMEOUT)
        async with (
            client.push_consumer("pushed", consume_from="earliest") as pushed,
            client.lite_pull_consumer("pulled", consume_from="earliest") as pulled,
            trio.open_nursery() as nursery,
        ):
            for consumer in (pushed, pulled):
                consumer.subscribe("Restarts")
            nursery.start_soon(pushed.run, handle)
            nursery.start_soon(poll, pulled)
            async with trio.open_nursery() as sending:
                sending.start_soon(traffic.run)
                await trio.sleep(3)
                listening_at = await restart(lone_broker, restart_thread, *nodes, gently=gently)
                await trio.sleep(3)
                traffic.stopped.set()
            with trio.fail_after(60):
                for received in (handled, polled):
                    while len({body for _, body in received}) < traffic.count:
                        await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    traffic.check(listening_at, GRACE)
    for received in (handled, polled):
        first = min(time for time, _ in received if time > listening_at)
        assert first - listening_at <= GRACE


async def test_no_send_fails_while_the_name_server_is_restarted(
    lone_broker: Cluster, restart_thread: ThreadPoolExecutor
) -> None:
    """Sends of running producers go on. The first send of a new client waits for its route."""
    needs_processes(lone_broker)
    first_sends = Sends()

    async def open_anew(stopped: trio.Event) -> None:
        while not stopped.is_set():
            async with Producer(lone_broker.name_servers, group="new", send_timeout=TIMEOUT) as producer:
                await first_sends.outcome(partial(producer.send, Message("Restarts", b"first")))
            await trio.sleep(0.2)

    async with Client(lone_broker.name_servers) as client:
        await create_topic(client, "Restarts", queues=4)
        traffic = Traffic(client, "Restarts", timeout=10.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic.run)
            nursery.start_soon(open_anew, traffic.stopped)
            await trio.sleep(2)
            await trio.to_thread.run_sync(lone_broker.kill, NAME_SERVER)
            await trio.sleep(DOWNTIME)
            await trio.to_thread.run_sync(restart_thread.submit(lone_broker.restart, NAME_SERVER).result)
            restarted_at = trio.current_time()
            with trio.fail_after(TIMEOUT):  # brokers register again within 30 s
                while not first_sends.errors and first_sends.stored[-1] < restarted_at:
                    await trio.sleep(0.1)
            await trio.sleep(1)
            traffic.stopped.set()
    traffic.check(restarted_at, GRACE)
    assert not first_sends.errors, first_sends.errors[0]


@pytest.mark.usefixtures("java_and_maven")
async def test_sends_of_java_fail_while_the_only_broker_is_away(
    lone_broker: Cluster, restart_thread: ThreadPoolExecutor
) -> None:
    """The same with Java's client: its retries are used up within milliseconds, whatever the timeout is."""
    outcomes: list[dict[str, Any]] = []
    options = {
        "namesrv": lone_broker.name_servers, "topic": "Restarts", "body": "{i}", "group": "java",
        "seconds": str(JAVA_SECONDS), "timeout": str(int(TIMEOUT * 1000)),
    }  # fmt: skip
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    async with Client(lone_broker.name_servers) as client:
        await create_topic(client, "Restarts", queues=4)
    async with java_peer(JAVA, "Send", *arguments) as peer, trio.open_nursery() as nursery:
        await peer.ready()

        async def collect() -> None:
            try:
                while True:
                    outcome = await peer.next_line()
                    outcomes.append({**outcome, "at": trio.current_time()})
            except PeerError:
                pass  # it has ended

        nursery.start_soon(collect)
        await trio.sleep(2)
        listening_at = await restart(lone_broker, restart_thread, BROKER)
    failures = [outcome for outcome in outcomes if outcome["error"]]
    assert len(failures) > 10
    assert outcomes[-1]["error"] == ""
    again_at = min(one["at"] for one in outcomes if not one["error"] and one["at"] > listening_at)
    print(f"{len(failures)} of {len(outcomes)} failed, the last before {again_at - listening_at:.1f} s")
    # A failed send ends long before its timeout.
    assert sorted(outcome["seconds"] for outcome in failures)[len(failures) // 2] < 1
