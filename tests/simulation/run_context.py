"""The state that the parts of a running workload share."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from rocketmq_py.client.lifespan import GIVEN_UP_SECONDS
from rocketmq_py.environment import use_environment
from rocketmq_py.producer import Producer
from rocketmq_py.testing import World
from rocketmq_py.testing.determinism import now_ms
from tests.simulation.history import History
from tests.simulation.plan import Plan

CLOSE_SECONDS = 5.0
"""The default of close_timeout: maximum seconds for closing a client, of producers without a result."""
MINUTE_MS = 60_000


class RunContext:
    """A running plan.

    Attributes:
        plan: the plan that runs.
        world: the simulated cluster.
        history: the events so far, and the findings.
        rng: the source of random choices.
        folder: the folder for local offsets.
        healed: set when all faults have ended.
        over: set when the run ends.
    """

    def __init__(self, plan: Plan, world: World, folder: Path) -> None:
        self.plan = plan
        self.world = world
        self.history = History(world, plan)
        self.rng = random.Random(f"run {plan.seed}")
        self.folder = folder
        self.healed = trio.Event()
        self.over = trio.Event()

    @property
    def address(self) -> str:
        """The name servers' address."""
        return self.world.name_server_address

    @property
    def is_healed(self) -> bool:
        """Whether all faults have ended."""
        return self.healed.is_set()

    def environment(self) -> AbstractContextManager[None]:
        """Give clients that are created in the block a clock. With ``wrong_clocks`` it is wrong and jumps."""
        return use_environment(now_ms=self._clock())

    def _clock(self) -> Callable[[], int]:
        if not self.plan.wrong_clocks:
            return now_ms
        wrong = [self.rng.randint(-30 * MINUTE_MS, 30 * MINUTE_MS) for _ in range(5)]
        return lambda: now_ms() + wrong[int(trio.current_time() / 10) % len(wrong)]

    @asynccontextmanager
    async def closing(self, name: str, client: Any) -> AsyncIterator[Any]:
        """Use a client, and report a close that takes too long."""
        began = 0.0
        try:
            async with client as opened:
                try:
                    yield opened
                finally:
                    began = trio.current_time()
        finally:
            allowed = CLOSE_SECONDS + GIVEN_UP_SECONDS + 0.1
            if began and trio.current_time() - max(began, _last_result(client)) > allowed:
                self.history.add_finding(f"closing {name} took {trio.current_time() - began:.2f} s")


def _last_result(client: object) -> float:
    """Return the time of a producer's last result: it closes for as long as results arrive."""
    return client._sender.counters.last_result if isinstance(client, Producer) else 0.0
