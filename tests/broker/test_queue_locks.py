from __future__ import annotations

import json

import trio
import trio.testing

from rocketmq_py.broker.queue_locks import LOCK_SECONDS, QueueLocks
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from tests.broker.offline import Answer, OfflineClient

QUEUES = [MessageQueue("t", "broker-a", queue_id) for queue_id in range(3)]


async def test_a_queue_is_locked_by_one_client_per_group() -> None:
    locks = QueueLocks()
    assert locks.lock("g", QUEUES[:2], "one") == QUEUES[:2]
    assert locks.lock("g", QUEUES, "two") == QUEUES[2:]
    assert locks.lock("g", QUEUES, "one") == QUEUES[:2]
    assert locks.lock("another group", QUEUES, "two") == QUEUES


async def test_only_the_client_with_the_lock_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("g", QUEUES, "one")
    locks.unlock("g", QUEUES, "two")
    locks.unlock("h", QUEUES, "one")
    assert locks.lock("g", QUEUES, "two") == []
    locks.unlock("g", QUEUES[:1], "one")
    assert locks.lock("g", QUEUES, "two") == QUEUES[:1]


async def test_locks_expire_unless_renewed(autojump_clock: trio.testing.MockClock) -> None:
    locks = QueueLocks()
    locks.lock("g", QUEUES[:2], "one")
    await trio.sleep(LOCK_SECONDS - 1)
    locks.lock("g", QUEUES[:1], "one")
    await trio.sleep(2)
    assert locks.lock("g", QUEUES[:2], "two") == QUEUES[1:2]
    assert locks.is_orderly("g")
    await trio.sleep(LOCK_SECONDS + 1)
    assert not locks.is_orderly("g")
    assert not locks.is_orderly("another group")


async def test_lock_batch_mq_locks_queues(client: OfflineClient) -> None:
    queues = [{"topic": "t", "brokerName": "broker-a", "queueId": queue_id} for queue_id in range(2)]

    def ask(code: int, client_id: str) -> Answer:
        body = {"consumerGroup": "g", "clientId": client_id, "mqSet": queues}
        return client.ask(code, {}, json.dumps(body).encode())

    assert json.loads(ask(RequestCode.LOCK_BATCH_MQ, "one").body) == {"lockOKMQSet": queues}
    assert json.loads(ask(RequestCode.LOCK_BATCH_MQ, "two").body) == {"lockOKMQSet": []}
    assert ask(RequestCode.UNLOCK_BATCH_MQ, "one").code == ResponseCode.SUCCESS
    assert json.loads(ask(RequestCode.LOCK_BATCH_MQ, "two").body) == {"lockOKMQSet": queues}
