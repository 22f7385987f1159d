"""Runs a plan: random clients on a simulated cluster with faults, all derived from one seed."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection
from pathlib import Path

import attrs
import trio

from rocketmq_py.testing import World, simulate
from rocketmq_py.testing.simulation import Simulation
from tests.simulation.consuming import Consumers
from tests.simulation.fault_schedule import FaultSchedule
from tests.simulation.history import ErrorLog
from tests.simulation.plan import TOPICS, Plan
from tests.simulation.producing import Producers
from tests.simulation.run_context import RunContext

SETTLE_SECONDS = 600.0
"""Maximum seconds for all messages to arrive once all faults have ended."""
END_OF_TIME = 1200.0
"""Seconds after which a run counts as hanging."""
END_SECONDS = 30
"""Maximum seconds until brokers notice that all clients are closed."""


@attrs.frozen
class Outcome:
    """The outcome of a plan.

    Attributes:
        findings: the violations found.
        accepted: the number of acknowledged messages.
        lost: the number of messages lost in crashes without a flush.
    """

    findings: list[str]
    accepted: int
    lost: int


def run(plan: Plan, *, trace: bool = False) -> Simulation[Outcome]:
    """Run a plan on a simulated cluster."""

    async def program(world: World) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            return await run_plan(RunContext(plan, world, Path(folder)))

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


async def run_plan(context: RunContext) -> Outcome:
    """Run a plan, and check its history."""
    history = context.history
    producers, consumers, faults = Producers(context), Consumers(context), FaultSchedule(context)
    before = _tasks()
    log, logger = ErrorLog(history), logging.getLogger("rocketmq_py")
    logger.addHandler(log)
    try:
        with trio.move_on_after(END_OF_TIME) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumers.run)
                nursery.start_soon(producers.run)
                nursery.start_soon(faults.run)
                nursery.start_soon(_watch, context, consumers)
                await _settle(context, producers, faults)
                context.over.set()
        if scope.cancelled_caught:
            history.add_finding(f"the run did not end within {END_OF_TIME:g} s and was cancelled")
        await _check_leftovers(context, before)
    finally:
        logger.removeHandler(log)
    history.check_offsets()
    history.check_end()
    return Outcome(history.findings, sum(map(len, history.accepted.values())), len(history.lost))


async def _settle(context: RunContext, producers: Producers, faults: FaultSchedule) -> None:
    """Wait until all servers run again, and all messages are stored, handled and committed."""
    history = context.history
    await trio.sleep(context.plan.seconds)
    context.healed.set()
    context.world.trace("all faults ended")
    context.world.heal()
    await producers.sent_all.wait()
    with trio.move_on_after(SETTLE_SECONDS):
        while not faults.ended or history.not_stored() or history.missing() or history.uncommitted():
            await trio.sleep(1)
    await trio.sleep(context.plan.quiet_seconds)


async def _watch(context: RunContext, consumers: Consumers) -> None:
    while not context.over.is_set():
        context.history.check_offsets()
        consumers.check_bounds()
        with trio.move_on_after(1):
            await context.over.wait()


async def _check_leftovers(context: RunContext, before: Collection[str]) -> None:
    """Report connections and tasks that remain after all clients are closed."""
    for _ in range(END_SECONDS):
        await trio.sleep(1)
        connections = context.world._connection_count()
        tasks = [task for task in _tasks() if task not in before]
        if not connections and not tasks:
            return
    if connections:
        context.history.add_finding(f"{connections} connections are open after all clients were closed")
    for task in tasks:
        context.history.add_finding(f"{task} runs after all clients were closed")


def _tasks() -> list[str]:
    """Return the names of all tasks except those below the current one, which are the servers'."""
    found, looking = [], [trio.lowlevel.current_root_task()]
    while looking:
        task = looking.pop()
        if task is not None:
            found.append(task.name)
            if task is not trio.lowlevel.current_task():
                looking += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found
