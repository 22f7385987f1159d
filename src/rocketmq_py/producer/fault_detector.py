"""Probes of unreachable brokers, for latency-fault policies that detect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.producer.latency_faults import LatencyFaults
from rocketmq_py.protocol.headers import GetMaxOffsetRequest
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.producer")

DETECT_INTERVAL = 3.0
"""Seconds between two rounds of probes. Java's timer and detectInterval result in the same interval."""

DETECT_TIMEOUT = 0.2
"""Seconds for the answer to a probe, without dialling (Java: detectTimeout)."""

MAX_CONCURRENT_PROBES = 8
"""A network partition may make many brokers unreachable at once."""


class FaultDetector:
    """Probes unreachable brokers until they answer. Java: ``LatencyFaultToleranceImpl``.

    Args:
        faults: the table with the brokers to probe. It gets the results.
        probe: probes a broker by its name and returns whether it answered. Its exceptions are logged.
        interval: seconds between two rounds. Each round probes each broker once.
        max_concurrent: the largest number of concurrent probes.
    """

    def __init__(
        self,
        faults: LatencyFaults,
        probe: Callable[[str], Awaitable[bool]],
        *,
        interval: float = DETECT_INTERVAL,
        max_concurrent: int = MAX_CONCURRENT_PROBES,
    ) -> None:
        self._faults = faults
        self._probe = probe
        self._interval = interval
        self._max_concurrent = max_concurrent

    async def run(self) -> None:
        """Probe in rounds until cancelled."""
        while True:
            await trio.sleep(self._interval)
            await self.run_round()

    async def run_round(self) -> None:
        """Probe every unreachable broker once, and wait for the answers."""
        semaphore = trio.Semaphore(self._max_concurrent)
        async with open_nursery() as nursery:
            for broker_name in self._faults.unreachable():
                await semaphore.acquire()
                nursery.start_soon(self._probe_one, broker_name, semaphore)

    async def _probe_one(self, broker_name: str, semaphore: trio.Semaphore) -> None:
        try:
            if await self._probe(broker_name):
                self._faults.reached(broker_name)
        except Exception:
            # An exception of this task would end the producer.
            logger.exception("probe failed: broker=%s", broker_name)
        finally:
            semaphore.release()


async def is_reachable(client: ClientCore, broker_name: str, *, timeout: float = DETECT_TIMEOUT) -> bool:
    """Ask a broker's master for an offset, and return whether it answers.

    Java: the ``ServiceDetector`` of ``DefaultMQProducerImpl``. A refusal counts as an answer here, unlike in
    Java. Otherwise a producer without permission to query offsets would avoid the broker for ever.

    Args:
        client: provides the routes and connections.
        broker_name: the broker.
        timeout: seconds for the answer. The client's ``connect_timeout`` limits the dial.
    """
    address = client.routes.master_address_nowait(broker_name)
    topic = next(iter(client.routes.topics()), None)
    if address is None or topic is None:
        return False
    header = GetMaxOffsetRequest(topic=topic, queue_id=0, broker_name=broker_name)
    try:
        await client.connections.get(address)
        await client.connections.request(address, header.code, header.to_fields(), timeout=timeout)
    except RocketMQError as error:
        logger.debug("probe not answered: broker=%s error=%s", broker_name, error)
        return False
    return True
