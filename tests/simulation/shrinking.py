"""Shrinks a failing plan."""

from __future__ import annotations

from tests.simulation.plan import Plan
from tests.simulation.workload import run


def findings_of(plan: Plan) -> list[str]:
    """Run a plan and return its findings. An exception is a finding, too."""
    try:
        return run(plan).value.findings
    except Exception as error:  # noqa: BLE001 - reported as a finding
        return [f"{type(error).__name__}: {error}"]


def shrunk(plan: Plan, *, tries: int) -> Plan:
    """Return a plan with fewer clients, faults and messages that fails, too. Runs at most ``tries`` plans."""
    left = tries
    while True:
        for smaller in plan.smaller():
            if not left:
                return plan
            left -= 1
            if findings_of(smaller):
                plan = smaller
                break
        else:
            return plan
