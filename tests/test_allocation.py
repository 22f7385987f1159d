"""The allocation strategies divide queues among members as Java's strategies do."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.allocation import (
    AllocateByBroker,
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocateConsistentHash,
    AllocateMachineRoomNearby,
    AllocateStrategy,
    allocate_averagely,
    allocate_averagely_by_circle,
    strategy_name,
)
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue

GOLDEN = Path(__file__).parent / "data" / "allocations.jsonl"
"""The results of Java's classes in 4.9.8 and 5.5.0, written by integration/java/src/Allocate.java."""


def room_of_client(client_id: str) -> str:
    return client_id.split("@")[0]


def room_of_queue(queue: MessageQueue) -> str:
    return queue.broker_name.split("@")[0]


STRATEGIES: Mapping[str, AllocateStrategy] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_averagely_by_circle,
    "CONSISTENT_HASH": AllocateConsistentHash(),
    "CONSISTENT_HASH-3": AllocateConsistentHash(3),
    "MACHINE_ROOM": AllocateByMachineRoom(["hz", "bj"]),
    "MACHINE_ROOM_NEARBY-AVG": AllocateMachineRoomNearby(room_of_queue, room_of_client),
    "MACHINE_ROOM_NEARBY-CONSISTENT_HASH": AllocateMachineRoomNearby(
        room_of_queue, room_of_client, AllocateConsistentHash()
    ),
}
ALLOCATE_ALL = [name for name in STRATEGIES if name != "MACHINE_ROOM"]


@attrs.frozen
class Case:
    queues: list[MessageQueue]
    members: list[str]
    expected: Mapping[str, list[list[int]]]

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Case:
        names = [name.split("/") for name in fields["queues"]]
        queues = [MessageQueue(fields["topic"], broker, int(number)) for broker, number in names]
        return cls(queues, fields["members"], fields)


def golden() -> Iterator[Case]:
    with GOLDEN.open() as lines:
        for line in lines:
            yield Case.read(json.loads(line))


def shares(
    strategy: AllocateStrategy, queues: list[MessageQueue], members: list[str]
) -> list[list[MessageQueue]]:
    return [list(strategy("g", member, queues, members)) for member in members]


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_give_the_results_of_java(name: str) -> None:
    cases = list(golden())
    assert len(cases) == 80
    for case in cases:
        expected = [[case.queues[index] for index in indexes] for indexes in case.expected[name]]
        assert shares(STRATEGIES[name], case.queues, case.members) == expected


def averagely(queues: int, members: int) -> list[list[int]]:
    """Return the queue numbers that allocate_averagely gives to each member."""
    allocated = shares(
        allocate_averagely,
        [MessageQueue("T", "broker-a", number) for number in range(queues)],
        [f"client-{number:03}" for number in range(members)],
    )
    return [[queue.queue_id for queue in share] for share in allocated]


@pytest.mark.parametrize(
    ("queues", "members", "expected"),
    [
        (4, 1, [[0, 1, 2, 3]]),
        (4, 2, [[0, 1], [2, 3]]),
        (5, 2, [[0, 1, 2], [3, 4]]),
        (6, 4, [[0, 1], [2, 3], [4], [5]]),
        (10, 3, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        (11, 3, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]),
        (3, 5, [[0], [1], [2], [], []]),
        (1, 2, [[0], []]),
    ],
)
def test_averagely_gives_the_first_members_one_queue_more(
    queues: int, members: int, expected: list[list[int]]
) -> None:
    assert averagely(queues, members) == expected


def java_averagely(queues: int, members: int, index: int) -> range:
    """Return the queue numbers of a member, computed like Java's AllocateMessageQueueAveragely does."""
    remainder = queues % members
    if queues <= members:
        average = 1
    elif remainder > 0 and index < remainder:
        average = queues // members + 1
    else:
        average = queues // members
    start = index * average if remainder > 0 and index < remainder else index * average + remainder
    return range(start, start + min(average, queues - start))


@given(queues=st.integers(1, 60), members=st.integers(1, 30))
def test_averagely_agrees_with_the_arithmetic_of_java(queues: int, members: int) -> None:
    assert averagely(queues, members) == [
        list(java_averagely(queues, members, index)) for index in range(members)
    ]


rooms = st.sampled_from(["hz", "sh", "bj"])
groups = st.lists(
    st.builds(lambda room, number: f"{room}@{number}", rooms, st.integers(0, 99)),
    min_size=1,
    max_size=12,
    unique=True,
).map(sorted)
topics = st.lists(
    st.builds(lambda room, number: MessageQueue("T", f"{room}@b", number), rooms, st.integers(0, 20)),
    min_size=1,
    max_size=40,
    unique=True,
).map(sorted)


@pytest.mark.parametrize("name", ALLOCATE_ALL)
@given(queues=topics, members=groups)
def test_every_queue_is_allocated_to_exactly_one_member(
    name: str, queues: list[MessageQueue], members: list[str]
) -> None:
    allocated = shares(STRATEGIES[name], queues, members)
    assert sorted(itertools.chain(*allocated)) == queues


@given(queues=topics, members=groups)
def test_machine_room_allocates_only_queues_in_the_configured_rooms(
    queues: list[MessageQueue], members: list[str]
) -> None:
    allocated = shares(STRATEGIES["MACHINE_ROOM"], queues, members)
    assert sorted(itertools.chain(*allocated)) == [each for each in queues if room_of_queue(each) != "sh"]
    counts = [len(share) for share in allocated]
    assert max(counts) - min(counts) <= 1


@given(queues=topics, members=groups)
def test_nearby_does_not_allocate_queues_of_other_rooms_that_have_members(
    queues: list[MessageQueue], members: list[str]
) -> None:
    occupied = {room_of_client(member) for member in members}
    allocated = shares(STRATEGIES["MACHINE_ROOM_NEARBY-AVG"], queues, members)
    for member, share in zip(members, allocated, strict=True):
        assert {room_of_queue(queue) for queue in share} & occupied <= {room_of_client(member)}


@given(queues=topics, members=groups, data=st.data())
def test_consistent_hash_moves_only_the_queues_of_the_member_that_left(
    queues: list[MessageQueue], members: list[str], data: st.DataObject
) -> None:
    strategy = AllocateConsistentHash(hash_function=hash_of)
    left = data.draw(st.sampled_from(members))
    others = [member for member in members if member != left]
    for member in others:
        before = set(strategy("g", member, queues, members))
        assert before <= set(strategy("g", member, queues, others))


def hash_of(text: str) -> int:
    """Return a hash of more bits than Java's, so that no two strings share a point of the ring."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def test_consistent_hash_does_not_depend_on_the_order_of_its_arguments() -> None:
    case = next(golden())
    strategy = AllocateConsistentHash()
    for member in case.members:
        ascending = strategy("g", member, case.queues, case.members)
        descending = strategy("g", member, case.queues[::-1], case.members[::-1])
        assert list(descending) == list(ascending)[::-1]


def test_consistent_hash_includes_the_namespace_in_topic_names() -> None:
    members = [f"m{number}" for number in range(5)]
    short = [MessageQueue("T", "b", number) for number in range(20)]
    on_wire = [attrs.evolve(queue, topic=Namespace("tenant").wrap_topic("T")) for queue in short]
    in_java = shares(AllocateConsistentHash(), on_wire, members)
    here = shares(AllocateConsistentHash(namespace="tenant"), short, members)
    assert [[queue.queue_id for queue in share] for share in here] == [
        [queue.queue_id for queue in share] for share in in_java
    ]
    assert shares(AllocateConsistentHash(), short, members) != here


def test_by_config_allocates_the_configured_queues() -> None:
    queues = [MessageQueue("T", "b", number) for number in range(4)]
    strategy = AllocateByConfig([queues[0], queues[3], MessageQueue("T", "gone", 0)])
    assert strategy("g", "a", queues, ["a", "b"]) == [queues[0], queues[3]]
    assert strategy("g", "a", [MessageQueue("U", "b", 0)], ["a", "b"]) == []


def test_by_config_allocates_an_unconfigured_retry_topic_averagely() -> None:
    retries = [MessageQueue("%RETRY%g", "b", number) for number in range(2)]
    queue = MessageQueue("T", "b", 0)
    assert AllocateByConfig([queue])("g", "b", retries, ["a", "b"]) == [retries[1]]
    assert AllocateByConfig([queue, retries[0]])("g", "b", retries, ["a", "b"]) == [retries[0]]


@pytest.mark.parametrize("rooms", ["hz", [], [1]])
def test_machine_room_refuses_invalid_room_names(rooms: Any) -> None:
    with pytest.raises(ConfigurationError, match="machine rooms"):
        AllocateByMachineRoom(rooms)


def test_strategies_refuse_invalid_arguments() -> None:
    with pytest.raises(ConfigurationError, match="virtual_nodes"):
        AllocateConsistentHash(0)
    with pytest.raises(ConfigurationError, match="must be a MessageQueue, not str"):
        AllocateByConfig(["T"])  # type: ignore[list-item]
    nowhere = AllocateMachineRoomNearby(lambda queue: "", room_of_client)
    with pytest.raises(ConfigurationError, match="it must have a name"):
        nowhere("g", "hz@1", [MessageQueue("T", "b", 0)], ["hz@1"])


def test_by_broker_refuses_strategies_that_brokers_do_not_support() -> None:
    assert strategy_name(AllocateByBroker(allocate_averagely)) == "AVG"
    with pytest.raises(ConfigurationError, match="brokers only support allocate_averagely"):
        AllocateByBroker(AllocateConsistentHash())
