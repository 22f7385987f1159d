"""What tests of administration share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rocketmq_py.errors import UnsupportedByBrokerError
from tests.behaviours.conftest import ClusterUnderTest


@contextmanager
def what_embedded_lacks(cluster: ClusterUnderTest) -> Iterator[None]:
    """Skip the test if the embedded broker does not answer a request of it; real ones answer all."""
    try:
        yield
    except UnsupportedByBrokerError as error:
        if cluster.name != "embedded":
            raise
        pytest.skip(str(error))


def is_4(cluster: ClusterUnderTest) -> bool:
    """Tell whether a cluster's brokers are of 4.x."""
    return cluster.name.startswith("4")
