"""What all who take part in a random workload share."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from rocketmq_py.testing import World
from rocketmq_py.testing.simulation import now_ms
from tests.simulation.plan import Plan
from tests.simulation.story import Story

CLOSE_SECONDS = 5.0
"""How long closing may take: the default of close_timeout."""
MINUTE_MS = 60_000


class Scene:
    """A plan that is being played.

    Attributes:
        plan: the plan.
        world: its cluster.
        story: what has happened.
        rng: where choices come from.
        folder: for local offsets.
        is_calm: nothing goes wrong any more.
        calm: set when it is.
        over: set when all may end.
    """

    def __init__(self, plan: Plan, world: World, folder: Path) -> None:
        self.plan = plan
        self.world = world
        self.story = Story(world, plan)
        self.rng = random.Random(f"run {plan.seed}")
        self.folder = folder
        self.calm = trio.Event()
        self.over = trio.Event()

    @property
    def address(self) -> str:
        """What clients are given."""
        return self.world.name_server_address

    @property
    def is_calm(self) -> bool:
        """Whether nothing goes wrong any more."""
        return self.calm.is_set()

    def clock(self) -> Callable[[], int]:
        """Return a clock of its own for a client: it is wrong, and jumps, where the plan has it so."""
        if not self.plan.clocks:
            return now_ms
        wrong = [self.rng.randint(-30 * MINUTE_MS, 30 * MINUTE_MS) for _ in range(5)]
        return lambda: now_ms() + wrong[int(trio.current_time() / 10) % len(wrong)]

    @asynccontextmanager
    async def closing(self, name: str, client: Any) -> AsyncIterator[Any]:
        """Use a client, and see how long its end takes."""
        began = 0.0
        try:
            async with client as opened:
                try:
                    yield opened
                finally:
                    began = trio.current_time()
        finally:
            if began and trio.current_time() - began > CLOSE_SECONDS + 0.1:
                self.story.find(f"closing {name} took {trio.current_time() - began:.2f} s")
