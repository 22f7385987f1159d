"""Helpers of the administration tests."""

from __future__ import annotations

from tests.behaviours.conftest import ClusterUnderTest


def is_4(cluster: ClusterUnderTest) -> bool:
    """Return whether a cluster has brokers of 4.x."""
    return cluster.name.startswith("4")
