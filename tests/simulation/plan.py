"""The plan of a simulation: its brokers, clients and faults, derived from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TypeVar

import attrs

TOPICS = {"plain": 3, "keyed": 2, "transacted": 2, "asked": 2}
FAULTS = (
    "cut",
    "freeze",
    "slow",
    "slice",
    "partition",
    "lose_answers",
    "lose_requests",
    "fail",
    "delay",
    "crash",
    "crash_name_server",
)
LATE_HEARTBEATS = "late_heartbeats"
"""Heartbeats arrive seconds late, possibly after their clients have closed."""
OVERTAKING = frozenset({"delay", "freeze", "slow", "partition"})
"""Faults after which requests of a new connection may overtake those of the previous connection."""
OPERATIONS = ("crash_without_flush", "reset", "add_queues", "close_for_reading", "close_for_writing")
"""Actions of operators, and a crash that loses unflushed messages."""
PRODUCERS = ("single", "batching", "keyed", "transacting", "pinned", "asking")
CONSUMERS = {"push": "plain", "lite": "plain", "orderly": "keyed", "pop": "plain", "push-tx": "transacted"}
BROADCASTING = ("broadcast-0", "broadcast-1")
READER = "reader"
INVISIBLE_SECONDS = 15.0
"""Invisible time of popped messages."""
_Part = TypeVar("_Part")


@attrs.frozen
class Group:
    """A consumer group or a reader. It receives each message of a topic at least once.

    Its name selects the kind of consumer.
    """

    name: str
    topic: str
    members: int

    @property
    def pulls(self) -> bool:
        """Whether the group commits offsets, and has handled all messages below them."""
        return self.name in CONSUMERS and self.name != "pop"


@attrs.frozen
class Plan:
    """A simulation's clients and faults.

    Attributes:
        seed: the seed.
        brokers: the number of brokers.
        name_servers: the number of name servers.
        producers: the kinds of producers.
        groups: the consumer groups and readers.
        messages: the number of messages that each producer sends.
        faults: each fault's time in seconds, and its name.
        seconds: the time after which no fault occurs.
        latency: the maximum latency of the network in seconds.
        wrong_clocks: whether the consumers' clocks differ and jump.
        small_cache: whether push consumers cache only a few messages.
        replicas: whether each broker has a replica.
    """

    seed: int
    brokers: int
    name_servers: int
    producers: tuple[str, ...]
    groups: tuple[Group, ...]
    messages: int
    faults: tuple[tuple[float, str], ...]
    seconds: float
    latency: float
    wrong_clocks: bool = False
    small_cache: bool = False
    replicas: bool = False

    @property
    def keeps_commits(self) -> bool:
        """Whether brokers keep the last commit of a group, because no older commit can arrive after it."""
        return (OVERTAKING | {"crash_without_flush"}).isdisjoint([fault for _, fault in self.faults])

    @property
    def knows_requesters(self) -> bool:
        """Whether brokers know the requesters' connections in the end, so that replies arrive.

        A Java broker, and so the embedded one, forgets a client when an old connection ends that registered
        after the client's current connection.
        """
        return (OVERTAKING | {LATE_HEARTBEATS}).isdisjoint([fault for _, fault in self.faults])

    @property
    def quiet_seconds(self) -> float:
        """Seconds to wait for unexpected deliveries once all messages have arrived."""
        return 4 * INVISIBLE_SECONDS if any(group.name == "pop" for group in self.groups) else 10.0

    def smaller(self) -> Iterator[Plan]:
        """Yield smaller plans, the largest reductions first."""
        for faults in _fewer(self.faults):
            yield attrs.evolve(self, faults=faults)
        for groups in _fewer(self.groups):
            yield attrs.evolve(self, groups=groups)
        for producers in _fewer(self.producers):
            yield attrs.evolve(self, producers=producers)
        for index, group in enumerate(self.groups):
            if group.members > 1:
                fewer = attrs.evolve(group, members=group.members - 1)
                yield attrs.evolve(self, groups=(*self.groups[:index], fewer, *self.groups[index + 1 :]))
        if self.messages > 1:
            yield attrs.evolve(self, messages=self.messages // 2)
            yield attrs.evolve(self, messages=self.messages - 1)
        if self.brokers > 1:
            yield attrs.evolve(self, brokers=self.brokers - 1)
        if self.name_servers > 1:
            yield attrs.evolve(self, name_servers=self.name_servers - 1)
        if self.wrong_clocks:
            yield attrs.evolve(self, wrong_clocks=False)
        if self.small_cache:
            yield attrs.evolve(self, small_cache=False)
        if self.replicas:
            yield attrs.evolve(self, replicas=False)

    def __str__(self) -> str:
        """Describe the plan in lines."""
        groups = ", ".join([f"{group.name} of {group.members} on {group.topic}" for group in self.groups])
        lines = [
            f"{self.brokers} brokers, {self.name_servers} name servers, up to {self.latency:g} s away",
            f"producers of {self.messages} messages each: {', '.join(self.producers) or 'none'}",
            f"groups: {groups or 'none'}",
            *[f"{at:9.3f} s  {fault}" for at, fault in self.faults],
            f"{self.seconds:9.3f} s  no more faults",
        ]
        if self.wrong_clocks:
            lines.append("the clocks of consumers differ and jump")
        if self.small_cache:
            lines.append("push consumers cache only a few messages")
        if self.replicas:
            lines.append("each broker has a replica")
        return "\n".join(lines)


def _fewer(parts: tuple[_Part, ...]) -> Iterator[tuple[_Part, ...]]:
    """Yield both halves, then the parts without each one of them."""
    if len(parts) > 2:
        yield parts[: len(parts) // 2]
        yield parts[len(parts) // 2 :]
    for index in range(len(parts)):
        yield (*parts[:index], *parts[index + 1 :])


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    rng = random.Random(f"plan {seed}")
    seconds = rng.uniform(10, 60)
    names = rng.sample(sorted(CONSUMERS), rng.randint(1, 3))
    faults = [(rng.uniform(0, seconds), rng.choice(FAULTS)) for _ in range(rng.randint(0, 8))]
    operations = [(rng.uniform(0, seconds), rng.choice(OPERATIONS)) for _ in range(rng.randint(0, 3))]
    others = rng.choice((BROADCASTING, (READER,), ()))
    more = random.Random(f"more {seed}")  # separate, so that other choices of a seed stay the same
    late = [(more.uniform(0, seconds), LATE_HEARTBEATS) for _ in range(more.choice((0, 0, 0, 4)))]
    return Plan(
        seed=seed,
        brokers=rng.randint(1, 3),
        name_servers=rng.randint(1, 2),
        producers=tuple(rng.sample(PRODUCERS, rng.randint(2, 4))),
        groups=(
            *[Group(name, CONSUMERS[name], rng.randint(1, 3)) for name in names],
            *[Group(name, "plain", 1) for name in others],
        ),
        messages=rng.randint(5, 40),
        faults=tuple(sorted([*faults, *operations, *late])),
        seconds=seconds,
        latency=rng.choice((0.0005, 0.005, 0.05)),
        wrong_clocks=rng.random() < 0.3,
        small_cache=rng.random() < 0.3,
        replicas=more.random() < 0.3,
    )


BRIEF_SECONDS = 5.0


def brief_plan_of(seed: int) -> Plan:
    """Return a short and small version of a seed's plan, which needs a fifth of the CPU time."""
    plan = plan_of(seed)
    sooner = BRIEF_SECONDS / plan.seconds
    group = plan.groups[seed % len(plan.groups)]
    return attrs.evolve(
        plan,
        brokers=min(plan.brokers, 2),
        name_servers=1,
        producers=plan.producers[:2],
        groups=(attrs.evolve(group, members=min(group.members, 2)),),
        messages=min(plan.messages, 10),
        faults=tuple([(at * sooner, fault) for at, fault in plan.faults[:2]]),
        seconds=BRIEF_SECONDS,
        replicas=False,
    )
