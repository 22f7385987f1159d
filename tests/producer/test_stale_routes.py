"""Answers of brokers that show that the route of a topic is outdated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from rocketmq_py.client import core_of
from rocketmq_py.client.client import BorrowedClient
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import Delivery, RetriableBrokerError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer import LatencyFaultPolicy, Producer
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.producer.test_send_options import store_batch
from tests.scripted import Answering, ScriptedCluster, ignore, refuse, scripted_cluster, store

pytestmark = pytest.mark.usefixtures("jumping_clock")

SENDS = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
CODES = [ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER]
"""The codes of 4.9.7 and of 5.5.0."""


def with_queues(count: int, code: int = ResponseCode.INVALID_PARAMETER) -> Answering:
    """Return a broker with this number of queues."""

    def answer(connection: Connection, request: Command) -> None:
        if request.code in SENDS and int(request.fields["e"]) >= count:
            connection.respond(
                request, code, remark=f"request queueId[{request.fields['e']}] is illegal, ..."
            )
        else:
            store_batch(connection, request)

    return answer


def refused(cluster: ScriptedCluster, most: int) -> int:
    sends = [
        request for broker in cluster.brokers.values() for request in broker.requests if request.code in SENDS
    ]
    return sum(int(request.fields["e"]) >= most for request in sends)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("brokers", [1, 2])
async def test_sends_go_to_the_queues_that_are_left(code: int, brokers: int) -> None:
    async with (
        scripted_cluster(*[with_queues(4, code)] * brokers, queues=8) as cluster,
        Producer(cluster.address, retries=1) as producer,
    ):
        await producer.queues("T")
        cluster.topics["T"] = (4, 4, 6)
        started = trio.current_time()
        results = [await producer.send(Message("T", b"x")) for _ in range(40)]
        assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
        assert trio.current_time() - started < 1
        assert refused(cluster, 4) == 1, "the first refusal refreshes the route"


async def test_pipelined_and_batched_sends_go_to_the_queues_that_are_left() -> None:
    async with (
        scripted_cluster(with_queues(4), queues=8) as cluster,
        Producer(cluster.address, retries=1) as producer,
        Producer(BorrowedClient(core_of(producer)), group="b", linger=0.005) as batching,
    ):
        await producer.queues("T")
        cluster.topics["T"] = (4, 4, 6)
        pending = [await producer.submit(Message("T", b"x")) for _ in range(40)]
        batched = [await batching.submit(Message("T", b"x")) for _ in range(40)]
        for one in (*pending, *batched):
            assert (await one).queue.queue_id < 4
        questions = [one for one in cluster.name_server.requests if one.fields["topic"] == "T"]
        assert len(questions) == 2, "they share a refresh"


async def test_a_selector_chooses_again_and_a_queue_of_the_caller_is_refused() -> None:
    offered: list[int] = []

    def last(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
        offered.append(len(queues))
        return queues[-1]

    async with scripted_cluster(with_queues(4), queues=8) as cluster, Producer(cluster.address) as producer:
        queues = await producer.queues("T")
        cluster.topics["T"] = (4, 4, 6)
        result = await producer.send(Message("T", b"x"), queue=last)
        assert result.queue.queue_id == 3
        assert offered == [8, 4]
        with pytest.raises(RetriableBrokerError, match=r"queueId\[7\] is illegal") as caught:
            await producer.send(Message("T", b"x"), queue=queues[7])
        assert caught.value._queue_gone
        assert refused(cluster, 4) == 2


async def test_waiting_for_a_new_route_leads_to_no_attempt_after_the_timeout() -> None:
    attempts: list[float] = []

    def unavailable(connection: Connection, request: Command) -> None:
        if request.code in SENDS:
            attempts.append(trio.current_time())
        refuse(ResponseCode.SERVICE_NOT_AVAILABLE)(connection, request)

    async with scripted_cluster(unavailable) as cluster, Producer(cluster.address) as producer:
        await producer.queues("T")
        cluster.name_server.answer = ignore
        started = trio.current_time()
        with pytest.raises(RetriableBrokerError) as caught:
            await producer.send(Message("T", b"x"), timeout=0.15)
        assert caught.value.delivery is Delivery.REFUSED
        assert [round(attempt - started, 3) for attempt in attempts] == [0, 0.1]


async def test_a_gone_queue_is_no_fault_of_its_broker() -> None:
    async with (
        scripted_cluster(with_queues(4), queues=8) as cluster,
        Producer(cluster.address, latency_faults=LatencyFaultPolicy.JAVA_4) as producer,
    ):
        await producer.queues("T")
        cluster.topics["T"] = (4, 4, 6)
        for _ in range(8):
            await producer.send(Message("T", b"x"))
        assert producer._sender.faults is not None
        assert producer._sender.faults.all_clear


async def test_the_only_broker_is_tried_again_with_the_new_route() -> None:
    """The broker that the route names has lost its permission: another one has the topic now."""
    async with scripted_cluster(refuse(ResponseCode.NO_PERMISSION), store) as cluster:
        new = cluster.brokers.pop("broker-b")
        async with Producer(cluster.address, retries=1) as producer:
            await producer.queues("T")
            old = cluster.brokers.pop("broker-a")
            cluster.brokers["broker-b"] = new
            result = await producer.send(Message("T", b"x"))
            assert result.queue.broker_name == "broker-b"
            assert len(old.asked(RequestCode.SEND_MESSAGE_V2)) == 1


async def test_a_retry_does_not_wait_long_for_name_servers() -> None:
    async with scripted_cluster(with_queues(0)) as cluster, Producer(cluster.address) as producer:
        await producer.queues("T")
        cluster.name_server.answer = ignore
        started = trio.current_time()
        with pytest.raises(RetriableBrokerError, match=r"queueId\[\d\] is illegal"):
            await producer.send(Message("T", b"x"), timeout=10)
        assert trio.current_time() - started == pytest.approx(2, abs=0.1), "a second before each retry"
