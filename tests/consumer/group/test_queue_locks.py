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
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.config import LOCK_INTERVAL, LOCK_LIFE
from rocketmq_py.consumer.group.queue_locks import BROKER_LOCK_LIFE, GATHER_SECONDS, Lock, QueueLocks
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import LockedQueues, QueueLock
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import ScriptedCluster, scripted_cluster


def queue(number: int, broker: str = "a") -> MessageQueue:
    return MessageQueue("T", f"broker-{broker}", number)


@attrs.define
class Broker:
    """Gives all locks but those of ``others``; answers nothing while it is silent."""

    others: set[int] = attrs.field(factory=set)
    silent: bool = False
    refuses: bool = False
    asked: list[tuple[str, float, list[int]]] = attrs.field(factory=list)
    bodies: list[QueueLock] = attrs.field(factory=list)

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code not in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            return
        body = QueueLock.decode(request.body)
        self.bodies.append(body)
        kind = "lock" if request.code == RequestCode.LOCK_BATCH_MQ else "unlock"
        numbers = sorted(queue.queue_id for queue in body.queues)
        self.asked.append((kind, round(trio.current_time(), 1), numbers))
        if self.refuses:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="scripted")
        elif not self.silent:
            given = [queue for queue in body.queues if queue.queue_id not in self.others]
            connection.respond(request, ResponseCode.SUCCESS, body=LockedQueues.of(given).encode())

    def asked_for(self, number: int) -> list[float]:
        return [at for kind, at, numbers in self.asked if kind == "lock" and number in numbers]


class Noted(Lock):
    """A lock that notes what happens to it."""

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(queue)
        self.noted: list[tuple[str, float]] = []
        self.on_held = lambda: self.noted.append(("held", round(trio.current_time(), 1)))
        self.on_lost = lambda: self.noted.append(("lost", round(trio.current_time(), 1)))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.noted]


@asynccontextmanager
async def locking(
    *brokers: Broker, wanted: Sequence[Lock] = (), namespace: str = ""
) -> AsyncIterator[tuple[QueueLocks, ScriptedCluster]]:
    async with (
        scripted_cluster(*brokers, topics=["T", "ns%T"]) as cluster,
        Client(cluster.address, request_timeout=1, namespace=namespace) as client,
        trio.open_nursery() as nursery,
    ):
        await client.routes.get("T")
        locks = QueueLocks(client, "g")
        nursery.start_soon(locks.run)
        for lock in wanted:
            nursery.start_soon(locks.acquire, lock)
        await trio.sleep(0.1)
        yield locks, cluster
        nursery.cancel_scope.cancel()


async def test_one_request_a_broker_locks_all_its_queues(jumping_clock: trio.testing.MockClock) -> None:
    one, two = Broker(), Broker()
    locks = [Noted(queue(0)), Noted(queue(1)), Noted(queue(0, "b"))]
    async with locking(one, two, wanted=locks):
        assert all(lock.is_held and lock.may_be_kept for lock in locks)
        assert [lock.names for lock in locks] == [["held"]] * 3
    assert one.asked == [("lock", 0.0, [0, 1])]
    assert two.asked == [("lock", 0.0, [0])]
    (body,) = two.bodies
    assert body.consumer_group == "g"
    assert "@" in body.client_id


async def test_names_on_the_wire_are_those_of_the_namespace(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    lock = Noted(queue(0))
    async with locking(broker, wanted=[lock], namespace="ns") as (locks, _):
        assert lock.is_held
        await locks.release([lock])
    for body in broker.bodies:
        assert body.consumer_group == "ns%g"
        assert body.queues == (MessageQueue("ns%T", "broker-a", 0),)
    assert [kind for kind, _, _ in broker.asked] == ["lock", "unlock"]


async def test_locks_are_renewed_in_time(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    lock = Noted(queue(0))
    async with locking(broker, wanted=[lock]):
        for _ in range(10):
            await trio.sleep(10)
            assert lock.is_held
    assert broker.asked_for(0) == [LOCK_INTERVAL * number for number in range(6)]
    assert lock.noted == [("held", 0.0)]


async def test_a_lock_of_another_member_is_waited_for(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.consumer")
    broker = Broker(others={1})
    mine, others = Noted(queue(0)), Noted(queue(1))
    async with locking(broker, wanted=[mine, others]):
        await trio.sleep(2)
        assert (mine.is_held, others.is_held) == (True, False)
        broker.others.clear()
        await others.until_held()
    assert broker.asked_for(0) == [0.0], "what is held is not asked for with it"
    assert broker.asked_for(1) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert others.names == ["held"], "what never was here cannot be lost"
    assert [record.message for record in caplog.records] == [
        "T/broker-a/1 is locked by another member still: waiting for it"
    ]


async def test_a_lock_that_another_member_got_is_lost_and_asked_for_again(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    lock = Noted(queue(0))
    async with locking(broker, wanted=[lock]) as (locks, _):
        broker.others = {0}
        await trio.sleep(LOCK_INTERVAL)
        assert not lock.is_held
        assert not lock.may_be_kept
        assert lock.names == ["held", "lost"]
        await trio.sleep(1)
        assert lock.names == ["held", "lost"], "it is lost once"
        broker.others.clear()
        await locks.acquire(lock)
    assert lock.names == ["held", "lost", "held"]
    assert "T/broker-a/0 is locked by another member" in caplog.text


@pytest.mark.parametrize("how", ["silent", "refuses"])
async def test_without_an_answer_a_lock_is_trusted_for_30_seconds(
    jumping_clock: trio.testing.MockClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    lock = Noted(queue(0))
    async with locking(broker, wanted=[lock]):
        setattr(broker, how, True)
        held = []
        for pause in (LOCK_LIFE - 1, 1):
            await trio.sleep(pause)
            held.append(lock.is_held)
        assert held == [True, False]
        await trio.sleep(10)
        setattr(broker, how, False)
        await lock.until_held()
        assert lock.names == ["held", "held"], "nobody else can have had it: nothing is lost"
    asked = broker.asked_for(0)[1:]
    assert max(later - sooner for sooner, later in itertools.pairwise(asked)) <= 4.2
    assert "queue lock failed, retrying: group=g broker=broker-a queues=1 retry_in=3.0" in caplog.text


async def test_a_lock_that_the_broker_may_have_given_to_others_is_lost(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker()
    lock = Noted(queue(0))
    async with locking(broker, wanted=[lock]):
        broker.silent = True
        await trio.sleep(BROKER_LOCK_LIFE + 1)
        broker.silent = False
        await lock.until_held()
    assert lock.names == ["held", "lost", "held"]


async def test_locks_are_given_back(jumping_clock: trio.testing.MockClock) -> None:
    one, two = Broker(), Broker(others={1})
    locks = [Noted(queue(0)), Noted(queue(1)), Noted(queue(0, "b")), Noted(queue(1, "b"))]
    async with locking(one, two, wanted=locks) as (locking_, _):
        await locking_.release([locks[0], locks[2], locks[3]])
        await trio.sleep(LOCK_INTERVAL)
    assert one.asked == [("lock", 0.0, [0, 1]), ("unlock", 0.1, [0]), ("lock", 20.0, [1])]
    assert two.asked == [("lock", 0.0, [0, 1]), ("unlock", 0.1, [0])], "what others have is left alone"


@pytest.mark.parametrize("how", ["silent", "refuses"])
async def test_a_lock_that_cannot_be_given_back_is_forgotten(
    jumping_clock: trio.testing.MockClock, how: str
) -> None:
    broker = Broker()
    lock = Noted(queue(0))
    async with locking(broker, wanted=[lock]) as (locks, _):
        setattr(broker, how, True)
        await locks.release([lock])
        await trio.sleep(LOCK_INTERVAL)
    assert [kind for kind, _, _ in broker.asked] == ["lock", "unlock"]


async def test_a_lock_is_given_back_although_nobody_said_that_it_was_given(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker(silent=True)
    lock = Noted(queue(0))
    async with locking(broker, wanted=[lock]) as (locks, _):
        await trio.sleep(2)
        assert not lock.is_held
        await locks.release([lock])
    assert [kind for kind, _, _ in broker.asked] == ["lock", "unlock"]


async def test_one_broker_that_is_away_does_not_cost_the_locks_of_the_other(
    jumping_clock: trio.testing.MockClock,
) -> None:
    one, two = Broker(), Broker()
    locks = [Noted(queue(0)), Noted(queue(0, "b"))]
    async with locking(one, two, wanted=locks) as (_, cluster):
        cluster.brokers["broker-a"].stop()
        for _ in range(100):
            await trio.sleep(1)
            assert locks[1].is_held
        assert not locks[0].is_held


async def test_a_lock_that_needs_no_broker_is_always_held() -> None:
    lock = Lock(queue(0), held_until=float("inf"))
    assert lock.is_held
    assert not lock.may_be_kept
    await lock.until_held()


async def test_waiting_for_the_call_that_makes_use_of_a_lock(nursery: trio.Nursery) -> None:
    lock = Lock(queue(0))
    lock.busy = True
    free = trio.Event()

    async def wait() -> None:
        await lock.until_free()
        free.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert not free.is_set()
    lock.asking()
    lock.free()
    await trio.testing.wait_all_tasks_blocked()
    assert not free.is_set(), "the answer to the last request could come after it has been released"
    lock.answered()
    await free.wait()


async def test_what_is_given_back_just_as_it_is_asked_for_does_not_stay_with_the_broker(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker()
    async with locking(broker) as (locks, _), trio.open_nursery() as nursery:
        for number in range(50):  # who of the two comes first in the same moment is chance
            lock = Noted(queue(number))
            nursery.start_soon(locks.acquire, lock)
            await trio.sleep(GATHER_SECONDS)
            await locks.until_free(lock)
            await locks.release([lock])
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    kinds = [{kind for kind, _, numbers in broker.asked if number in numbers} for number in range(50)]
    assert {"lock"} not in kinds, "it would be nobody's for a minute"
    assert {"lock", "unlock"} in kinds


async def test_who_is_cancelled_already_asks_for_no_lock(jumping_clock: trio.testing.MockClock) -> None:
    # A loop was woken, to take a queue up again, and dropped before it ran: nobody would release the lock.
    broker = Broker()
    lock = Noted(queue(1))
    async with locking(broker) as (locks, _):
        with trio.CancelScope() as dropped:
            dropped.cancel()
            await locks.acquire(lock)
        await trio.sleep(2 * LOCK_INTERVAL)
    assert broker.asked == []
    assert not lock.is_held


async def test_what_is_to_be_given_back_is_not_renewed(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    lock = Noted(queue(0))
    async with locking(broker, wanted=[lock]) as (locks, _):
        await locks.until_free(lock)  # and now its offset is committed, which may take long
        await trio.sleep(2 * LOCK_INTERVAL)
        await locks.release([lock])
    assert [kind for kind, _, _ in broker.asked] == ["lock", "unlock"]


async def test_a_lock_keeps_to_the_times_that_it_is_given(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    lock = Lock(queue(0), interval=2, life=5)
    async with locking(broker, wanted=[lock]):
        await trio.sleep(5)
        assert broker.asked_for(0) == [0, 2, 4]
        broker.silent = True
        trusted = []
        for pause in (3.8, 0.4):
            await trio.sleep(pause)
            trusted.append(lock.is_held)
        assert trusted == [True, False]
        assert lock.may_be_kept
