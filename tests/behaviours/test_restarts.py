"""Producers and consumers while all brokers are away for some seconds, such as a cluster's only broker."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from rocketmq_py import Client, Message, PoppedMessage, ReceivedMessage
from rocketmq_py.client.features import POP
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.outages import Outage
from tests.behaviours.reading import PATIENCE, read_all

pytestmark = pytest.mark.apis

INTERVAL = 0.05
"""Seconds between the sends of one sender."""


@pytest.fixture(autouse=True)  # before the first connection
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


@attrs.define
class Sends:
    """The outcomes of the sends of one sender: when each was made, when it ended, and the errors."""

    made: list[float] = attrs.field(factory=list)
    stored: list[float] = attrs.field(factory=list)
    errors: list[str] = attrs.field(factory=list)

    async def outcome(self, send: Callable[[], Awaitable[Any]]) -> None:
        self.made.append(made := trio.current_time())
        try:
            await send()
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.errors.append(f"after {trio.current_time() - made:.2f} s: {error!r}")
        else:
            self.stored.append(trio.current_time())


class Traffic:
    """Steady awaited, pipelined and batched sends, until ``stopped`` is set."""

    def __init__(self, client: Client, topic: str, timeout: float) -> None:
        self.sends = {"awaited": Sends(), "pipelined": Sends(), "batched": Sends()}
        self.stopped = trio.Event()
        self._client = client
        self._topic = topic
        self._timeout = timeout

    async def run(self) -> None:
        async with (
            self._client.producer("senders", send_timeout=self._timeout) as producer,
            self._client.producer("batchers", linger=0.005, send_timeout=self._timeout) as batching,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._repeat, "awaited", producer.send, True)
            nursery.start_soon(self._repeat, "pipelined", partial(self._submit, producer), False)
            nursery.start_soon(self._repeat, "batched", partial(self._submit, batching), False)

    async def _submit(self, producer: Any, message: Message) -> None:
        await (await producer.submit(message))

    async def _repeat(self, kind: str, send: Callable[[Message], Awaitable[Any]], in_turn: bool) -> None:
        """Send every INTERVAL seconds, and ``in_turn`` only after the last send has ended."""
        sends = self.sends[kind]
        async with trio.open_nursery() as nursery:
            for number in itertools.count():
                if self.stopped.is_set():
                    break
                message = Message(self._topic, f"{kind} {number}".encode())
                if in_turn:
                    await sends.outcome(partial(send, message))
                else:
                    nursery.start_soon(sends.outcome, partial(send, message))
                await trio.sleep(INTERVAL)

    def check(self, back_at: float, within: float) -> None:
        """Check that no send has failed, and when the first was stored after the brokers were back."""
        for kind, sends in self.sends.items():
            assert not sends.errors, f"{kind}: {len(sends.errors)} of {len(sends.made)}: {sends.errors[0]}"
            assert len(sends.stored) == len(sends.made) > 10
            first = min(time for time in sends.stored if time >= back_at)
            assert first - back_at <= within, kind

    @property
    def count(self) -> int:
        return sum(len(sends.stored) for sends in self.sends.values())


def slack(cluster: ClusterUnderTest, api: str) -> float:
    """Return the seconds that a busy machine may take in addition, in real time."""
    if cluster.name != "embedded":
        return 12.0
    return 0.0 if api == "trio" else 3.0


@pytest.mark.parametrize(("downtime", "timeout"), [(3.0, 10.0), (2.0, 3.0)])
async def test_no_send_fails_while_the_brokers_restart(
    cluster: ClusterUnderTest,
    api: str,
    client: Client,
    topic: str,
    outage: Outage,
    downtime: float,
    timeout: float,
) -> None:
    await outage.add_brokers(client)
    async with trio.open_nursery() as nursery:
        traffic = Traffic(client, topic, timeout + slack(cluster, api))
        nursery.start_soon(traffic.run)
        await trio.sleep(1)
        dials = len(outage.dials)
        back_at = await outage.last(downtime)
        # Three producers and the clients that they share: each dials about six times in three seconds.
        assert 0 < len(outage.dials) - dials < 40
        await trio.sleep(2)
        traffic.stopped.set()
    traffic.check(back_at, 1 + slack(cluster, api))
    # A retry after a lost answer may store a message twice.
    bodies = {message.body for message in await read_all(client, topic, count=traffic.count)}
    assert len(bodies) == traffic.count


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_handlers_and_polls_go_on_after_the_brokers_restart(
    cluster: ClusterUnderTest,
    api: str,
    client: Client,
    topic: str,
    unique: str,
    outage: Outage,
    orderly: bool,
) -> None:
    await outage.add_brokers(client)
    handled: list[bytes] = []
    polled: list[bytes] = []
    times: dict[str, float] = {}

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)
        times.setdefault(f"handled {message.body.decode()}", trio.current_time())

    async def poll(consumer: Any) -> None:
        while True:
            for message in await consumer.poll(wait=1):
                polled.append(message.body)
                times.setdefault(f"polled {message.body.decode()}", trio.current_time())

    async with (
        client.push_consumer(unique, consume_from="earliest", orderly=orderly) as pushed,
        client.lite_pull_consumer(f"{unique}-pull", consume_from="earliest") as pulled,
        client.producer("senders") as producer,
        trio.open_nursery() as nursery,
    ):
        pushed.subscribe(topic)
        pulled.subscribe(topic)
        nursery.start_soon(pushed.run, handle)
        nursery.start_soon(poll, pulled)
        for number in range(8):
            await producer.send(Message(topic, b"before %d" % number))
        with trio.fail_after(PATIENCE):
            while not len(set(handled)) == len(set(polled)) == 8:
                await trio.sleep(0.05)
        back_at = await outage.last(3.0)
        for number in range(8):  # one in each queue
            await producer.send(Message(topic, b"after %d" % number), timeout=10)
        with trio.fail_after(PATIENCE):
            while not len(set(handled)) == len(set(polled)) == 16:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    for kind in ("handled", "polled"):
        for number in range(8):
            waited = times[f"{kind} after {number}"] - back_at
            assert waited <= 1 + slack(cluster, api), f"{kind} {number} after {waited} s"


async def test_acknowledgements_and_pops_go_on_after_the_brokers_restart(
    cluster: ClusterUnderTest, api: str, client: Client, topic: str, unique: str, outage: Outage
) -> None:
    cluster.needs(POP)
    await outage.add_brokers(client)
    async with (
        client.pop_consumer(unique, consume_from="earliest") as consumer,
        client.producer("senders") as producer,
    ):
        consumer.subscribe(topic)
        for number in range(4):
            await producer.send(Message(topic, b"before %d" % number))
        received: list[PoppedMessage] = []
        with trio.fail_after(PATIENCE):
            while len(received) < 4:
                received += await consumer.receive(wait=5)
        back_at = 0.0

        async def end() -> None:
            nonlocal back_at
            back_at = await outage.last(2.0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            await trio.sleep(0.5)
            for message in received:  # the calls wait for the broker
                await consumer.ack(message)
            acknowledged_at = trio.current_time()
        assert back_at <= acknowledged_at <= back_at + 1 + slack(cluster, api)
        await producer.send(Message(topic, b"after"))
        [message] = await consumer.receive(wait=5)
        assert message.body == b"after"
