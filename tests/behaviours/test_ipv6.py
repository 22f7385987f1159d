"""The embedded broker on ``::1``, in virtual time; integration/test_ipv6.py has real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketmq_py.broker import EmbeddedBroker
from tests import virtual_time
from tests.behaviours.conftest import RETRY_DELAYS, ClusterUnderTest
from tests.behaviours.over_ipv6 import HOST, OverIPv6

# The network is memory, but a client asks the system for its own address.
pytestmark = [pytest.mark.usefixtures("ipv6"), pytest.mark.trio(run=virtual_time.run)]


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterUnderTest]:
    async with EmbeddedBroker(
        HOST, message_delay_level=RETRY_DELAYS, transaction_time_out=0.5, transaction_check_interval=0.5
    ) as broker:
        yield ClusterUnderTest("embedded", broker.name_server_address, HOST)


class TestEmbeddedBrokerOverIPv6(OverIPv6):
    pass
