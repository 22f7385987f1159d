"""Injects a plan's faults, and the actions of operators, into the cluster."""

from __future__ import annotations

from contextlib import suppress

import trio

from rocketmq_py.admin import Admin
from rocketmq_py.errors import RocketMQError
from tests.simulation.plan import TOPICS
from tests.simulation.run_context import RunContext

REQUESTS = ("SEND_MESSAGE", "PULL_MESSAGE", "HEART_BEAT", "UPDATE_CONSUMER_OFFSET", None)
CLOSABLE_TOPICS = ("plain", "keyed", "transacted")
MAX_UNFLUSHED_SECONDS = 3.0
"""Maximum seconds between a broker's last flush and a crash that loses later messages."""


class FaultSchedule:
    """Injects the faults of a plan at their times.

    Attributes:
        ended: whether all faults have ended, and all servers run again.
    """

    def __init__(self, context: RunContext) -> None:
        self.ended = False
        self._context = context
        self._world = context.world
        self._rng = context.rng
        self._queues = TOPICS["plain"]

    async def run(self) -> None:
        """Inject all faults. Returns when the last one has ended."""
        async with trio.open_nursery() as nursery:
            for at, fault in self._context.plan.faults:
                await trio.sleep_until(at)
                self._world.trace("fault", fault)
                nursery.start_soon(self._inject, fault)
        self.ended = True

    async def _inject(self, fault: str) -> None:
        rng, world = self._rng, self._world
        broker = rng.choice(world.broker_names)
        name_server = rng.choice(world.name_server_address.split(";"))
        server = rng.choice((broker, broker, name_server))
        request = rng.choice(REQUESTS)
        times = rng.randint(1, 5)
        seconds = rng.choice((0.1, 2.0, 8.0, 20.0)) * rng.uniform(0.5, 1.0)
        match fault:
            case "cut":
                world.cut(server)
            case "lose_answers":
                world.lose_answers(request, times=times, server=server)
            case "lose_requests":
                world.lose_requests(request, times=times, server=server)
            case "fail":
                world.fail(request, times=times, server=server)
            case "delay":
                world.delay(request, seconds, times=times, server=server)
            case "late_heartbeats":
                world.delay("HEART_BEAT", seconds, times=times)
            case "crash":
                self._context.history.record_crash(broker)
                await world.crash(broker)
                await self._restart(broker, seconds)
            case "crash_name_server":
                await world.crash(name_server)
                await self._restart(name_server, seconds)
            case "crash_without_flush":
                world.flush(broker)
                await trio.sleep(rng.uniform(0.0, MAX_UNFLUSHED_SECONDS))
                self._context.history.record_crash(broker)
                await world.crash(broker)  # nothing is stored while the losses are recorded
                with self._context.history.recording_losses(broker):
                    await world.crash(broker, keep="flushed")
                await self._restart(broker, seconds)
            case "reset":
                await self._reset()
            case "add_queues":
                # Fewer queues would hide messages of the last ones, on real brokers, too.
                self._queues = max(self._queues, rng.randint(4, 6))
                world.change_topic("plain", queues=self._queues)
            case "close_for_reading":
                topic = rng.choice(CLOSABLE_TOPICS)
                world.change_topic(topic, readable=False)
                await trio.sleep(seconds)
                world.change_topic(topic, readable=True)
            case "close_for_writing":
                topic = rng.choice(CLOSABLE_TOPICS)
                world.change_topic(topic, writable=False)
                await trio.sleep(seconds)
                world.change_topic(topic, writable=True)
            case _:
                await self._degrade(fault, server, seconds)

    async def _degrade(self, name: str, server: str, seconds: float) -> None:
        rng, world = self._rng, self._world
        fault = {
            "freeze": lambda: world.freeze(server),
            "slow": lambda: world.slow(latency=rng.uniform(0.0, 0.5), server=server),
            "slice": lambda: world.slice(rng.randint(1, 200), server=server),
            "partition": lambda: world.partition("clients", server),
        }[name]()
        await trio.sleep(seconds)
        fault.end()

    async def _restart(self, server: str, seconds: float) -> None:
        await trio.sleep(seconds)
        await self._world.restart(server)

    async def _reset(self) -> None:
        """Reset a group to the earliest offsets. A reset to a time could skip unhandled messages."""
        groups = [group for group in self._context.plan.groups if group.pulls]
        if not groups:
            return
        group = self._rng.choice(groups)
        with trio.move_on_after(10), suppress(RocketMQError):
            async with Admin(self._context.address) as admin:
                await admin.offsets.reset(group.name, group.topic, "earliest")
                self._world.trace("reset", group.name)
