"""A hundred small worlds keep their promises; :mod:`tests.simulation.test_workload` has larger ones."""

from __future__ import annotations

import pytest

from tests.simulation.plan import brief_plan_of
from tests.simulation.workload import run


@pytest.mark.parametrize("seed", range(100))
def test_nothing_is_wrong(seed: int) -> None:
    findings = run(brief_plan_of(seed)).value.findings
    assert not findings, "\n".join(
        [f"again: python -m tests.simulation --brief --seed {seed} --trace", *findings]
    )
