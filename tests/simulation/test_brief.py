"""A hundred short workloads without findings. :mod:`tests.simulation.test_workload` runs longer ones."""

from __future__ import annotations

import pytest

from tests.simulation.plan import brief_plan_of
from tests.simulation.workload import run


@pytest.mark.parametrize(
    "seed", [*range(10), *[pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 100)]]
)
def test_short_workload_has_no_findings(seed: int) -> None:
    findings = run(brief_plan_of(seed)).value.findings
    assert not findings, "\n".join(
        [f"run again: python -m tests.simulation --brief --seed {seed} --trace", *findings]
    )
