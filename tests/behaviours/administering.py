"""What tests of administration share."""

from __future__ import annotations

from tests.behaviours.conftest import ClusterUnderTest


def is_4(cluster: ClusterUnderTest) -> bool:
    """Tell whether a cluster's brokers are of 4.x."""
    return cluster.name.startswith("4")
