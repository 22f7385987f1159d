"""Random workloads without findings. ``make simulate SEEDS=1000`` runs more of them.

``SIMULATED_SEEDS`` is the number of seeds to run here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from unittest import mock

import attrs
import pytest

from rocketmq_py import PushConsumer
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.testing import World
from tests.simulation.plan import CONSUMERS, Group, Plan, brief_plan_of, plan_of
from tests.simulation.planted import PLANTED
from tests.simulation.shrinking import findings_of, shrunk
from tests.simulation.workload import run

FIRST_SEEDS = range(int(os.environ.get("SIMULATED_SEEDS", "8")))
FOUND_BY = {
    "task_left_by_close": 0,
    "deduplicated_batch": 0,
    "dropped_acknowledgement": 2,
    "gap_in_reading": 0,
    "lost_wake_up": 10,
    "offset_too_early": 0,
    "reply_matched_twice": 0,
    "request_of_closed_connection": 8,
    "forgotten_requester_expected": 30,
    "retry_ignores_queue": 4,
    "rolled_back_message_shown": 5,
    "send_back_skipped": 1,
    "transaction_at_reused_offset": 212,
}
FOUND_BRIEFLY_BY = {
    "queue_change_missed_by_name_server": 24069,
    "offset_not_recommitted": 2228,
    "revoked_queue_overcommitted": 50,
    "shared_queue_lock": 273,
}
"""The seed that finds each planted defect, of whole plans and of brief ones.

If plans change, ``--plant NAME`` finds a new seed, with or without ``--brief``.

The planted defects include those that simulations have found in the past.
"""

MISJUDGED = {
    2852: "an operator reduced the number of queues, which hid the messages of the last ones",
    4405: "the same",
    6768: "a message popped before each of two crashes arrives and is acknowledged three times",
    30357: "a message sent back got the offset of a lost one in the retry topic and was skipped",
}
"""Seeds in which the checks once reported behaviour that is correct for brokers."""


@pytest.mark.parametrize("seed", sorted({*FIRST_SEEDS, *FOUND_BY.values(), *MISJUDGED}))
def test_workload_has_no_findings(seed: int) -> None:
    findings = run(plan_of(seed)).value.findings
    assert not findings, "\n".join(
        [f"run again: python -m tests.simulation --seed {seed} --trace", *findings]
    )


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_planted_defect_is_found(name: str) -> None:
    plan = brief_plan_of(FOUND_BRIEFLY_BY[name]) if name in FOUND_BRIEFLY_BY else plan_of(FOUND_BY[name])
    with PLANTED[name]():
        findings = run(plan).value.findings  # an exception would be a mistake of the planted code
    assert findings


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
def test_early_offset_commit_is_found(group: str) -> None:
    commit = OffsetTable.commit

    def too_early(self: OffsetTable, group: str, topic: str, queue_id: int, offset: int) -> None:
        commit(self, group, topic, queue_id, offset + 1)

    with mock.patch.object(OffsetTable, "commit", too_early):
        findings = findings_of(small(group))
    assert any(f"{group} committed" in finding for finding in findings)


def test_lost_messages_are_found() -> None:
    crash = World.crash

    async def without_flushed(self: World, server: str | None = None, *, keep: object = None) -> None:
        await crash(self, server, keep="nothing")

    with mock.patch.object(World, "crash", without_flushed):
        findings = findings_of(small("push", faults=((8.0, "crash"),)))
    assert any(" has lost " in finding for finding in findings)


def test_messages_lost_in_a_crash_without_flush_are_counted() -> None:
    plan = attrs.evolve(small("push", "orderly"), messages=40, faults=((5.0, "crash_without_flush"),))
    outcome = run(plan).value
    assert not outcome.findings
    assert 0 < outcome.lost < outcome.accepted


def test_group_without_messages_is_found() -> None:
    with mock.patch.object(PushConsumer, "subscribe"):
        findings = findings_of(small("push"))
    assert any("group push has not received" in finding for finding in findings)


def test_failing_plan_is_shrunk() -> None:
    plan = attrs.evolve(small("push", "lite"), brokers=2, faults=((1.0, "cut"), (2.0, "slice"), (3.0, "cut")))
    with mock.patch.object(PushConsumer, "subscribe"):
        least = shrunk(plan, tries=30)
    assert [group.name for group in least.groups] == ["push"]
    assert (least.faults, least.producers, least.brokers, least.messages) == ((), ("single",), 1, 1)


BROKEN = """
from unittest import mock
from tests.simulation import __main__ as simulation, shrinking
with mock.patch.object(simulation, "run", side_effect=ValueError("broken")):
    with mock.patch.object(shrinking, "run", side_effect=ValueError("broken")):
        raise SystemExit(simulation.main())
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_failing_seed_prints_its_command_and_a_smaller_plan(jobs: str) -> None:
    command = [sys.executable, "-c", BROKEN, "--first", "7", "--seeds", "2", "--jobs", jobs]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    first, second, third, *smallest, last = ran.stdout.splitlines()
    assert first == "seed 7 failed; run again: python -m tests.simulation --seed 7 --trace"
    assert second == "  ValueError: broken"
    assert third == "smallest failing plan:"
    assert smallest[:3] == [
        "  1 brokers, 1 name servers, up to 0.0005 s away",
        "  producers of 1 messages each: none",
        "  groups: none",
    ]
    assert "seed 8 failed; run again: python -m tests.simulation --seed 8 --trace" in smallest
    assert smallest[-1] == "  ValueError: broken"
    assert last.startswith("2 seeds, 2 failed, ")


def test_planted_defect_ends_the_run_at_the_first_seed_that_finds_it() -> None:
    options = ["--brief", "--plant", "deduplicated_batch", "--tries", "0", "--jobs", "2"]
    command = [sys.executable, "-c", BROKEN, *options]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    first, _, last = ran.stdout.splitlines()
    assert first.endswith("--seed 0 --trace --brief --plant deduplicated_batch")
    assert last.startswith("1 seeds, 1 failed, ")


def test_interrupted_run_prints_the_summary() -> None:
    command = [sys.executable, "-c", BROKEN, "--seeds", "3000", "--tries", "0", "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "--seed 0" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        rest, errors = running.communicate()
    assert running.returncode == 130
    assert not errors
    assert " seeds, " in rest.splitlines()[-1]
