"""Finding out whether brokers that could not be reached are back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.errors import RocketMQError
from rocketmq_py.producer.latency_faults import LatencyFaults
from rocketmq_py.protocol.headers import GetMaxOffsetRequest
from rocketmq_py.remoting.running import open_nursery

logger: Final = logging.getLogger("rocketmq_py.producer")

DETECT_INTERVAL = 3.0
"""Seconds between two rounds of probes: what Java's timer and its detectInterval come to together."""

DETECT_TIMEOUT = 0.2
"""Seconds for the answer to a probe (Java: detectTimeout); dialling is not counted."""

MOST_PROBES = 8
"""Probes under way at the same time: many brokers may be lost at once, when a network is cut."""


class FaultDetector:
    """Probes the brokers that could not be reached until they can. Java: ``LatencyFaultToleranceImpl``.

    Args:
        faults: which brokers to probe, and who is told.
        probe: asks one broker, by its name; True if it answered. What it raises is logged, as False is not.
        interval: seconds between two rounds; each broker is probed once in a round.
        most_probes: how many brokers are probed at the same time.
    """

    def __init__(
        self,
        faults: LatencyFaults,
        probe: Callable[[str], Awaitable[bool]],
        *,
        interval: float = DETECT_INTERVAL,
        most_probes: int = MOST_PROBES,
    ) -> None:
        self._faults = faults
        self._probe = probe
        self._interval = interval
        self._most_probes = most_probes

    async def run(self) -> None:
        """Probe in rounds until cancelled."""
        while True:
            await trio.sleep(self._interval)
            await self.run_round()

    async def run_round(self) -> None:
        """Probe every broker that cannot be reached once, and wait for all of the answers."""
        places = trio.Semaphore(self._most_probes)
        async with open_nursery() as nursery:
            for broker_name in self._faults.unreachable():
                await places.acquire()
                nursery.start_soon(self._probe_one, broker_name, places)

    async def _probe_one(self, broker_name: str, places: trio.Semaphore) -> None:
        try:
            if await self._probe(broker_name):
                self._faults.reached(broker_name)
        except Exception:
            # The task's end would be the producer's end.
            logger.exception("probing broker %s raised", broker_name)
        finally:
            places.release()


async def answers(client: Client, broker_name: str, *, timeout: float = DETECT_TIMEOUT) -> bool:
    """Ask the broker's master for an offset, and return whether it answers at all.

    Java: the ``ServiceDetector`` of ``DefaultMQProducerImpl``, for which a refusal is no answer. Here it is
    one: a producer that may not ask for offsets would never get its broker back.

    Args:
        client: its routes say where the broker is.
        broker_name: the broker.
        timeout: seconds for the answer; how long dialling takes is the client's setting.
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
        logger.debug("broker %s does not answer: %s", broker_name, error)
        return False
    return True
