from __future__ import annotations

import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import ConsumeTimeSpans, GroupList, QueueTimeSpan
from tests.broker.offline import START_MS, OfflineBroker, OfflineClient
from tests.broker.test_groups import send_heartbeat


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


async def test_groups_of_a_topic_are_those_with_members_or_offsets(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    client.send("t")
    commit(client, 1)

    def groups() -> set[str]:
        answer = client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "t"})
        return set(GroupList.decode(answer.body).group_list)

    assert groups() == {"g"}
    online = broker.connect()
    heartbeat = b'{"clientID":"o@x","consumerDataSet":[{"groupName":"online","subscriptionDataSet":[%s]}]}'
    online.ask(RequestCode.HEART_BEAT, {}, heartbeat % b'{"topic":"t","subString":"*"}')
    send_heartbeat(broker.connect(), "one@x")
    assert groups() == {"g", "online"}
    online.close()
    assert groups() == {"g"}
