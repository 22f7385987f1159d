from __future__ import annotations

import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol import fastjson
from rocketmq_py.protocol.bodies import ConsumeStats, ConsumeTimeSpans, QueueTimeSpan
from tests.broker.offline import BROKER_ADDRESS, START_MS, OfflineClient
from tests.broker.test_topic_requests import create


def time_span(client: OfflineClient, group: str = "g") -> QueueTimeSpan:
    """Return the time span of the first queue."""
    answer = client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "t", "group": group})
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    spans = ConsumeTimeSpans.decode(answer.body).consume_time_span_set
    assert [span.message_queue.queue_id for span in spans] == [0, 1, 2, 3]
    return spans[0]


def commit(client: OfflineClient, offset: int) -> None:
    client.pull("t", consumerGroup="g")
    fields = {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": str(offset)}
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


async def test_a_time_span_contains_the_delay_of_the_group(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    for _ in range(3):
        client.send("t")
        await trio.sleep(10)
    now_ms = START_MS + 30_000
    commit(client, 1)
    span = time_span(client)
    assert (span.min_time_ms, span.max_time_ms) == (START_MS, START_MS + 20_000)
    assert (span.consume_time_ms, span.delay_ms) == (START_MS, now_ms - START_MS - 10_000)
    commit(client, 3)
    span = time_span(client)
    assert (span.consume_time_ms, span.delay_ms) == (START_MS + 20_000, 0)
    commit(client, 0)
    assert time_span(client).consume_time_ms == START_MS


async def test_the_time_span_of_a_queue_without_messages(client: OfflineClient) -> None:
    client.send("t", queue_id=1)
    commit(client, 0)
    span = time_span(client)
    assert (span.min_time_ms, span.max_time_ms, span.consume_time_ms, span.delay_ms) == (-1, -1, -1, 0)


async def test_the_time_span_of_an_unknown_topic_is_refused(client: OfflineClient) -> None:
    answer = client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "nope", "group": "g"})
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[nope] not exist")


async def test_consume_stats_contain_the_offsets_of_a_group(client: OfflineClient) -> None:
    for _ in range(3):
        client.send("t")
    client.send("u")
    client.pull("t", 1, sysFlag="5", commitOffset="1", maxMsgNums="1")

    def stats(**changes: str) -> dict[tuple[str, int], tuple[int, int, int]]:
        answer = client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "readers", **changes})
        table = ConsumeStats.decode(answer.body).offset_table
        return {
            (queue.topic, queue.queue_id): (offset.broker_offset, offset.consumer_offset, offset.pull_offset)
            for queue, offset in table.items()
        }

    expected = {("t", queue_id): (0, 0, 0) for queue_id in range(4)} | {("t", 0): (3, 1, 2)}
    assert stats() == stats(topic="t") == stats(topicList="t;unknown") == expected
    assert stats(topic="u")[("u", 0)] == (1, 0, 0)
    assert stats(consumerGroup="unknown") == {}


async def test_broker_consume_stats_contain_all_groups(client: OfflineClient) -> None:
    create(client, "ordered", order="true")
    for topic in ("t", "ordered"):
        client.send(topic)
        client.pull(topic, 0)
        offset = {"consumerGroup": "readers", "topic": topic, "queueId": "0", "commitOffset": "0"}
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset)

    def stats(**fields: str) -> tuple[list[str], int]:
        members = fastjson.loads(client.ask(RequestCode.GET_BROKER_CONSUME_STATS, fields).body)
        assert isinstance(members, dict)
        assert members["brokerAddr"] == BROKER_ADDRESS
        by_group = {group: stats for one in members["consumeStatsList"] for group, stats in one.items()}
        assert by_group["TOOLS_CONSUMER"] == []
        topics = {dict(queue)["topic"] for one in by_group["readers"] for queue in one["offsetTable"]}
        return sorted(topics), members["totalDiff"]

    assert stats(isOrder="false") == (["ordered", "t"], 2)
    assert stats(isOrder="true") == (["ordered"], 1)
