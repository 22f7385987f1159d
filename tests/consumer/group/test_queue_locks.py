from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.queue_locks import (
    BROKER_LOCK_MAX_LIVE_TIME,
    GATHER_SECONDS,
    QueueLock,
    QueueLocks,
)
from rocketmq_py.consumer.settings import LOCK_INTERVAL, LOCK_MAX_LIVE_TIME
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol import bodies
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import ScriptedCluster, scripted_cluster


def queue(number: int, broker: str = "a") -> MessageQueue:
    return MessageQueue("T", f"broker-{broker}", number)


@attrs.define
class Broker:
    """A broker that grants all locks except those of the queues in ``others``.

    Attributes:
        others: numbers of the queues that another member has locked.
        silent: whether requests get no response.
        refuses: whether requests get an error response.
        requests: the kind, time and queue numbers of each request.
        bodies: the body of each request.
    """

    others: set[int] = attrs.field(factory=set)
    silent: bool = False
    refuses: bool = False
    requests: list[tuple[str, float, list[int]]] = attrs.field(factory=list)
    bodies: list[bodies.QueueLock] = attrs.field(factory=list)

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code not in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            return
        body = bodies.QueueLock.decode(request.body)
        self.bodies.append(body)
        kind = "lock" if request.code == RequestCode.LOCK_BATCH_MQ else "unlock"
        numbers = sorted(queue.queue_id for queue in body.queues)
        self.requests.append((kind, round(trio.current_time(), 1), numbers))
        if self.refuses:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="scripted")
        elif not self.silent:
            granted = [queue for queue in body.queues if queue.queue_id not in self.others]
            connection.respond(request, ResponseCode.SUCCESS, body=bodies.LockedQueues.of(granted).encode())

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.requests]

    def lock_times(self, number: int) -> list[float]:
        """Return the times of the lock requests for a queue."""
        return [at for kind, at, numbers in self.requests if kind == "lock" and number in numbers]


class RecordingLock(QueueLock):
    """A lock that records its events."""

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(queue)
        self.events: list[tuple[str, float]] = []
        self.on_acquired = lambda: self.events.append(("acquired", round(trio.current_time(), 1)))
        self.on_lost = lambda: self.events.append(("lost", round(trio.current_time(), 1)))

    @property
    def event_names(self) -> list[str]:
        return [name for name, _ in self.events]


@asynccontextmanager
async def queue_locks(
    *brokers: Broker, acquire: Sequence[QueueLock] = (), namespace: str = "", request_timeout: float = 1
) -> AsyncIterator[tuple[QueueLocks, ScriptedCluster]]:
    """Run a QueueLocks that acquires these locks."""
    async with (
        scripted_cluster(*brokers, topics=["T", "ns%T"]) as cluster,
        Client(cluster.address, request_timeout=request_timeout, namespace=namespace) as client,
        trio.open_nursery() as nursery,
    ):
        await core_of(client).routes.get("T")
        locks = QueueLocks(core_of(client), "g")
        nursery.start_soon(locks.run)
        for lock in acquire:
            nursery.start_soon(locks.acquire, lock)
        await trio.sleep(0.1)
        yield locks, cluster
        nursery.cancel_scope.cancel()


async def test_one_request_locks_all_queues_of_a_broker(jumping_clock: trio.testing.MockClock) -> None:
    one, two = Broker(), Broker()
    locks = [RecordingLock(queue(0)), RecordingLock(queue(1)), RecordingLock(queue(0, "b"))]
    async with queue_locks(one, two, acquire=locks):
        assert all(lock.is_held and lock.may_be_locked for lock in locks)
        assert [lock.event_names for lock in locks] == [["acquired"]] * 3
    assert one.requests == [("lock", 0.0, [0, 1])]
    assert two.requests == [("lock", 0.0, [0])]
    (body,) = two.bodies
    assert body.consumer_group == "g"
    assert "@" in body.client_id


async def test_requests_carry_names_with_the_namespace(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    lock = RecordingLock(queue(0))
    async with queue_locks(broker, acquire=[lock], namespace="ns") as (locks, _):
        assert lock.is_held
        await locks.release([lock])
    for body in broker.bodies:
        assert body.consumer_group == "ns%g"
        assert body.queues == (MessageQueue("ns%T", "broker-a", 0),)
    assert broker.kinds == ["lock", "unlock"]


async def test_locks_are_renewed_before_they_expire(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    lock = RecordingLock(queue(0))
    async with queue_locks(broker, acquire=[lock]):
        for _ in range(10):
            await trio.sleep(10)
            assert lock.is_held
    assert broker.lock_times(0) == [LOCK_INTERVAL * number for number in range(6)]
    assert lock.events == [("acquired", 0.0)]


async def test_a_lock_that_another_member_holds_is_requested_until_it_is_granted(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.consumer")
    broker = Broker(others={1})
    mine, other = RecordingLock(queue(0)), RecordingLock(queue(1))
    async with queue_locks(broker, acquire=[mine, other]):
        await trio.sleep(2)
        assert (mine.is_held, other.is_held) == (True, False)
        broker.others.clear()
        await other.wait_until_held()
    assert broker.lock_times(0) == [0.0], "a held lock is not requested again with the others"
    assert broker.lock_times(1) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert other.event_names == ["acquired"], "a lock that was never held cannot be lost"
    assert [record.message for record in caplog.records] == [
        "waiting for queue lock: topic=T broker=broker-a queue=1; another member holds it",
        "queue lock obtained: topic=T broker=broker-a queue=1 after=2.5s",
    ]


async def test_a_lock_granted_to_another_member_is_lost_and_requested_again(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    lock = RecordingLock(queue(0))
    async with queue_locks(broker, acquire=[lock]) as (locks, _):
        broker.others = {0}
        await trio.sleep(LOCK_INTERVAL)
        assert not lock.is_held
        assert not lock.may_be_locked
        assert lock.event_names == ["acquired", "lost"]
        await trio.sleep(1)
        assert lock.event_names == ["acquired", "lost"], "on_lost is called once"
        broker.others.clear()
        await locks.acquire(lock)
    assert lock.event_names == ["acquired", "lost", "acquired"]
    assert "queue lock lost: topic=T broker=broker-a queue=0" in caplog.text


@pytest.mark.parametrize("how", ["silent", "refuses"])
async def test_a_lock_that_cannot_be_renewed_is_held_for_30_seconds(
    jumping_clock: trio.testing.MockClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    lock = RecordingLock(queue(0))
    async with queue_locks(broker, acquire=[lock]):
        setattr(broker, how, True)
        held = []
        for pause in (LOCK_MAX_LIVE_TIME - 1, 1):
            await trio.sleep(pause)
            held.append(lock.is_held)
        assert held == [True, False]
        await trio.sleep(10)
        setattr(broker, how, False)
        await lock.wait_until_held()
        assert lock.event_names == ["acquired", "acquired"], "the broker granted it to no other member"
    times = broker.lock_times(0)[1:]
    assert max(later - sooner for sooner, later in itertools.pairwise(times)) <= 4.2
    assert "queue lock failed, retrying: group=g broker=broker-a queues=1 retry_in=3.0" in caplog.text


async def test_a_lock_that_has_expired_at_the_broker_is_lost(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker()
    lock = RecordingLock(queue(0))
    async with queue_locks(broker, acquire=[lock]):
        broker.silent = True
        await trio.sleep(BROKER_LOCK_MAX_LIVE_TIME + 1)
        broker.silent = False
        await lock.wait_until_held()
    assert lock.event_names == ["acquired", "lost", "acquired"]


async def test_release_unlocks_the_queues_at_their_brokers(jumping_clock: trio.testing.MockClock) -> None:
    one, two = Broker(), Broker(others={1})
    locks = [
        RecordingLock(queue(0)),
        RecordingLock(queue(1)),
        RecordingLock(queue(0, "b")),
        RecordingLock(queue(1, "b")),
    ]
    async with queue_locks(one, two, acquire=locks) as (held, _):
        await held.release([locks[0], locks[2], locks[3]])
        await trio.sleep(LOCK_INTERVAL)
    assert one.requests == [("lock", 0.0, [0, 1]), ("unlock", 0.1, [0]), ("lock", 20.0, [1])]
    assert two.requests == [("lock", 0.0, [0, 1]), ("unlock", 0.1, [0])], "another member's lock is kept"


@pytest.mark.parametrize("how", ["silent", "refuses"])
async def test_a_lock_that_cannot_be_unlocked_is_not_renewed(
    jumping_clock: trio.testing.MockClock, how: str
) -> None:
    broker = Broker()
    lock = RecordingLock(queue(0))
    async with queue_locks(broker, acquire=[lock]) as (locks, _):
        setattr(broker, how, True)
        await locks.release([lock])
        await trio.sleep(LOCK_INTERVAL)
    assert broker.kinds == ["lock", "unlock"]


async def test_release_unlocks_a_queue_whose_lock_response_was_lost(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker(silent=True)
    lock = RecordingLock(queue(0))
    async with queue_locks(broker, acquire=[lock]) as (locks, _):
        await trio.sleep(2)
        assert not lock.is_held
        await locks.release([lock])
    assert broker.kinds == ["lock", "unlock"]


async def test_a_stopped_broker_does_not_affect_the_locks_of_another_broker(
    jumping_clock: trio.testing.MockClock,
) -> None:
    one, two = Broker(), Broker()
    locks = [RecordingLock(queue(0)), RecordingLock(queue(0, "b"))]
    async with queue_locks(one, two, acquire=locks) as (_, cluster):
        cluster.brokers["broker-a"].stop()
        for _ in range(100):
            await trio.sleep(1)
            assert locks[1].is_held
        assert not locks[0].is_held


async def test_a_broker_that_does_not_answer_does_not_delay_the_locks_of_another_broker(
    jumping_clock: trio.testing.MockClock,
) -> None:
    first, other, later = RecordingLock(queue(0)), RecordingLock(queue(0, "b")), RecordingLock(queue(1, "b"))
    async with (
        queue_locks(Broker(silent=True), Broker(), acquire=[first, other], request_timeout=60) as (locks, _),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(locks.acquire, later)
        await trio.sleep(0.1)
        assert later.is_held
        await trio.sleep(200)
        assert (other.event_names, later.event_names) == (["acquired"], ["acquired"])
        assert other.is_held
        assert later.is_held
        assert not first.is_held


async def test_a_lock_without_a_broker_can_be_held_for_ever() -> None:
    lock = QueueLock(queue(0), held_until=float("inf"))
    assert lock.is_held
    assert not lock.may_be_locked
    await lock.wait_until_held()


async def test_wait_until_idle_waits_for_the_handler_call_and_for_the_lock_request(
    nursery: trio.Nursery,
) -> None:
    lock = QueueLock(queue(0))
    lock.busy = True
    idle = trio.Event()

    async def wait() -> None:
        await lock.wait_until_idle()
        idle.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert not idle.is_set()
    lock.request_started()
    lock.mark_idle()
    await trio.testing.wait_all_tasks_blocked()
    assert not idle.is_set(), "the request in flight could lock the queue after its release"
    lock.request_ended()
    await idle.wait()


async def test_a_lock_released_while_it_is_requested_does_not_stay_locked(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker()
    async with queue_locks(broker) as (locks, _), trio.open_nursery() as nursery:
        for number in range(50):  # the order of request and release is random
            lock = RecordingLock(queue(number))
            nursery.start_soon(locks.acquire, lock)
            await trio.sleep(GATHER_SECONDS)
            await locks.wait_until_idle(lock)
            await locks.release([lock])
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    kinds = [{kind for kind, _, numbers in broker.requests if number in numbers} for number in range(50)]
    assert {"lock"} not in kinds, "no member could lock the queue for a minute"
    assert {"lock", "unlock"} in kinds


async def test_a_cancelled_acquire_sends_no_request(jumping_clock: trio.testing.MockClock) -> None:
    # The pull loop was woken up and then dropped before it ran. Its lock would never be released.
    broker = Broker()
    lock = RecordingLock(queue(1))
    async with queue_locks(broker) as (locks, _):
        with trio.CancelScope() as dropped:
            dropped.cancel()
            await locks.acquire(lock)
        await trio.sleep(2 * LOCK_INTERVAL)
    assert broker.requests == []
    assert not lock.is_held


async def test_a_lock_that_waits_for_its_release_is_not_renewed(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker()
    lock = RecordingLock(queue(0))
    async with queue_locks(broker, acquire=[lock]) as (locks, _):
        await locks.wait_until_idle(lock)  # the caller commits the offset next, which can take long
        await trio.sleep(2 * LOCK_INTERVAL)
        await locks.release([lock])
    assert broker.kinds == ["lock", "unlock"]


async def test_a_lock_uses_the_configured_interval_and_lifetime(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker()
    lock = QueueLock(queue(0), interval=2, max_live_time=5)
    async with queue_locks(broker, acquire=[lock]):
        await trio.sleep(5)
        assert broker.lock_times(0) == [0, 2, 4]
        broker.silent = True
        held = []
        for pause in (3.8, 0.4):
            await trio.sleep(pause)
            held.append(lock.is_held)
        assert held == [True, False]
        assert lock.may_be_locked
