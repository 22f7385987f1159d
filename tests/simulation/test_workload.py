"""Random workloads keep their promises; ``make simulate SEEDS=1000`` runs more of them."""

from __future__ import annotations

import subprocess
import sys
from unittest import mock

import pytest

from rocketmq_py import PushConsumer
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.testing import World
from tests.simulation.story import Group
from tests.simulation.workload import CONSUMERS, Plan, plan_of, run

SOME = range(6)
ONCE_WRONG = {
    "a delayed heartbeat was handled after its connection had ended: a member that nobody was": 271,
    "the same, by way of a cut connection": 409,
}


@pytest.mark.parametrize("seed", [*SOME, *ONCE_WRONG.values()])
def test_nothing_is_wrong(seed: int) -> None:
    findings = run(plan_of(seed)).value
    assert not findings, "\n".join([f"again: python -m tests.simulation --seed {seed} --trace", *findings])


def small(*groups: str, faults: tuple[tuple[float, str], ...] = ()) -> Plan:
    return Plan(
        seed=1,
        brokers=1,
        name_servers=1,
        producers=("single", "keyed"),
        groups=tuple([Group(name, CONSUMERS[name], 1) for name in groups]),
        messages=5,
        faults=faults,
        seconds=10.0,
        latency=0.001,
    )


@pytest.mark.parametrize("group", ["push", "lite", "orderly"])
def test_an_offset_that_is_committed_too_early_is_found(group: str) -> None:
    commit = OffsetTable.commit

    def too_early(self: OffsetTable, group: str, topic: str, queue_id: int, offset: int) -> None:
        commit(self, group, topic, queue_id, offset + 1)

    with mock.patch.object(OffsetTable, "commit", too_early):
        findings = run(small(group)).value
    assert any(f"{group} committed" in finding for finding in findings)


def test_messages_that_are_lost_are_found() -> None:
    crash = World.crash

    async def with_all(self: World, server: str | None = None, *, keep: object = None) -> None:
        await crash(self, server, keep="nothing")

    with mock.patch.object(World, "crash", with_all):
        findings = run(small("push", faults=((8.0, "crash"),))).value
    assert any(" has lost " in finding for finding in findings)


def test_a_group_that_gets_nothing_is_found() -> None:
    with mock.patch.object(PushConsumer, "subscribe"):
        findings = run(small("push")).value
    assert any("group push has not got" in finding for finding in findings)


def test_a_failing_seed_says_how_to_run_it_again() -> None:
    program = """
from unittest import mock
from tests.simulation import __main__ as simulation
with mock.patch.object(simulation, "run", side_effect=ValueError("broken")):
    raise SystemExit(simulation.main())
"""
    command = [sys.executable, "-c", program, "--first", "7", "--seeds", "1"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 1
    first, second, last = ran.stdout.splitlines()
    assert first == "seed 7; again: python -m tests.simulation --seed 7 --trace"
    assert second == "  ValueError: broken"
    assert last.startswith("1 seeds, 1 failed, ")
