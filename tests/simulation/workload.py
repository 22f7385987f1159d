"""Random clients on a random cluster, with things that go wrong: all of it from one seed."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection
from pathlib import Path

import attrs
import trio

from rocketmq_py.testing import Simulation, World, simulate
from tests.simulation.consuming import Consumers
from tests.simulation.plan import TOPICS, Plan
from tests.simulation.producing import Producers
from tests.simulation.scene import Scene
from tests.simulation.story import ErrorLog
from tests.simulation.troubles import Troubles

SETTLE_SECONDS = 600.0
"""How long everything may take to arrive, once nothing goes wrong any more."""
END_OF_TIME = 1200.0
"""Seconds after which whatever still waits is taken for something that waits for ever."""
END_SECONDS = 30
"""How long brokers may take to notice that all clients are gone."""


@attrs.frozen
class Outcome:
    """What came of a plan.

    Attributes:
        findings: what was found wrong.
        accepted: how many messages were acknowledged.
        lost: how many crashes without a flush have lost.
    """

    findings: list[str]
    accepted: int
    lost: int


def run(plan: Plan, *, trace: bool = False) -> Simulation[Outcome]:
    """Return how a plan went."""

    async def program(world: World) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            return await play(Scene(plan, world, Path(folder)))

    return simulate(
        program,
        seed=plan.seed,
        brokers=plan.brokers,
        name_servers=plan.name_servers,
        replicas=plan.replicas,
        topics=TOPICS,
        latency=(0.0, plan.latency),
        trace=trace,
        message_delay_level="1s 1s 1s 2s 2s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s",
        transaction_time_out=2.0,
        transaction_check_interval=5.0,
        transaction_check_max=1000,
    )


async def play(scene: Scene) -> Outcome:
    """Play a plan, and look at what came of it."""
    story = scene.story
    producers, consumers = Producers(scene), Consumers(scene)
    before = _tasks()
    log, logger = ErrorLog(story), logging.getLogger("rocketmq_py")
    logger.addHandler(log)
    try:
        with trio.move_on_after(END_OF_TIME) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumers.run)
                nursery.start_soon(producers.run)
                nursery.start_soon(Troubles(scene).run)
                nursery.start_soon(_watch, scene, consumers)
                await _settle(scene, producers)
                scene.over.set()
        if scope.cancelled_caught:
            story.find("something has not ended, and was cancelled")
        await _look_at_what_is_left(scene, before)
    finally:
        logger.removeHandler(log)
    story.check_offsets()
    story.check_end()
    return Outcome(story.findings, sum(map(len, story.accepted.values())), len(story.lost))


async def _settle(scene: Scene, producers: Producers) -> None:
    await trio.sleep(scene.plan.seconds)
    scene.calm.set()
    scene.world.trace("calm")
    scene.world.heal()
    await producers.sent_all.wait()
    with trio.move_on_after(SETTLE_SECONDS):
        while scene.story.unstored() or scene.story.missing() or scene.story.behind():
            await trio.sleep(1)
    await trio.sleep(scene.plan.quiet_seconds)


async def _watch(scene: Scene, consumers: Consumers) -> None:
    while not scene.over.is_set():
        scene.story.check_offsets()
        consumers.check_bounds()
        with trio.move_on_after(1):
            await scene.over.wait()


async def _look_at_what_is_left(scene: Scene, before: Collection[str]) -> None:
    """Find connections and tasks that have outlived all clients."""
    for _ in range(END_SECONDS):
        await trio.sleep(1)
        connections = scene.world.connections()
        tasks = [task for task in _tasks() if task not in before]
        if not connections and not tasks:
            return
    if connections:
        scene.story.find(f"{connections} connections are open when all clients are closed")
    for task in tasks:
        scene.story.find(f"{task} runs when all clients are closed")


def _tasks() -> list[str]:
    """Return the names of all tasks but those of the servers, which are below this one."""
    found, looking = [], [trio.lowlevel.current_root_task()]
    while looking:
        task = looking.pop()
        if task is not None:
            found.append(task.name)
            if task is not trio.lowlevel.current_task():
                looking += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found
