"""Three brokers with a thousand topics, a hundred groups: asked side by side, within a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import trio

from rocketmq_py import Admin, Message, MessageQueue, Producer
from rocketmq_py.admin.asking import AT_ONCE
from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.bodies import SubscriptionGroupConfig
from rocketmq_py.protocol.headers import PutSubscriptionGroupRequest
from rocketmq_py.testing import World, simulate

BROKERS, TOPICS, GROUPS, OWN_GROUPS = 3, 1000, 100, 8
ANSWER_SECONDS = 1.0


async def list_topics(admin: Admin) -> None:
    assert len((await admin.topics.list()).topics) == TOPICS


async def list_groups(admin: Admin) -> None:
    assert len((await admin.groups.list()).groups) == GROUPS


async def list_clients(admin: Admin) -> None:
    assert (await admin.clients.list()).failures == {}


async def list_brokers(admin: Admin) -> None:
    assert len((await admin.brokers.list()).brokers) == BROKERS


async def list_tracks(admin: Admin) -> None:
    message = await admin.messages.at(MessageQueue("Topic0", "broker-a", 0), 0)
    assert message is not None
    assert len((await admin.messages.tracks(message)).tracks) == GROUPS


EACH_GROUP = GROUPS * BROKERS
CASES: dict[str, tuple[Callable[[Admin], Awaitable[None]], dict[str, int]]] = {
    "topics": (list_topics, {"GET_ALL_TOPIC_CONFIG": BROKERS}),
    "groups": (
        list_groups,
        {
            "GET_ALL_SUBSCRIPTIONGROUP_CONFIG": BROKERS,
            "GET_CONSUME_STATS": EACH_GROUP,
            "GET_CONSUMER_CONNECTION_LIST": EACH_GROUP,
        },
    ),
    "clients": (
        list_clients,
        {
            "GET_ALL_PRODUCER_INFO": BROKERS,
            "GET_ALL_SUBSCRIPTIONGROUP_CONFIG": BROKERS,
            "GET_CONSUMER_CONNECTION_LIST": (GROUPS + OWN_GROUPS) * BROKERS,
        },
    ),
    "what groups did with a message": (
        list_tracks,
        {
            "QUERY_TOPIC_CONSUME_BY_WHO": BROKERS,
            "GET_CONSUME_STATS": GROUPS,
            "GET_CONSUMER_CONNECTION_LIST": EACH_GROUP,
        },
    ),
    "brokers": (list_brokers, {"GET_BROKER_RUNTIME_INFO": BROKERS}),
}


@pytest.mark.long
@pytest.mark.parametrize("table", CASES)
def test_how_often_brokers_are_asked_and_how_many_questions_are_under_way(table: str) -> None:
    ask, expected = CASES[table]

    async def program(world: World) -> tuple[dict[str, int], int, float]:
        async with Admin(world.name_server_address) as admin:
            await add_groups(world, admin)
            if ask is list_tracks:
                await have_all_consume(admin)
            began_ms, began = max(request.time_ms for request in world.requests()), trio.current_time()
            with world.delay(None, ANSWER_SECONDS):
                await ask(admin)
            requests = [one for one in world.requests() if one.time_ms > began_ms]
            of_brokers = [one for one in requests if RequestCode(one.code).name in expected]
            assert len(requests) - len(of_brokers) <= 6, "what name servers are asked, and for a message"
            counts = Counter(RequestCode(one.code).name for one in of_brokers)
            return (
                dict(counts),
                most_at_once([one.time_ms for one in of_brokers]),
                trio.current_time() - began,
            )

    topics = {f"Topic{number}": 4 for number in range(TOPICS)}
    counts, at_once, seconds = simulate(program, seed=1, brokers=BROKERS, topics=topics).value
    assert counts == expected
    assert at_once <= AT_ONCE
    # In virtual time: one after the other they would take as many seconds as there are questions.
    assert seconds < sum(expected.values()) * ANSWER_SECONDS / min(AT_ONCE, BROKERS) * 1.2 + 5


async def add_groups(world: World, admin: Admin) -> None:
    for address in world.broker_addresses.values():
        for number in range(GROUPS):
            body = SubscriptionGroupConfig(group_name=f"group-{number}").encode()
            await admin.client.brokers.call(address, PutSubscriptionGroupRequest(), body)


async def have_all_consume(admin: Admin) -> None:
    """Put a message into a queue, where each group has come."""
    queue = MessageQueue("Topic0", "broker-a", 0)
    async with Producer(admin.client, group="senders") as producer:
        await producer.send(Message("Topic0", b"x"), queue=queue)
    for number in range(GROUPS):
        await admin.client.brokers.commit_offset(f"group-{number}", queue, 0)


def most_at_once(times_ms: list[int]) -> int:
    """Return how many of the questions were not answered yet, at the most: each is after the same time."""
    times_ms = sorted(times_ms)
    return max(
        sum(time_ms - ANSWER_SECONDS * 1000 < other <= time_ms for other in times_ms) for time_ms in times_ms
    )
