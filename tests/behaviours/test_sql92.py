"""The semantics of SQL filters on the embedded broker and on real ones."""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_py import Client, Message
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import CheckClientConfig, ConsumerData, Heartbeat, SubscriptionData
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import HeartbeatRequest, PullMessageAnswer, PullMessageRequest
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.protocol.subscription import SQL92
from tests.behaviours.conditions import CONDITIONS, CONDITIONS_OF_5, FAULTS, MESSAGES
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.peers import Peer, open_peer
from tests.behaviours.reading import until_readable

BRINGS_SUBSCRIPTION = 4


def pull(topic: str, offset: int, condition: str | None, **changes: object) -> PullMessageRequest:
    """Return a pull from queue 0 with a condition. None uses the subscription of the heartbeat."""
    values = {
        "consumer_group": "readers",
        "topic": topic,
        "queue_id": 0,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": 0 if condition is None else BRINGS_SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "sub_version": 0,
        "subscription": condition,
        "expression_type": SQL92,
        **changes,
    }
    return PullMessageRequest(**values)  # type: ignore[arg-type]  # values of the test


async def matching(peer: Peer, topic: str, condition: str) -> set[str]:
    """Return the bodies of the messages that match a condition."""
    found: set[str] = set()
    offset = 0
    while True:
        answer = await peer.ask(pull(topic, offset, condition))
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return found
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), answer
        found |= {message.body.decode() for message in decode_messages(answer.body, peer.broker_name)}
        offset = PullMessageAnswer.from_fields(answer.fields).next_begin_offset


async def send_messages(client: Client, topic: str, names: Sequence[str]) -> None:
    """Send messages of the table to a topic of one queue, and wait until they can be read."""
    await create_topic(client, topic, queues=1)
    async with client.producer("senders") as producer:
        for name in names:
            message = Message(
                topic, name.encode(), tags="TagA", keys=f"key-{name}", properties=MESSAGES[name]
            )
            await producer.send(message)
    await until_readable(client, topic, count=len(names))


async def test_conditions_match_the_expected_messages(
    cluster: ClusterUnderTest, client: Client, unique: str
) -> None:
    conditions = CONDITIONS if cluster.name == "4.9.7" else CONDITIONS + CONDITIONS_OF_5
    await send_messages(client, unique, list(MESSAGES))
    async with open_peer(client) as peer:
        for condition, names in conditions:
            assert await matching(peer, unique, condition) == set(names.split()), condition


def check_of(expression: str, kind: str = SQL92) -> bytes:
    subscription = SubscriptionData(topic="t", sub_string=expression, expression_type=kind)
    return CheckClientConfig(client_id="one@x", group="g", subscription_data=subscription).encode()


async def test_invalid_conditions_are_refused_with_a_remark(
    cluster: ClusterUnderTest, client: Client
) -> None:
    async with open_peer(client) as peer:
        for condition, remark in FAULTS:
            answer = await peer.send(RequestCode.CHECK_CLIENT_CONFIG, {}, check_of(condition))
            if cluster.name == "4.9.7":
                # Its tokens have other numbers, so it lists the expected tokens in another order.
                remark = remark.split("Was expecting")[0]
                answer_remark = (answer.remark or "").split("Was expecting")[0]
            else:
                answer_remark = answer.remark or ""
            assert (answer.code, answer_remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark), condition
        answer = await peer.send(RequestCode.CHECK_CLIENT_CONFIG, {}, check_of("a = 5"))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        answer = await peer.send(RequestCode.CHECK_CLIENT_CONFIG, {}, check_of("a || >", "TAG"))
        assert answer.code == ResponseCode.SUCCESS


async def beat(peer: Peer, group: str, topic: str, condition: str, version: int) -> None:
    subscription = SubscriptionData(
        topic=topic, sub_string=condition, sub_version=version, expression_type=SQL92
    )
    data = ConsumerData(group_name=group, subscription_data_set=(subscription,))
    heartbeat = Heartbeat(client_id="one@x", consumer_data_set=(data,))
    assert (await peer.ask(HeartbeatRequest(), heartbeat.encode())).code == ResponseCode.SUCCESS


async def test_conditions_that_come_with_heartbeats(client: Client, unique: str) -> None:
    await send_messages(client, unique, ["five", "six"])
    group = f"group-{unique}"
    async with open_peer(client) as peer:

        async def ask(version: int) -> Command:
            return await peer.ask(pull(unique, 0, None, consumer_group=group, sub_version=version))

        def names(answer: Command) -> list[str]:
            assert answer.code == ResponseCode.SUCCESS
            return [message.body.decode() for message in decode_messages(answer.body, "")]

        await beat(peer, group, unique, "a = 6", 2)
        assert names(await ask(2)) == ["six"]
        assert (await ask(3)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await beat(peer, group, unique, "a = 5", 1)
        assert names(await ask(2)) == ["six"], "an older one does not count"
        await beat(peer, group, unique, "a = 5", 3)
        assert names(await ask(3)) == ["five"]
        await beat(peer, group, unique, "a =", 4)
        answer = await ask(4)
        assert (answer.code, answer.remark) == (
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        )
