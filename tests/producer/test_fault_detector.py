from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.producer.fault_detector import DETECT_INTERVAL, FaultDetector, is_reachable
from rocketmq_py.producer.latency_faults import LatencyFaultPolicy, LatencyFaults
from tests.environment import created
from tests.scripted import ScriptedCluster, ignore, refuse, scripted_cluster, store

A, B = "broker-a", "broker-b"


def lost(names: Iterable[str]) -> LatencyFaults:
    """Return a fault table with these brokers unreachable."""
    faults = LatencyFaults(LatencyFaultPolicy.JAVA_5, now=lambda: 0.0, rng=random.Random(1))
    for name in names:
        faults.failed(name, reachable=False)
    return faults


async def test_each_round_probes_the_unreachable_brokers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    faults = lost([A, B])
    probes: list[tuple[float, str]] = []
    began = trio.current_time()

    async def probe(broker_name: str) -> bool:
        await trio.lowlevel.checkpoint()
        probes.append((trio.current_time() - began, broker_name))
        return broker_name == A or len(probes) > 4

    async with trio.open_nursery() as nursery:
        nursery.start_soon(FaultDetector(faults, probe).run)
        await trio.sleep(10 * DETECT_INTERVAL + 1)
        assert not faults.unreachable()
        faults.failed(A, reachable=False)
        await trio.sleep(DETECT_INTERVAL)
        assert not faults.unreachable()
        nursery.cancel_scope.cancel()
    assert sorted(probes) == [(3, A), (3, B), (6, B), (9, B), (12, B), (33, A)]


async def test_concurrent_probes_are_bounded(autojump_clock: trio.testing.MockClock) -> None:
    faults = lost(f"broker-{number}" for number in range(10))
    running = most = 0

    async def probe(broker_name: str) -> bool:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        return True

    began = trio.current_time()
    await FaultDetector(faults, probe, max_concurrent=3).run_round()
    assert (most, trio.current_time() - began) == (3, 4)
    assert not faults.unreachable()


async def test_a_probe_that_raises_is_logged_and_the_others_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = lost([A, B])

    async def probe(broker_name: str) -> bool:
        await trio.lowlevel.checkpoint()
        if broker_name == A:
            raise ZeroDivisionError("a fault of its own")
        return True

    with caplog.at_level(logging.ERROR, "rocketmq_py.producer"):
        await FaultDetector(faults, probe, max_concurrent=1).run_round()
        await FaultDetector(faults, probe, max_concurrent=1).run_round()
    assert set(faults.unreachable()) == {A}
    assert [record.message for record in caplog.records] == ["probe failed: broker=broker-a"] * 2


async def test_a_cancelled_round_leaves_no_probe_running(autojump_clock: trio.testing.MockClock) -> None:
    ended: list[str] = []

    async def probe(broker_name: str) -> bool:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(broker_name)

    faults = lost([A, B])
    with trio.move_on_after(DETECT_INTERVAL + 1):
        await FaultDetector(faults, probe).run()
    assert sorted(ended) == [A, B]
    assert set(faults.unreachable()) == {A, B}


@asynccontextmanager
async def client_of(cluster: ScriptedCluster) -> AsyncIterator[Client]:
    async with created(Client, cluster.address, rng=random.Random(1)) as client:
        await core_of(client).routes.get("T")
        yield client


async def test_any_answer_counts_as_reachable() -> None:
    def refuse_all(connection: object, request: object) -> None:
        connection.respond(request, ResponseCode.NO_PERMISSION)  # type: ignore[attr-defined]

    async with scripted_cluster(store, refuse_all) as cluster, client_of(cluster) as client:
        assert await is_reachable(core_of(client), A)
        assert await is_reachable(core_of(client), B)
        (asked,) = cluster.brokers[A].asked(RequestCode.GET_MAX_OFFSET)
        assert asked.fields["topic"] == "T"
        assert asked.fields["queueId"] == "0"


async def test_a_silent_or_stopped_broker_does_not_answer(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(ignore, refuse(0)) as cluster, client_of(cluster) as client:
        began = trio.current_time()
        assert not await is_reachable(core_of(client), A)
        assert trio.current_time() - began == pytest.approx(0.2, abs=0.01)
        cluster.brokers[B].stop()
        await trio.sleep(1)
        assert not await is_reachable(core_of(client), B)


async def test_a_broker_without_an_address_does_not_answer() -> None:
    async with scripted_cluster(store) as cluster:
        async with Client(cluster.address) as client:
            assert not await is_reachable(core_of(client), A), "no topic is in use"
        async with client_of(cluster) as client:
            assert not await is_reachable(core_of(client), "broker-of-no-route")
        assert not cluster.brokers[A].asked(RequestCode.GET_MAX_OFFSET)
