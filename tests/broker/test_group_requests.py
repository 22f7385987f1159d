from __future__ import annotations

import json

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import GroupList
from tests.broker.offline import OfflineBroker, OfflineClient
from tests.broker.test_consume_stats import commit
from tests.broker.test_groups import send_heartbeat


async def test_the_number_of_queues_of_a_retry_topic_is_limited(client: OfflineClient) -> None:
    body = {"groupName": "g", "retryQueueNums": 65537}
    answer = client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(body).encode())
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "The retry topic of group[g] would have 65537 queues; this broker lets it have 65536.",
    )


async def test_an_unknown_language_of_a_member_is_listed_as_other(client: OfflineClient) -> None:
    heartbeat = {"clientID": "c", "consumerDataSet": [{"groupName": "g"}]}
    client.ask(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode(), language=77)
    answer = client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
    (connection,) = json.loads(answer.body)["connectionSet"]
    assert connection["language"] == "OTHER"


async def test_an_invalid_group_name_is_refused(client: OfflineClient) -> None:
    answer = client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"a b"}')
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "The specified group: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
    )
    answer = client.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps({"groupName": "g" * 121}).encode()
    )
    assert answer.code == ResponseCode.INVALID_PARAMETER


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
