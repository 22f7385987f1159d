"""What a seed stands for: who is there, and what goes wrong."""

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
"""Heartbeats come seconds later: their clients may be gone."""
OVERTAKING = frozenset({"delay", "freeze", "slow", "partition"})
"""What is sent on a new connection may come before what was sent on the one before."""
OPERATIONS = ("crash_without_flush", "reset", "add_queues", "close_for_reading", "close_for_writing")
"""What operators do, or would have prevented."""
PRODUCERS = ("single", "batching", "keyed", "transacting", "pinned", "asking")
CONSUMERS = {"push": "plain", "lite": "plain", "orderly": "keyed", "pop": "plain", "push-tx": "transacted"}
BROADCASTING = ("broadcast-0", "broadcast-1")
READER = "reader"
INVISIBLE_SECONDS = 15.0
"""How long what was popped is kept from others."""
_Part = TypeVar("_Part")


@attrs.frozen
class Group:
    """Who gets each message of a topic at least once: a consumer group, or one who reads for itself.

    Its name is that of the way in which its members consume.
    """

    name: str
    topic: str
    members: int

    @property
    def pulls(self) -> bool:
        """Whether it commits offsets up to which everything is done with."""
        return self.name in CONSUMERS and self.name != "pop"


@attrs.frozen
class Plan:
    """What a seed stands for.

    Attributes:
        seed: the seed.
        brokers: how many.
        name_servers: how many.
        producers: which kinds there are.
        groups: who consumes.
        messages: how many each producer sends.
        faults: what goes wrong, and when, in seconds.
        seconds: after which nothing goes wrong any more.
        latency: of the network, at the most.
        clocks: whether the clocks of consumers differ, and jump.
        tight: whether push consumers hold a few messages only.
        replicas: whether each broker has one.
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
    clocks: bool = False
    tight: bool = False
    replicas: bool = False

    @property
    def keeps_commits(self) -> bool:
        """Whether what a group commits last is what its brokers keep: no older commit overtakes it."""
        return (OVERTAKING | {"crash_without_flush"}).isdisjoint([what for _, what in self.faults])

    @property
    def knows_requesters(self) -> bool:
        """Whether brokers know in the end where replies go.

        Java's, and so the embedded one, forget a client when a connection of its ends that they have heard
        of after the one that it has now.
        """
        return (OVERTAKING | {LATE_HEARTBEATS}).isdisjoint([what for _, what in self.faults])

    @property
    def quiet_seconds(self) -> float:
        """How long to wait for what should not come, once everything has."""
        return 4 * INVISIBLE_SECONDS if any(group.name == "pop" for group in self.groups) else 10.0

    def smaller(self) -> Iterator[Plan]:
        """Yield plans that have less than this one: the most first."""
        for faults in _fewer(self.faults):
            yield attrs.evolve(self, faults=faults)
        for groups in _fewer(self.groups):
            yield attrs.evolve(self, groups=groups)
        for producers in _fewer(self.producers):
            yield attrs.evolve(self, producers=producers)
        for place, group in enumerate(self.groups):
            if group.members > 1:
                alone = attrs.evolve(group, members=group.members - 1)
                yield attrs.evolve(self, groups=(*self.groups[:place], alone, *self.groups[place + 1 :]))
        if self.messages > 1:
            yield attrs.evolve(self, messages=self.messages // 2)
            yield attrs.evolve(self, messages=self.messages - 1)
        if self.brokers > 1:
            yield attrs.evolve(self, brokers=self.brokers - 1)
        if self.name_servers > 1:
            yield attrs.evolve(self, name_servers=self.name_servers - 1)
        if self.clocks:
            yield attrs.evolve(self, clocks=False)
        if self.tight:
            yield attrs.evolve(self, tight=False)
        if self.replicas:
            yield attrs.evolve(self, replicas=False)

    def __str__(self) -> str:
        """Return it as a person reads it."""
        groups = ", ".join([f"{group.name} of {group.members} on {group.topic}" for group in self.groups])
        lines = [
            f"{self.brokers} brokers, {self.name_servers} name servers, up to {self.latency:g} s away",
            f"producers of {self.messages} messages each: {', '.join(self.producers) or 'none'}",
            f"groups: {groups or 'none'}",
            *[f"{at:9.3f} s  {what}" for at, what in self.faults],
            f"{self.seconds:9.3f} s  nothing goes wrong any more",
        ]
        if self.clocks:
            lines.append("the clocks of consumers differ, and jump")
        if self.tight:
            lines.append("push consumers hold a few messages only")
        if self.replicas:
            lines.append("each broker has a replica")
        return "\n".join(lines)


def _fewer(parts: tuple[_Part, ...]) -> Iterator[tuple[_Part, ...]]:
    """Yield the halves, then all without one."""
    if len(parts) > 2:
        yield parts[: len(parts) // 2]
        yield parts[len(parts) // 2 :]
    for place in range(len(parts)):
        yield (*parts[:place], *parts[place + 1 :])


def plan_of(seed: int) -> Plan:
    """Return what a seed stands for."""
    rng = random.Random(f"plan {seed}")
    seconds = rng.uniform(10, 60)
    names = rng.sample(sorted(CONSUMERS), rng.randint(1, 3))
    faults = [(rng.uniform(0, seconds), rng.choice(FAULTS)) for _ in range(rng.randint(0, 8))]
    operations = [(rng.uniform(0, seconds), rng.choice(OPERATIONS)) for _ in range(rng.randint(0, 3))]
    others = rng.choice((BROADCASTING, (READER,), ()))
    more = random.Random(f"more {seed}")  # what was added later leaves the rest of a seed's plan as it was
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
        clocks=rng.random() < 0.3,
        tight=rng.random() < 0.3,
        replicas=more.random() < 0.3,
    )


BRIEF_SECONDS = 5.0


def brief_plan_of(seed: int) -> Plan:
    """Return the beginning of what a seed stands for, made small: a fifth of the processor time."""
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
        faults=tuple([(at * sooner, what) for at, what in plan.faults[:2]]),
        seconds=BRIEF_SECONDS,
        replicas=False,
    )
