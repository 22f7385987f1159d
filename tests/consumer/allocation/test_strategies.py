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

from rocketmq_py.client.namespace import Namespace
from rocketmq_py.consumer import (
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocateConsistentHash,
    AllocateMachineRoomNearby,
    AllocateStrategy,
    allocate_averagely,
    allocate_averagely_by_circle,
)
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue

GOLDEN = Path(__file__).parents[2] / "data" / "allocations.jsonl"
"""What Java's classes, of 4.9.8 and 5.5.0 alike, give the members: by integration/java/src/Allocate.java."""


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
GIVE_ALL = [name for name in STRATEGIES if name != "MACHINE_ROOM"]


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
def test_members_in_java_agree(name: str) -> None:
    cases = list(golden())
    assert len(cases) == 80
    for case in cases:
        expected = [[case.queues[place] for place in places] for places in case.expected[name]]
        assert shares(STRATEGIES[name], case.queues, case.members) == expected


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


@pytest.mark.parametrize("name", GIVE_ALL)
@given(queues=topics, members=groups)
def test_every_queue_has_one_owner(name: str, queues: list[MessageQueue], members: list[str]) -> None:
    found = shares(STRATEGIES[name], queues, members)
    assert sorted(itertools.chain(*found)) == queues


@given(queues=topics, members=groups)
def test_only_queues_in_the_rooms_have_an_owner(queues: list[MessageQueue], members: list[str]) -> None:
    found = shares(STRATEGIES["MACHINE_ROOM"], queues, members)
    assert sorted(itertools.chain(*found)) == [each for each in queues if room_of_queue(each) != "sh"]
    counts = [len(share) for share in found]
    assert max(counts) - min(counts) <= 1


@given(queues=topics, members=groups)
def test_nobody_is_given_queues_of_another_room_where_somebody_is(
    queues: list[MessageQueue], members: list[str]
) -> None:
    taken = {room_of_client(member) for member in members}
    found = shares(STRATEGIES["MACHINE_ROOM_NEARBY-AVG"], queues, members)
    for member, share in zip(members, found, strict=True):
        assert {room_of_queue(queue) for queue in share} & taken <= {room_of_client(member)}


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
    """Spread texts over more bits than Java's hash, so that no two are at one point of the ring."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def test_consistent_hash_does_not_depend_on_the_order_of_what_it_is_given() -> None:
    case = next(golden())
    strategy = AllocateConsistentHash()
    for member in case.members:
        there = strategy("g", member, case.queues, case.members)
        back = strategy("g", member, case.queues[::-1], case.members[::-1])
        assert list(back) == list(there)[::-1]


def test_consistent_hash_takes_the_names_on_the_wire() -> None:
    members = [f"m{number}" for number in range(5)]
    short = [MessageQueue("T", "b", number) for number in range(20)]
    on_wire = [attrs.evolve(queue, topic=Namespace("tenant").wrap_topic("T")) for queue in short]
    in_java = shares(AllocateConsistentHash(), on_wire, members)
    here = shares(AllocateConsistentHash(namespace="tenant"), short, members)
    assert [[queue.queue_id for queue in share] for share in here] == [
        [queue.queue_id for queue in share] for share in in_java
    ]
    assert shares(AllocateConsistentHash(), short, members) != here


def test_by_config_each_member_has_what_is_named() -> None:
    queues = [MessageQueue("T", "b", number) for number in range(4)]
    strategy = AllocateByConfig([queues[0], queues[3], MessageQueue("T", "gone", 0)])
    assert strategy("g", "a", queues, ["a", "b"]) == [queues[0], queues[3]]
    assert strategy("g", "a", [MessageQueue("U", "b", 0)], ["a", "b"]) == []


def test_by_config_a_retry_topic_that_is_not_named_is_shared_out() -> None:
    retries = [MessageQueue("%RETRY%g", "b", number) for number in range(2)]
    queue = MessageQueue("T", "b", 0)
    assert AllocateByConfig([queue])("g", "b", retries, ["a", "b"]) == [retries[1]]
    assert AllocateByConfig([queue, retries[0]])("g", "b", retries, ["a", "b"]) == [retries[0]]


@pytest.mark.parametrize("rooms", ["hz", [], [1]])
def test_rooms_have_names(rooms: Any) -> None:
    with pytest.raises(ConfigurationError, match="machine rooms"):
        AllocateByMachineRoom(rooms)


def test_what_cannot_be_shared_out_by() -> None:
    with pytest.raises(ConfigurationError, match="virtual_nodes"):
        AllocateConsistentHash(0)
    with pytest.raises(ConfigurationError, match="must be a MessageQueue, not str"):
        AllocateByConfig(["T"])  # type: ignore[list-item]
    nowhere = AllocateMachineRoomNearby(lambda queue: "", room_of_client)
    with pytest.raises(ConfigurationError, match="it must have a name"):
        nowhere("g", "hz@1", [MessageQueue("T", "b", 0)], ["hz@1"])
