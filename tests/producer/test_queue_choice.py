from __future__ import annotations

import random
from collections import Counter

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.client.routes import Route
from rocketmq_py.errors import NoQueueError
from rocketmq_py.message import MessageQueue
from rocketmq_py.producer.latency_faults import LatencyFaultPolicy, LatencyFaults, unavailable_for
from rocketmq_py.producer.queue_choice import FaultAwareRoundRobin, RoundRobin

A, B, C = "broker-a", "broker-b", "broker-c"
SLOW = 0.6
VERY_SLOW = 60.0


def route_of(**queues: int) -> Route:
    """Return a route with these numbers of queues on broker-a, broker-b, …"""
    names = {f"broker-{letter}": count for letter, count in queues.items()}
    write_queues = tuple(MessageQueue("T", name, n) for name, count in names.items() for n in range(count))
    return Route("T", write_queues, (), {name: {0: "127.0.0.1:1"} for name in names})


class Choosing:
    """A round robin with its fault table and its clock."""

    def __init__(self, policy: LatencyFaultPolicy, route: Route, seed: int = 1) -> None:
        self.time = 0.0
        self.faults = LatencyFaults(policy, now=lambda: self.time, rng=random.Random(seed))
        self.choice = FaultAwareRoundRobin(self.faults, random.Random(seed))
        self.route = route

    def brokers(self, times: int = 8, failed_broker: str | None = None) -> set[str]:
        """Return the brokers of this number of choices."""
        return {self.choice.choose(self.route, failed_broker).broker_name for _ in range(times)}


def test_round_robin_uses_each_queue_equally() -> None:
    route = route_of(a=4, b=3)
    for choice in (RoundRobin(random.Random(1)), Choosing(LatencyFaultPolicy.JAVA_4, route).choice):
        chosen = [choice.choose(route) for _ in range(70)]
        assert set(Counter(chosen).values()) == {10}
        assert chosen[:7] == chosen[7:14]


@pytest.mark.parametrize("policy", [None, LatencyFaultPolicy.JAVA_4])
def test_alternating_topics_use_all_their_queues(policy: LatencyFaultPolicy | None) -> None:
    route = route_of(a=4)
    other = Route("U", tuple(attrs.evolve(queue, topic="U") for queue in route.write_queues), (), {})
    choice = Choosing(policy, route).choice if policy else RoundRobin(random.Random(1))
    for _ in range(3):
        chosen = [queue for _ in range(4) for queue in (choice.choose(route), choice.choose(other))]
        assert set(chosen) == {*route.write_queues, *other.write_queues}


def test_senders_that_start_together_use_different_queues() -> None:
    route = route_of(a=8)
    assert len({RoundRobin(random.Random(seed)).choose(route) for seed in range(100)}) == 8


@pytest.mark.parametrize("policy", [None, LatencyFaultPolicy.JAVA_4, LatencyFaultPolicy.JAVA_5])
def test_the_broker_that_failed_last_is_skipped_if_there_is_another(
    policy: LatencyFaultPolicy | None,
) -> None:
    route, alone = route_of(a=2, b=2), route_of(a=2)
    choice = Choosing(policy, route).choice if policy else RoundRobin(random.Random(1))
    assert {choice.choose(route, A).broker_name for _ in range(8)} == {B}
    assert {choice.choose(alone, A) for _ in range(8)} == set(alone.write_queues)


@pytest.mark.parametrize("policy", [None, LatencyFaultPolicy.JAVA_4, LatencyFaultPolicy.JAVA_5])
def test_a_topic_without_writable_queues_raises(policy: LatencyFaultPolicy | None) -> None:
    choosing = Choosing(policy or LatencyFaultPolicy.JAVA_4, route_of())
    choosing.faults.failed(A, reachable=False)
    choice = choosing.choice if policy else RoundRobin(random.Random(1))
    with pytest.raises(NoQueueError, match="topic 'T' has no queue that may be written to"):
        choice.choose(choosing.route, A)


@pytest.mark.parametrize("policy", [LatencyFaultPolicy.JAVA_4, LatencyFaultPolicy.JAVA_5])
def test_a_slow_broker_is_avoided_for_its_time(policy: LatencyFaultPolicy) -> None:
    choosing = Choosing(policy, route_of(a=1, b=4))
    choosing.faults.record(B, SLOW)
    assert choosing.brokers() == {A}
    choosing.time = unavailable_for(policy, SLOW)
    assert choosing.brokers() == {A, B}


@pytest.mark.parametrize("policy", [LatencyFaultPolicy.JAVA_4, LatencyFaultPolicy.JAVA_5])
def test_the_queues_of_the_other_brokers_share_the_load(policy: LatencyFaultPolicy) -> None:
    choosing = Choosing(policy, route_of(a=4, b=2, c=3))
    choosing.faults.failed(A, reachable=False)
    chosen = Counter(choosing.choice.choose(choosing.route) for _ in range(100))
    assert set(chosen.values()) == {20}


def test_order_of_choices_of_java_4() -> None:
    choosing = Choosing(LatencyFaultPolicy.JAVA_4, route_of(a=1, b=1, c=1))
    choosing.faults.record(A, SLOW)
    assert choosing.brokers(failed_broker=B) == {C}, "an available broker that did not fail last"
    choosing.faults.record(C, VERY_SLOW)
    assert choosing.brokers(failed_broker=B) == {B}, "the broker that failed last, for it has answered since"
    choosing.faults.failed(B, reachable=False)
    assert choosing.brokers(failed_broker=B) == {A}, "the better half of three is the best"
    assert choosing.brokers(failed_broker=A) == {A}


def test_order_of_choices_of_java_5() -> None:
    choosing = Choosing(LatencyFaultPolicy.JAVA_5, route_of(a=1, b=1, c=1))
    choosing.faults.failed(A, reachable=False)
    assert choosing.brokers(failed_broker=B) == {C}, "an available broker that did not fail last"
    choosing.faults.record(C, VERY_SLOW)
    assert choosing.brokers(failed_broker=B) == {C}, "a reachable broker that did not fail last"
    assert choosing.brokers() == {B}
    choosing.faults.failed(C, reachable=False)
    choosing.faults.failed(B, reachable=True)
    assert choosing.brokers(failed_broker=B) == {B}, "the only reachable broker"
    choosing.faults.failed(B, reachable=False)
    assert choosing.brokers() == {A, B, C}, "any broker rather than none"
    assert choosing.brokers(failed_broker=A) == {A, B, C}


def test_with_java_5_an_unreachable_broker_is_avoided_after_its_time() -> None:
    choosing = Choosing(LatencyFaultPolicy.JAVA_5, route_of(a=2, b=2))
    choosing.faults.failed(A, reachable=False)
    choosing.time = 3600.0
    assert choosing.brokers() == {B}
    choosing.faults.reached(A)
    assert choosing.brokers() == {A, B}


def test_a_slow_broker_of_another_topic_is_never_chosen() -> None:
    choosing = Choosing(LatencyFaultPolicy.JAVA_4, route_of(a=1, b=1))
    for name in (A, B):
        choosing.faults.record(name, VERY_SLOW)
    choosing.faults.record(C, SLOW)
    assert choosing.brokers() <= {A, B}


BROKERS = ("broker-a", "broker-b", "broker-c", "broker-d", "broker-e", "broker-f")
EVENTS = st.one_of(
    st.tuples(st.just("record"), st.sampled_from(BROKERS), st.sampled_from([0.01, 0.6, 1.5, 4.0, 20.0])),
    st.tuples(st.just("failed"), st.sampled_from(BROKERS), st.booleans()),
    st.tuples(st.just("reached"), st.sampled_from(BROKERS), st.none()),
    st.tuples(st.just("wait"), st.none(), st.sampled_from([1.0, 10.0, 600.0])),
)


@given(
    policy=st.sampled_from([LatencyFaultPolicy.JAVA_4, LatencyFaultPolicy.JAVA_5]),
    queues=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    events=st.lists(EVENTS, max_size=20),
    failed_broker=st.sampled_from([None, *BROKERS]),
    seed=st.integers(0, 1000),
)
def test_the_choice_is_a_queue_of_the_topic_on_the_best_available_broker(
    policy: LatencyFaultPolicy,
    queues: list[int],
    events: list[tuple[str, str, object]],
    failed_broker: str | None,
    seed: int,
) -> None:
    route = route_of(**dict(zip("abcdef", queues, strict=False)))
    choosing = Choosing(policy, route, seed)
    faults = choosing.faults
    for event, name, value in events:
        match event, value:
            case "record", float(latency):
                faults.record(name, latency)
            case "failed", bool(reachable):
                faults.failed(name, reachable=reachable)
            case "wait", float(seconds):
                choosing.time += seconds
            case _:
                faults.reached(name)
    names = {queue.broker_name for queue in route.write_queues}
    if not names:
        with pytest.raises(NoQueueError):
            choosing.choice.choose(route, failed_broker)
        return
    others = names - {failed_broker}
    for _ in range(3):
        queue = choosing.choice.choose(route, failed_broker)
        assert queue in route.write_queues
        chosen = queue.broker_name
        if any(faults.is_available(name) for name in others):
            assert faults.is_available(chosen)
            assert chosen != failed_broker
        elif policy.detect and any(faults.is_reachable(name) for name in others):
            assert faults.is_reachable(chosen)
            assert chosen != failed_broker
        elif any(faults.is_available(name) for name in names):
            assert faults.is_available(chosen)
        elif any(faults.is_reachable(name) for name in names):
            assert faults.is_reachable(chosen)
            rank = sorted(
                (state.latency, state.unavailable_for)
                for name, state in faults.states().items()
                if name in names and state.reachable
            )
            state = faults.states()[chosen]
            assert (state.latency, state.unavailable_for) in rank[: max(len(rank) // 2, 1)]
