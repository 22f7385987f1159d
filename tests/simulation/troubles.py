"""What goes wrong with a cluster, and what its operators do."""

from __future__ import annotations

from contextlib import suppress

import trio

from rocketmq_py.admin import Admin, ResetTo
from rocketmq_py.errors import RocketMQError
from tests.simulation.plan import TOPICS
from tests.simulation.scene import Scene

REQUESTS = ("SEND_MESSAGE", "PULL_MESSAGE", "HEART_BEAT", "UPDATE_CONSUMER_OFFSET", None)
CLOSED = ("plain", "keyed", "transacted")
MOST_UNFLUSHED = 3.0
"""Seconds between a broker's last flush and the crash that loses what came since."""


class Troubles:
    """Has a plan's faults come at their times."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._world = scene.world
        self._rng = scene.rng
        self._queues = TOPICS["plain"]

    async def run(self) -> None:
        """Return when all have been, and are mended."""
        async with trio.open_nursery() as nursery:
            for at, what in self._scene.plan.faults:
                await trio.sleep_until(at)
                self._world.trace("fault", what)
                nursery.start_soon(self._befall, what)

    async def _befall(self, what: str) -> None:
        rng, world = self._rng, self._world
        broker = rng.choice(world.broker_names)
        name_server = rng.choice(world.name_server_address.split(";"))
        server = rng.choice((broker, broker, name_server))
        request = rng.choice(REQUESTS)
        times = rng.randint(1, 5)
        seconds = rng.choice((0.1, 2.0, 8.0, 20.0)) * rng.uniform(0.5, 1.0)
        match what:
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
                self._scene.story.crashed(broker)
                await world.crash(broker)
                await self._restart(broker, seconds)
            case "crash_name_server":
                await world.crash(name_server)
                await self._restart(name_server, seconds)
            case "crash_without_flush":
                world.flush(broker)
                await trio.sleep(rng.uniform(0.0, MOST_UNFLUSHED))
                self._scene.story.crashed(broker)
                await world.crash(broker)
                with self._scene.story.losing(broker):
                    await world.crash(broker, keep="flushed")
                await self._restart(broker, seconds)
            case "reset":
                await self._reset()
            case "add_queues":
                # Fewer would hide what the last ones have: from groups of real brokers, too.
                self._queues = max(self._queues, rng.randint(4, 6))
                world.change_topic("plain", queues=self._queues)
            case "close_for_reading":
                topic = rng.choice(CLOSED)
                world.change_topic(topic, readable=False)
                await trio.sleep(seconds)
                world.change_topic(topic, readable=True)
            case "close_for_writing":
                topic = rng.choice(CLOSED)
                world.change_topic(topic, writable=False)
                await trio.sleep(seconds)
                world.change_topic(topic, writable=True)
            case _:
                await self._slow_down(what, server, seconds)

    async def _slow_down(self, what: str, server: str, seconds: float) -> None:
        rng, world = self._rng, self._world
        fault = {
            "freeze": lambda: world.freeze(server),
            "slow": lambda: world.slow(latency=rng.uniform(0.0, 0.5), server=server),
            "slice": lambda: world.slice(rng.randint(1, 200), server=server),
            "partition": lambda: world.partition("clients", server),
        }[what]()
        await trio.sleep(seconds)
        fault.end()

    async def _restart(self, server: str, seconds: float) -> None:
        await trio.sleep(seconds)
        await self._world.restart(server)

    async def _reset(self) -> None:
        """Have a group begin again (to a time, it would pass over what it has not handled yet)."""
        groups = [group for group in self._scene.plan.groups if group.pulls]
        if not groups:
            return
        group = self._rng.choice(groups)
        with trio.move_on_after(10), suppress(RocketMQError):
            async with Admin(self._scene.address) as admin:
                await admin.offsets.reset(group.name, group.topic, ResetTo.earliest())
                self._world.trace("reset", group.name)
