"""Number and concurrency of requests on a cluster of 3 brokers with 1,000 topics and 100 groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import trio

from rocketmq_py import Admin, Message, MessageQueue, Producer
from rocketmq_py.admin.fan_out import MAX_CONCURRENT
from rocketmq_py.client import core_of
from rocketmq_py.client.client import BorrowedClient
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
    "tracks of a message": (
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
def test_number_and_concurrency_of_requests(table: str) -> None:
    query, expected = CASES[table]

    async def program(world: World) -> tuple[dict[str, int], int, float]:
        async with Admin(world.name_server_address) as admin:
            await add_groups(world, admin)
            if query is list_tracks:
                await commit_for_all_groups(admin)
            start_ms, start = max(request.time_ms for request in world.requests()), trio.current_time()
            with world.delay(None, ANSWER_SECONDS):
                await query(admin)
            requests = [one for one in world.requests() if one.time_ms > start_ms]
            counted = [one for one in requests if RequestCode(one.code).name in expected]
            assert len(requests) - len(counted) <= 6, "requests to name servers, and for the message"
            counts = Counter(RequestCode(one.code).name for one in counted)
            return (
                dict(counts),
                max_concurrent([one.time_ms for one in counted]),
                trio.current_time() - start,
            )

    topics = {f"Topic{number}": 4 for number in range(TOPICS)}
    counts, concurrent, seconds = simulate(program, seed=1, brokers=BROKERS, topics=topics).value
    assert counts == expected
    assert concurrent <= MAX_CONCURRENT
    # Virtual time. Sequential requests would take a second each.
    assert seconds < sum(expected.values()) * ANSWER_SECONDS / min(MAX_CONCURRENT, BROKERS) * 1.2 + 5


async def add_groups(world: World, admin: Admin) -> None:
    for address in world.broker_addresses.values():
        for number in range(GROUPS):
            body = SubscriptionGroupConfig(group_name=f"group-{number}").encode()
            await core_of(admin).brokers.call(address, PutSubscriptionGroupRequest(), body)


async def commit_for_all_groups(admin: Admin) -> None:
    """Send a message and commit an offset in its queue for every group."""
    queue = MessageQueue("Topic0", "broker-a", 0)
    async with Producer(BorrowedClient(core_of(admin)), group="senders") as producer:
        await producer.send(Message("Topic0", b"x"), queue=queue)
    for number in range(GROUPS):
        await core_of(admin).brokers.commit_offset(f"group-{number}", queue, 0)


def max_concurrent(times_ms: list[int]) -> int:
    """Return the maximum number of requests in flight, as each is answered after the same time."""
    times_ms = sorted(times_ms)
    return max(
        sum(time_ms - ANSWER_SECONDS * 1000 < other <= time_ms for other in times_ms) for time_ms in times_ms
    )
