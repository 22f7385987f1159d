"""Settings of simulations."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def long_default_timeouts() -> None:
    """Keep the default timeouts: a simulation runs in virtual time, and must repeat outside pytest."""
