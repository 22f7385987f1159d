"""What all tests share."""

from __future__ import annotations

import pytest
import trio.testing


@pytest.fixture
def jumping_clock(mock_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    """Jumps ahead when nothing happens for a moment, so that sockets can answer first."""
    mock_clock.autojump_threshold = 0.02
    return mock_clock
