"""Pipelined sends while one of two brokers is killed or frozen and returns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import attrs
import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.sending import PATIENT
from rocketmq_py import (
    Client,
    Delivery,
    Message,
    MessageQueue,
    PendingSend,
    Producer,
    RocketMQError,
    SendResult,
)
from rocketmq_py.client import core_of
from rocketmq_py.client.routes import Route
from rocketmq_py.errors import RequestTimeoutError
from rocketmq_py.producer import ProducerOptions
from rocketmq_py.producer.latency_faults import LatencyFaultPolicy, LatencyFaults, unavailable_for
from rocketmq_py.producer.queue_choice import FaultAwareRoundRobin
from rocketmq_py.producer.send import Send
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import PATIENCE

COUNT = 50_000
VICTIM, SURVIVOR = "broker-a", "broker-b"
SLACK = 1.0
"""The maximum delay in seconds between a producer's action and its record here, on a busy machine."""
POLICIES: dict[str | None, LatencyFaultPolicy | None] = {
    None: None,
    "4.x": LatencyFaultPolicy.JAVA_4,
    "5.x": LatencyFaultPolicy.JAVA_5,
}


@pytest.fixture(scope="module", params=VERSIONS)
def two_brokers(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Each test leaves both brokers serving."""
    settings = {"flushDiskType": "SYNC_FLUSH", **PATIENT}
    with start_own_cluster(request.param, brokers=2, settings=settings) as cluster:
        yield cluster


@attrs.frozen
class Event:
    """A producer's event: a broker was ``chosen``, ``answered``, ``failed`` or was ``lost``, or a probe
    ``reached`` it.

    Attributes:
        time: on trio's clock.
        latency: the latency recorded for the answer or the failure, in seconds.
        among: the brokers of the route, without the one on which the previous attempt failed.
    """

    time: float
    kind: str
    broker: str
    latency: float = 0.0
    among: frozenset[str] = frozenset()


@attrs.define(eq=False)
class Learning:
    """The decisions of a producer and the faults that it recorded.

    Attributes:
        events: in the order in which they happened.
        failures: the errors of each message's failed attempts, by message body.
    """

    events: list[Event] = attrs.field(factory=list)
    failures: dict[bytes, list[tuple[RocketMQError, Delivery]]] = attrs.field(
        factory=lambda: defaultdict(list)
    )

    def note(self, kind: str, broker: str, latency: float = 0.0, among: frozenset[str] = frozenset()) -> None:
        self.events.append(Event(trio.current_time(), kind, broker, latency, among))

    def unknown(self) -> set[bytes]:
        """Return the bodies of messages with at least one attempt of unknown outcome."""
        return {
            body
            for body, failures in self.failures.items()
            if Delivery.UNKNOWN in (delivery for _, delivery in failures)
        }

    def failed_at(self, address: str) -> set[bytes]:
        """Return the bodies of messages with an attempt that failed on the broker at ``address``."""
        return {
            body
            for body, failures in self.failures.items()
            if address in (getattr(error, "address", None) for error, _ in failures)
        }

    def wrong_choices(self, policy: LatencyFaultPolicy) -> list[Event]:
        """Return the choices of an isolated broker although another one was available."""
        until: defaultdict[str, float] = defaultdict(float)
        lost: set[str] = set()
        wrong = []
        for event in self.events:
            if event.kind == "chosen":
                good = {name for name in event.among - lost if until[name] <= event.time - SLACK}
                if good and (until[event.broker] > event.time or event.broker in lost):
                    wrong.append(event)
                continue
            lost.discard(event.broker)
            if event.kind == "lost" and policy.detect:
                lost.add(event.broker)
            if event.kind != "reached":
                end = event.time + unavailable_for(policy, event.latency)
                until[event.broker] = end if policy.latest_decides else max(end, until[event.broker])
        return wrong


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> Learning:
    learning = Learning()
    choose, sending_failed = FaultAwareRoundRobin.choose, Send.back_off
    failed, record, reached = LatencyFaults.failed, LatencyFaults.record, LatencyFaults.reached

    def noted_choose(choice: FaultAwareRoundRobin, route: Route, failed_broker: str | None) -> MessageQueue:
        queue = choose(choice, route, failed_broker)
        among = frozenset(queue.broker_name for queue in route.write_queues) - {failed_broker}
        learning.note("chosen", queue.broker_name, among=among)
        return queue

    def noted_failed(faults: LatencyFaults, broker_name: str, *, reachable: bool) -> None:
        learning.note("failed" if reachable else "lost", broker_name, faults.policy.error_latency)
        failed(faults, broker_name, reachable=reachable)

    def noted_record(faults: LatencyFaults, broker_name: str, latency: float) -> None:
        learning.note("answered", broker_name, latency)
        record(faults, broker_name, latency)

    def noted_reached(faults: LatencyFaults, broker_name: str) -> None:
        learning.note("reached", broker_name)
        reached(faults, broker_name)

    def noted_sending_failed(send: Send, error: RocketMQError, *, is_paused: bool) -> float | None:
        learning.failures[send.request.messages[0].body].append((error, error.delivery))
        return sending_failed(send, error, is_paused=is_paused)

    monkeypatch.setattr(FaultAwareRoundRobin, "choose", noted_choose)
    monkeypatch.setattr(Send, "back_off", noted_sending_failed)
    monkeypatch.setattr(LatencyFaults, "failed", noted_failed)
    monkeypatch.setattr(LatencyFaults, "record", noted_record)
    monkeypatch.setattr(LatencyFaults, "reached", noted_reached)
    return learning


class Traffic:
    """Pipelined sends, each with a unique body, and their outcomes."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.sent: dict[bytes, PendingSend] = {}
        self.resolved: Counter[bytes] = Counter()

    async def send_until(self, count: int) -> None:
        """Send until ``count`` messages have been sent since the start."""
        while len(self.sent) < count:
            await self.send()

    async def send(self, queue: MessageQueue | None = None) -> PendingSend:
        body = b"%07d" % len(self.sent)
        message = Message(self.topic, body, keys=body.decode())
        pending = await self.producer.submit(message, queue=queue)
        pending.add_done_callback(partial(self._resolve, body))
        self.sent[body] = pending
        return pending

    async def stored_by(self, queue: MessageQueue | None = None) -> str | None:
        """Send one more message. Return the broker that stored it, or None if the send failed."""
        with suppress(RocketMQError):
            return (await (await self.send(queue))).queue.broker_name
        return None

    def _resolve(self, body: bytes, _: PendingSend) -> None:
        self.resolved[body] += 1

    @property
    def results(self) -> dict[bytes, SendResult]:
        return {body: pending.result() for body, pending in self.sent.items() if not pending.exception()}

    @property
    def errors(self) -> dict[bytes, RocketMQError]:
        return {body: error for body, pending in self.sent.items() if (error := pending.exception())}


async def bodies_of(address: str, topic: str, wanted: set[bytes]) -> Counter[bytes]:
    """Return the bodies in the topic once all ``wanted`` ones are there or the time is up."""
    async with Client(address) as client, client.reader() as reader:
        bodies: Counter[bytes] = Counter()
        with trio.move_on_after(PATIENCE):
            while not wanted <= set(bodies):
                bodies.clear()
                async with reader.open(topic, start="earliest", stop_at_end=True) as messages:
                    async for message in messages:
                        bodies[message.body] += 1
    return bodies


async def check_stored_messages(traffic: Traffic, learning: Learning, address: str) -> None:
    """Check that each send resolved once, that acknowledged messages are stored, and that only permitted
    errors and duplicates occurred.
    """
    assert traffic.resolved == Counter(traffic.sent.keys())
    results, errors = traffic.results, traffic.errors
    stored = await bodies_of(address, traffic.topic, set(results))
    assert not set(results) - set(stored), "acknowledged and lost"
    assert set(stored) <= set(traffic.sent), "stored and never sent"
    unknown = learning.unknown()
    for body, error in errors.items():
        assert (error.delivery is Delivery.UNKNOWN) == (body in unknown), repr(error)
    denied = set(stored) & set(errors) - unknown
    assert not [(body, learning.failures[body]) for body in denied], "stored, though the error denies it"
    twice = {body for body, count in stored.items() if count > 1}
    assert not [(body, learning.failures[body]) for body in twice - unknown], "stored twice"


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.sleep(0.02)


async def in_good_order(traffic: Traffic) -> None:
    """Send to the victim until it is no longer isolated. On a busy machine its answers may be slow."""
    producer, some = traffic.producer, MessageQueue(traffic.topic, VICTIM, 0)
    await until(lambda: not producer.in_flight)
    with trio.fail_after(PATIENCE):
        while VICTIM in producer.statistics.brokers:
            await traffic.stored_by(some)
            await trio.sleep(0.05)


async def prepare_topic(cluster: Cluster, topic: str) -> None:
    async with Client(cluster.name_servers) as client:
        await create_topic(client, topic, queues=4)


@pytest.mark.parametrize("latency_faults", POLICIES)
async def test_nothing_acknowledged_is_lost_when_a_broker_is_killed(
    two_brokers: Cluster,
    restart_thread: ThreadPoolExecutor,
    learning: Learning,
    unique: str,
    latency_faults: str | None,
) -> None:
    cluster, policy = two_brokers, POLICIES[latency_faults]
    await prepare_topic(cluster, unique)
    options: ProducerOptions = {"latency_faults": policy, "route_refresh_interval": 1.0}
    async with Producer(cluster.name_servers, **options) as producer:
        traffic = Traffic(producer, unique)
        await traffic.send_until(COUNT // 3)
        cluster.kill(VICTIM)
        await traffic.send(MessageQueue(unique, VICTIM, 0))  # it may be isolated because it was slow
        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic.send_until, 2 * COUNT // 3)
            await trio.to_thread.run_sync(restart_thread.submit(cluster.restart, VICTIM).result)
        await traffic.send_until(COUNT)
        await until(lambda: not producer.in_flight)
        if policy is not None:
            assert learning.failed_at(cluster.brokers[VICTIM])
            assert not learning.wrong_choices(policy)
        # An isolation of ten minutes is long. An answer in time ends it.
        some = MessageQueue(unique, VICTIM, 0) if policy is LatencyFaultPolicy.JAVA_4 else None
        with trio.fail_after(PATIENCE):
            while await traffic.stored_by(some) != VICTIM or await traffic.stored_by() != VICTIM:
                await trio.sleep(0.05)
    await check_stored_messages(traffic, learning, cluster.name_servers)


async def test_sends_to_a_frozen_broker_time_out(
    two_brokers: Cluster, learning: Learning, unique: str
) -> None:
    cluster = two_brokers
    await prepare_topic(cluster, unique)
    async with Producer(cluster.name_servers, send_timeout=1.0) as producer:
        traffic = Traffic(producer, unique)
        await traffic.send_until(COUNT // 3)
        connection = core_of(producer).connections.get_nowait(cluster.brokers[VICTIM])
        assert connection is not None
        cluster.freeze(VICTIM)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic.send_until, 2 * COUNT // 3)
            await until(lambda: connection.is_closed)
            cluster.resume(VICTIM)
        assert "nothing was received" in connection.closed_because
        await traffic.send_until(COUNT)
    hung = learning.failed_at(cluster.brokers[VICTIM])
    timed_out = {body for body, error in traffic.errors.items() if isinstance(error, RequestTimeoutError)}
    assert hung & timed_out & learning.unknown()
    await check_stored_messages(traffic, learning, cluster.name_servers)


@pytest.mark.parametrize("latency_faults", ["4.x", "5.x"])
async def test_a_frozen_broker_is_skipped(
    two_brokers: Cluster, learning: Learning, unique: str, latency_faults: str
) -> None:
    cluster, policy = two_brokers, POLICIES[latency_faults]
    assert policy is not None
    await prepare_topic(cluster, unique)
    options: ProducerOptions = {
        "latency_faults": policy,
        "send_timeout": 30.0,
        "try_timeout": 1.0,
    }
    async with Producer(cluster.name_servers, **options) as producer:
        traffic = Traffic(producer, unique)
        await traffic.send_until(COUNT // 3)
        await in_good_order(traffic)
        connection = core_of(producer).connections.get_nowait(cluster.brokers[VICTIM])
        assert connection is not None
        cluster.freeze(VICTIM)
        await traffic.send_until(2 * COUNT // 3)
        if policy.detect:
            await until(lambda: connection.is_closed)
        cluster.resume(VICTIM)
        await traffic.send_until(COUNT)
    moved = {body for body, result in traffic.results.items() if result.queue.broker_name == SURVIVOR}
    assert learning.failed_at(cluster.brokers[VICTIM]) & moved
    # A broker under pressure may occasionally reject a message.
    refused = learning.failed_at(cluster.brokers[SURVIVOR])
    given_up = set(traffic.errors) - refused
    assert not [(body, learning.failures[body]) for body in given_up], "never tried on the other broker"
    assert not learning.wrong_choices(policy)
    await check_stored_messages(traffic, learning, cluster.name_servers)
