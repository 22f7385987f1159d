from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from rocketmq_py.broker.config import BrokerConfig
from tests.broker.offline import OfflineBroker, OfflineClient


@pytest.fixture
async def open_broker(nursery: trio.Nursery) -> Callable[..., OfflineBroker]:
    """Return a function that creates a broker with settings, and runs its tasks."""

    def open_broker(**settings: object) -> OfflineBroker:
        broker = OfflineBroker(BrokerConfig(**settings))  # type: ignore[arg-type]  # settings of a test
        for task in broker.broker.tasks:
            nursery.start_soon(task)
        return broker

    return open_broker


@pytest.fixture
async def broker(open_broker: Callable[..., OfflineBroker]) -> OfflineBroker:
    return open_broker()


@pytest.fixture
async def client(broker: OfflineBroker) -> OfflineClient:
    return broker.connect()
