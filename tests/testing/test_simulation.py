"""Simulations: all events come from the seed."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType
from typing import Any, cast

import pytest
import trio

from rocketmq_py import (
    Client,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    aio,
    blocking,
)
from rocketmq_py.client import core_of
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.producer import TransactionState
from rocketmq_py.testing import World, simulate


@pytest.fixture(autouse=True)
def long_default_timeouts() -> None:
    """Keep the default timeouts: a simulation runs in virtual time, and must repeat outside pytest."""


async def program(world: World) -> list[bytes]:
    """Send messages to two members of a group, through a broker that loses answers and crashes."""
    handled: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        await trio.sleep(world.rng.uniform(0.0, 0.5))
        world.trace("handled", message.body)
        handled.append(message.body)
        if world.rng.random() < 0.2:
            raise ValueError("now and then")

    address = world.name_server_address
    async with (
        Producer(address, group="p", instance_name="sender", try_timeout=1.0) as producer,
        PushConsumer(address, group="g") as one,
        PushConsumer(address, group="g") as other,
        trio.open_nursery() as nursery,
    ):
        for consumer in (one, other):
            consumer.subscribe("T")
            nursery.start_soon(consumer.run, handle)
        world.lose_answers("SEND_MESSAGE", times=2)
        with world.slice(5):
            for number in range(10):
                await producer.send(Message("T", b"%d" % number), timeout=20)
        world.cut(client="sender")
        with world.partition("clients", "broker-b"):
            await trio.sleep(20)
        await world.crash("broker-a")
        await trio.sleep(5)
        await world.restart("broker-a")
        with trio.fail_after(600):
            while len(set(handled)) < 10:
                await trio.sleep(1)
        nursery.cancel_scope.cancel()
    return handled


def run(seed: int) -> tuple[str, float, int]:
    simulation = simulate(program, seed=seed, brokers=2, topics={"T": 2})
    assert {b"%d" % number for number in range(10)} == set(simulation.value)
    return simulation.digest, simulation.seconds, simulation.events


def test_only_the_same_seed_gives_the_same_events() -> None:
    first, again, other = run(1), run(1), run(2)
    assert first == again
    assert other[0] != first[0]
    assert first[1] > 25


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_same_seed_gives_the_same_events_in_another_process(hash_seed: str) -> None:
    code = "from tests.testing.test_simulation import run; print(run(3))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    assert ran.stdout == f"{run(3)}\n"


def test_time_and_randomness_are_replaced_and_restored() -> None:
    async def look(world: World) -> tuple[float, float, float]:
        await trio.sleep(3600)
        return time.time(), random.random(), random.Random().random()

    began = time.time()
    state = random.getstate()
    first, again = simulate(look, seed=1), simulate(look, seed=1)
    assert first.value == again.value
    assert first.value[0] == 1_700_003_600.0
    assert first.seconds == 3600
    assert simulate(look, seed=2).value[1:] != first.value[1:]
    assert random.getstate() == state
    assert time.time() >= began


def test_other_threads_keep_real_time_and_do_not_change_the_simulation() -> None:
    seen: list[tuple[float, int]] = []

    def use_trio() -> None:
        async def run_tasks() -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(trio.lowlevel.checkpoint)

        trio.run(run_tasks)
        seen.append((time.time(), os.getpid()))
        random.Random()

    async def order_of_tasks(world: World, *, with_thread: bool) -> tuple[list[int], float]:
        if with_thread:
            thread = threading.Thread(target=use_trio)
            thread.start()
            thread.join()
        order: list[int] = []

        async def add(number: int) -> None:
            order.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(add, number)
        return order, random.Random().random()

    began = time.time()
    alone, beside = [
        simulate(partial(order_of_tasks, with_thread=with_thread), seed=1).value
        for with_thread in (False, True)
    ]
    assert alone == beside
    [(at, process)] = seen
    assert began <= at <= time.time()
    assert process == os.getpid()


def test_simulations_in_several_threads_run_one_after_another() -> None:
    async def look(world: World) -> tuple[float, float]:
        for _ in range(500):
            await trio.sleep(world.rng.random())
        return time.time(), random.random()

    clock = time.time
    alone = [simulate(look, seed=seed).value for seed in range(8)]
    with ThreadPoolExecutor(4) as threads:
        beside = list(threads.map(lambda seed: simulate(look, seed=seed).value, range(8)))
    assert alone == beside
    assert time.time is clock


def test_plain_handlers_are_called_in_the_thread_of_the_simulation() -> None:
    async def consume(world: World) -> list[bytes]:
        handled: list[bytes] = []
        async with (
            Producer(world.name_server_address, group="p") as producer,
            PushConsumer(world.name_server_address, group="g") as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe("T")
            nursery.start_soon(consumer.run, lambda message: handled.append(message.body))
            for number in range(3):
                await producer.send(Message("T", b"%d" % number))
            while len(handled) < 3:
                await trio.sleep(1)
            nursery.cancel_scope.cancel()
        return sorted(handled)

    assert simulate(consume, seed=1, topics=["T"]).value == [b"0", b"1", b"2"]


def test_a_simulated_program_can_inspect_dead_letters() -> None:
    async def consume(world: World) -> list[bytes]:
        def fail(message: ReceivedMessage) -> None:
            raise ValueError("on purpose")

        async with (
            Producer(world.name_server_address, group="p") as producer,
            PushConsumer(world.name_server_address, group="g", max_reconsume_times=0) as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe("T")
            nursery.start_soon(consumer.run, fail)
            await producer.send(Message("T", b"bad"))
            while not world.dead_letters("g"):
                await trio.sleep(1)
            nursery.cancel_scope.cancel()
        return [message.body for message in world.dead_letters("g")]

    assert simulate(consume, seed=1, topics=["T"]).value == [b"bad"]


def test_an_error_of_the_program_has_a_note_with_the_seed() -> None:
    async def fail(world: World) -> None:
        await trio.sleep(1.5)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose") as failed:
        simulate(fail, seed=7)
    assert failed.value.__notes__ == ["simulated with seed 7, for 1.500 s of virtual time"]


def test_trace_keeps_the_events_as_text() -> None:
    async def note(world: World) -> None:
        world.trace("something", 1)

    assert simulate(note, seed=1).lines == ()
    assert simulate(note, seed=1, trace=True).lines[0] == "0.000000 something 1"


def test_a_transaction_that_reuses_the_offset_of_a_lost_one_is_checked() -> None:
    async def transact(world: World) -> list[bytes]:
        states = {b"lost": TransactionState.COMMIT, b"kept": TransactionState.UNKNOWN}

        async def check(_: ReceivedMessage) -> TransactionState:
            return TransactionState.COMMIT

        async def local_work(message: Message, _: str) -> TransactionState:
            return states[bytes(message.body)]

        async with TransactionProducer(
            world.name_server_address, group="p", check=check, topics="T"
        ) as producer:
            world.flush()
            await producer.send_in_transaction(Message("T", b"lost"), local_work)
            await trio.sleep(1)  # the end of a transaction is sent oneway
            assert [message.body for message in world.messages("T")] == [b"lost"]
            await world.crash(keep="flushed")
            await world.restart()
            assert world.messages("T") == []
            await producer.send_in_transaction(Message("T", b"kept"), local_work, timeout=60)
            await trio.sleep(120)
        return [message.body for message in world.messages("T")]

    assert simulate(transact, seed=1, topics=["T"]).value == [b"kept"]


def test_a_transaction_is_checked_again_if_its_commit_was_not_flushed() -> None:
    async def transact(world: World) -> list[bytes]:
        async def check(_: ReceivedMessage) -> TransactionState:
            return TransactionState.COMMIT

        async def flush_and_commit(message: Message, _: str) -> TransactionState:
            world.flush()
            return TransactionState.COMMIT

        async with TransactionProducer(
            world.name_server_address, group="p", check=check, topics="T"
        ) as producer:
            await producer.send_in_transaction(Message("T", b"x"), flush_and_commit)
            await trio.sleep(1)  # the end of a transaction is sent oneway
            await world.crash(keep="flushed")
            await world.restart()
            assert world.messages("T") == []
            await trio.sleep(120)
        return [message.body for message in world.messages("T")]

    assert simulate(transact, seed=1, topics=["T"]).value == [b"x"]


def test_a_restarted_name_server_gets_changed_topics() -> None:
    async def change(world: World) -> list[int]:
        name_server = world.name_server_address.split(";")[1]
        counts = []
        async with Client(name_server) as client:
            await world.crash(name_server)
            world.change_topic("T", queues=6)
            await world.restart(name_server)
            for _ in range(2):
                counts.append(len((await core_of(client).routes.refresh("T")).read_queues))
                await trio.sleep(31)
        return counts

    assert simulate(change, seed=1, name_servers=2, topics={"T": 3}).value == [3, 6]


@pytest.mark.parametrize("checkpoints", range(2, 12))
def test_a_restart_is_completed_when_it_is_cancelled(checkpoints: int) -> None:
    async def program(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.restart)
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        async with Producer(world.name_server_address, group="p", retries=0) as producer:
            await producer.send(Message("T", b"x"))

    simulate(program, seed=1, topics=["T"])


def test_invalid_arguments_are_errors() -> None:
    async def nothing(world: World) -> None:
        pass

    with pytest.raises(ConfigurationError, match="brokers is 0; it must be 1 or more"):
        simulate(nothing, seed=1, brokers=0)
    with pytest.raises(ConfigurationError, match="default_topic_queue_nums is 0"):
        simulate(nothing, seed=1, default_topic_queue_nums=0)
    for latency in ((2.0, 1.0), (-1.0, 0.0), (0.0, math.inf), 0.1, ("0", "1")):
        with pytest.raises(ConfigurationError, match=r"latency is .* expected seconds"):
            simulate(nothing, seed=1, latency=cast(Any, latency))
    with pytest.raises(ConfigurationError, match="split is 7; it must be 0 to 1"):
        simulate(nothing, seed=1, split=7)
    for timeout in (-1.0, math.nan):
        with pytest.raises(ConfigurationError, match=r"timeout is .*; it must be 0 or more"):
            simulate(nothing, seed=1, timeout=timeout)


def test_a_program_that_does_not_end_times_out() -> None:
    async def wait(world: World) -> None:
        async with Producer(world.name_server_address, group="p"):
            await trio.sleep_forever()

    with pytest.raises(trio.TooSlowError, match="did not end within 86400 s of virtual time") as caught:
        simulate(wait, seed=4)
    assert "seed 4" in caught.value.__notes__[0]
    with pytest.raises(trio.TooSlowError, match="within 60 s"):
        simulate(wait, seed=4, timeout=60)


@pytest.mark.parametrize("api", [aio, blocking])
def test_clients_of_other_apis_are_refused(api: ModuleType) -> None:
    async def program(world: World) -> None:
        api.Producer(world.name_server_address, group="p")

    with pytest.raises(
        RuntimeError,
        match=r"aio and rocketmq_py\.blocking run in a thread .* use the classes of rocketmq_py",
    ):
        simulate(program, seed=1)


def test_a_program_that_is_not_an_async_function_is_refused() -> None:
    def program(world: World) -> None:
        pass

    with pytest.raises(ConfigurationError, match=r"program is .*; it must be an async function"):
        simulate(program, seed=1)  # type: ignore[arg-type]
