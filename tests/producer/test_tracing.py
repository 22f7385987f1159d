from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py.client import core_of, tracing
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerError, UnsupportedByBrokerError
from rocketmq_py.message import Message
from rocketmq_py.names import TRACE_TOPIC
from rocketmq_py.producer import Producer, TransactionProducer
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.bodies import BrokerData, QueueData, TopicRoute
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.trace import ConsumeStartTrace, read_records
from rocketmq_py.remoting import Connection
from tests.producer.test_send_options import store_batch
from tests.producer.transacting import ASKS, ENDS, ROLLBACK, UNKNOWN, always, stored, working
from tests.scripted import ScriptedCluster, scripted_cluster, store

TOPICS = ["T", "TBW102", TRACE_TOPIC]


def traces(cluster: ScriptedCluster, topic: str = TRACE_TOPIC) -> list[Command]:
    sends = cluster.brokers["broker-a"].asked(RequestCode.SEND_MESSAGE_V2)
    return [request for request in sends if request.fields["b"] == topic]


def records(cluster: ScriptedCluster) -> list[list[str]]:
    return [fields for request in traces(cluster) for fields in read_records(request.body)]


async def test_each_stored_message_has_a_trace_record() -> None:
    async with scripted_cluster(store_batch, topics=TOPICS) as cluster:
        async with Producer(cluster.address, group="g", trace=True) as producer:
            result = await producer.send(Message("T", b"12345", tags="A", keys="k1 k2"))
            await (await producer.submit(Message("T", b"x", delay_level=3)))
            await producer.send_batch([Message("T", b"a", keys="k3"), Message("T", b"b")])
            await producer.send_oneway(Message("T", b"x"))
        first, delayed, *batched = records(cluster)
        assert first[0] == "Pub"
        assert first[2:10] == [
            "DefaultRegion", "g", "T", result.message_id, "A", "k1 k2",
            cluster.brokers["broker-a"].address, "5",
        ]  # fmt: skip
        assert first[11:] == ["0", result.offset_message_id, "true"]
        assert delayed[11] == "3"
        assert [fields[7] for fields in batched] == ["k3", "null"]
        (request,) = traces(cluster)
        keys = decode_properties(request.fields["i"])["KEYS"].split()
        assert {result.message_id, "k1", "k2", "k3"} <= set(keys)


async def test_each_answered_recall_has_a_record() -> None:
    codes = [
        ResponseCode.SUCCESS,
        ResponseCode.ILLEGAL_OPERATION,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.SUCCESS,
    ]

    def answer(connection: Connection, request: Command) -> None:
        if request.code != RequestCode.RECALL_MESSAGE:
            store(connection, request)
            return
        code = codes.pop(0)
        connection.respond(request, code, {"msgId": "unique", "MSG_REGION": "region-1"}, remark="scripted")

    handle = RecallHandle("T", "broker-a", "1900000000000", "unique").encode()
    async with scripted_cluster(answer, topics=TOPICS) as cluster:
        async with Producer(cluster.address, group="g", trace=True) as producer:
            await producer.recall("T", handle)
            with pytest.raises(BrokerError, match="ILLEGAL_OPERATION"):
                await producer.recall("T", handle)
            with pytest.raises(UnsupportedByBrokerError, match="does not offer recalls"):
                await producer.recall("T", handle)
        async with Producer(cluster.address, group="g") as producer:
            await producer.recall("T", handle)
        recalls = records(cluster)
    assert [[kind, *rest] for kind, _, *rest in recalls] == [
        ["Recall", "region-1", "g", "T", "unique", "true"],
        ["Recall", "DefaultRegion", "g", "T", "unique", "false"],
    ]


async def test_the_record_of_a_recall_has_the_topic_without_the_namespace() -> None:
    def recalled(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.RECALL_MESSAGE:
            connection.respond(request, ResponseCode.SUCCESS, {"msgId": "unique"})
        else:
            store(connection, request)

    handle = RecallHandle("ns%T", "broker-a", "1900000000000", "unique").encode()
    async with scripted_cluster(recalled, topics=[*TOPICS, "ns%T"]) as cluster:
        async with Producer(cluster.address, group="g", trace=True, namespace="ns") as producer:
            await producer.recall("T", handle)
        ((_, _, _, group, topic, *_),) = records(cluster)
    assert (group, topic) == ("g", "T")


async def test_trace_messages_are_sent_by_a_group_of_the_namespace() -> None:
    """As Java's trace producer, which takes the namespace from the address."""
    topics = [*TOPICS, "ns%T", "ns%traces"]
    group = "g" * 120
    async with scripted_cluster(store, topics=topics) as cluster:
        for trace in (True, "traces"):
            async with Producer(cluster.address, group="g", trace=trace, namespace="ns") as producer:
                await producer.send(Message("T", b"x"))
        async with Producer(cluster.address, group=group, trace=True) as producer:
            await producer.send(Message("T", b"x"))
        with_namespace, own_topic = traces(cluster)[0], traces(cluster, "ns%traces")[0]
        for request in (with_namespace, own_topic):
            assert request.fields["a"] == "ns%_INNER_TRACE_PRODUCER-g"
            assert decode_properties(request.fields["i"])["INSTANCE_ID"] == "ns"
            (record,) = read_records(request.body)
            assert record[3:5] == ["g", "T"]
        without = traces(cluster)[1]
        assert without.fields["a"] == f"_INNER_TRACE_PRODUCER-{group}"[:120]
        assert "INSTANCE_ID" not in decode_properties(without.fields["i"])


async def test_a_long_group_of_a_namespace_can_be_traced() -> None:
    async with scripted_cluster(store, topics=[*TOPICS, "ns%T"]) as cluster:
        group = "g" * 117  # the longest one
        async with Producer(cluster.address, group=group, trace=True, namespace="ns") as producer:
            await producer.send(Message("T", b"x"))
        assert traces(cluster)[0].fields["a"] == f"ns%_INNER_TRACE_PRODUCER-{group}"[:120]


async def test_a_transaction_has_records_of_its_half_message_and_each_report() -> None:
    def check_unknown_transactions(connection: Connection, request: Command) -> None:
        if request.code == ENDS and request.fields.get("fromTransactionCheck") != "true":
            place = {"tranStateTableOffset": "7", "commitLogOffset": "70"}
            connection.oneway_nowait(ASKS, place, stored("asked over"))
        store(connection, request)

    async with scripted_cluster(check_unknown_transactions, topics=TOPICS) as cluster:
        async with TransactionProducer(
            cluster.address, group="g", check=always(ROLLBACK), trace=True
        ) as producer:
            sent = await producer.send_in_transaction(
                Message("T", b"12345", tags="A", keys="k1"), working(UNKNOWN)
            )
            with trio.fail_after(60):
                while not producer.transaction_statistics.checked:
                    await trio.sleep(0.01)
        half, *ends = records(cluster)
    assert (half[0], half[5], half[11]) == ("Pub", sent.result.message_id, "1")
    broker = cluster.brokers["broker-a"].address
    assert [[record[0], *record[2:]] for record in ends] == [
        ["EndTransaction", "DefaultRegion", "g", "T", message_id, tags, keys, broker, "2", of, *state]
        for message_id, tags, keys, of, *state in (
            (sent.result.message_id, "A", "k1", sent.result.message_id, "UNKNOW", "false"),
            ("asked over", "null", "null", "", "ROLLBACK_MESSAGE", "true"),
        )
    ]


async def test_a_broker_with_traces_switched_off_gets_none() -> None:
    def no_traces(connection: Connection, request: Command) -> None:
        fields = {"msgId": "id", "queueId": "0", "queueOffset": "1", "TRACE_ON": "false"}
        connection.respond(request, ResponseCode.SUCCESS, fields)

    async with scripted_cluster(no_traces, topics=TOPICS) as cluster:
        async with Producer(cluster.address, trace=True) as producer:
            await producer.send(Message("T", b"x"))
            await producer.send_batch([Message("T", b"x")])
        assert traces(cluster) == []


def store_in_region(region: str, **fields: str) -> Callable[[Connection, Command], None]:
    """Return a broker of a cloud, which stores messages and names its region."""

    def answer(connection: Connection, request: Command) -> None:
        stored_at = {"msgId": "00" * 16, "queueId": request.fields.get("e", "0"), "queueOffset": "1"}
        connection.respond(request, ResponseCode.SUCCESS, {**stored_at, "MSG_REGION": region, **fields})

    return answer


def traces_by_topic(cluster: ScriptedCluster) -> dict[str, set[str]]:
    """Return the ids of the traced messages, by the topic of the trace."""
    found: dict[str, set[str]] = {}
    for broker in cluster.brokers.values():
        for request in broker.asked(RequestCode.SEND_MESSAGE_V2):
            if request.fields["b"] != "T":
                ids = {fields[5] for fields in read_records(request.body)}
                found.setdefault(request.fields["b"], set()).update(ids)
    return found


async def test_records_of_a_cloud_go_to_the_topic_of_the_region_in_the_answer() -> None:
    regions = [f"rmq_sys_TRACE_DATA_{region}" for region in ("east", "west", "DefaultRegion")]
    brokers = (store_in_region("east"), store_in_region("west"), store)
    async with scripted_cluster(*brokers, topics=["T", *regions]) as cluster:
        sent: dict[str, set[str]] = {name: set() for name in cluster.brokers}
        async with Producer(cluster.address, trace="cloud") as producer:
            for _ in range(24):
                result = await producer.send(Message("T", b"x"))
                sent[result.queue.broker_name].add(result.message_id)
        assert traces_by_topic(cluster) == dict(zip(regions, sent.values(), strict=True))


async def test_records_of_a_cloud_are_not_sent_if_the_answer_switches_traces_off() -> None:
    no_traces = store_in_region("east", TRACE_ON="false")
    async with scripted_cluster(no_traces, topics=["T", "rmq_sys_TRACE_DATA_east"]) as cluster:
        async with Producer(cluster.address, trace="cloud") as producer:
            await producer.send(Message("T", b"x"))
        assert traces_by_topic(cluster) == {}


async def test_messages_to_the_trace_topics_of_a_cloud_are_not_traced() -> None:
    topic = "rmq_sys_TRACE_DATA_east"
    async with (
        scripted_cluster(store_in_region("east"), topics=["T", topic]) as cluster,
        Producer(cluster.address, trace="cloud") as producer,
    ):
        await producer.send(Message(topic, b"x"))
        assert producer._tracing is not None
        assert producer._tracing._records == {}


async def test_records_of_a_cloud_have_the_names_of_the_namespace_and_the_fields_of_namespace_2() -> None:
    topics = ["ns%T", "rmq_sys_TRACE_DATA_east"]
    async with scripted_cluster(store_in_region("east"), topics=topics) as cluster:
        async with Producer(
            cluster.address, group="g", trace="cloud", namespace="ns", namespace_v2="instance"
        ) as producer:
            await producer.send(Message("T", b"x"))
        (request,) = traces(cluster, "rmq_sys_TRACE_DATA_east")
        (record,) = read_records(request.body)
    assert request.fields["a"] == "ns%_INNER_TRACE_PRODUCER-g"
    assert (request.fields["ns"], request.fields["nsd"]) == ("instance", "true")
    assert record[2:5] == ["east", "g", "T"]


async def test_records_of_a_cloud_go_to_writable_queues_only() -> None:
    topic = "rmq_sys_TRACE_DATA_east"
    brokers = (store_in_region("east"), store_in_region("east"))
    async with scripted_cluster(*brokers, topics=["T", topic]) as cluster:

        def readable_on_a(connection: Connection, request: Command) -> None:
            if request.fields["topic"] != topic:
                cluster.route(connection, request)
                return
            queues = [
                QueueData(broker_name=name, read_queue_nums=4, write_queue_nums=4, perm=perm)
                for name, perm in (("broker-a", 4), ("broker-b", 6))
            ]
            brokers = [
                BrokerData(cluster="c", broker_name=name, announced={0: one.address})
                for name, one in cluster.brokers.items()
            ]
            route = TopicRoute(queue_datas=tuple(queues), broker_datas=tuple(brokers))
            connection.respond(request, ResponseCode.SUCCESS, {}, route.encode())

        cluster.name_server.answer = readable_on_a
        async with Producer(cluster.address, trace="cloud") as producer:
            dispatcher = producer._tracing
            assert dispatcher is not None
            for _ in range(8):
                await producer.send(Message("T", b"x"))
                await dispatcher.flush()
        assert dispatcher.dropped == 0
        stored = {
            name: sum(request.fields["b"] == topic for request in broker.asked(RequestCode.SEND_MESSAGE_V2))
            for name, broker in cluster.brokers.items()
        }
    assert stored == {"broker-a": 0, "broker-b": 8}


async def test_a_region_that_is_no_part_of_a_topic_does_not_affect_sends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        scripted_cluster(store_in_region("no region!"), topics=["T"]) as cluster,
        Producer(cluster.address, trace="cloud") as producer,
    ):
        await producer.send(Message("T", b"x"))
        dispatcher = producer._tracing
    assert dispatcher is not None
    assert dispatcher.dropped == 1
    assert "topic=rmq_sys_TRACE_DATA_no region! lost=1 error=topic" in caplog.text


async def test_the_end_of_a_transaction_is_traced_in_the_region_of_its_half_message() -> None:
    topic = "rmq_sys_TRACE_DATA_east"
    async with scripted_cluster(store_in_region("east"), topics=["T", topic]) as cluster:
        async with TransactionProducer(
            cluster.address, group="g", check=always(ROLLBACK), trace="cloud"
        ) as producer:
            await producer.send_in_transaction(Message("T", b"x"), working(UNKNOWN))
        (request,) = traces(cluster, topic)
        assert [fields[0] for fields in read_records(request.body)] == ["Pub", "EndTransaction"]
    no_traces = store_in_region("east", TRACE_ON="false")
    async with scripted_cluster(no_traces, topics=TOPICS) as cluster:
        async with TransactionProducer(
            cluster.address, group="g", check=always(ROLLBACK), trace=True
        ) as producer:
            await producer.send_in_transaction(Message("T", b"x"), working(UNKNOWN))
        assert traces(cluster) == []


async def test_records_are_sent_in_groups_in_the_background(jumping_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_cluster(store, topics=[*TOPICS, "mine"]) as cluster,
        Producer(cluster.address, trace="mine") as producer,
    ):
        for _ in range(tracing.MAX_RECORDS - 1):
            await producer.send(Message("T", b"x"))
        assert traces(cluster, "mine") == []
        await trio.sleep(tracing.FLUSH_INTERVAL + 0.1)
        assert len(traces(cluster, "mine")) == 1
        for _ in range(tracing.MAX_RECORDS):
            await producer.send(Message("T", b"x"))
        await trio.sleep(0.1)
        assert len(traces(cluster, "mine")) == 2


async def test_closing_waits_for_records_that_are_being_sent(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store, topics=TOPICS) as cluster, trio.open_nursery() as nursery:

        async def route_later(connection: Connection, request: Command) -> None:
            await trio.sleep(1)
            cluster.route(connection, request)

        def delay_the_route_of_traces(connection: Connection, request: Command) -> None:
            if request.fields.get("topic") == TRACE_TOPIC:
                nursery.start_soon(route_later, connection, request)
            else:
                cluster.route(connection, request)

        cluster.name_server.answer = delay_the_route_of_traces
        async with Producer(cluster.address, trace=True) as producer:
            for _ in range(tracing.MAX_RECORDS):
                await producer.send(Message("T", b"x"))
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(records(cluster)) == tracing.MAX_RECORDS


async def test_a_failing_trace_topic_does_not_affect_sends(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse_traces(connection: Connection, request: Command) -> None:
        if request.fields.get("b") == TRACE_TOPIC:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="full")
        else:
            store(connection, request)

    async with scripted_cluster(refuse_traces, topics=TOPICS) as cluster:
        async with Producer(cluster.address, trace=True) as producer:
            await producer.send(Message("T", b"x"))
        assert len(traces(cluster)) == 2
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "trace records lost: group=DEFAULT_PRODUCER" in warning.message
    assert "full" in warning.message


async def test_records_that_a_broker_refuses_go_to_another(jumping_clock: trio.testing.MockClock) -> None:
    def refuse_traces(connection: Connection, request: Command) -> None:
        if request.fields.get("b") == TRACE_TOPIC:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="full")
        else:
            store(connection, request)

    async with scripted_cluster(refuse_traces, store, topics=TOPICS) as cluster:
        async with Producer(cluster.address) as producer:
            dispatcher = tracing.TraceDispatcher(core_of(producer), "g")
            for _ in range(8):  # one for each queue of both brokers
                dispatcher.append(consumed("id"))
                await dispatcher.flush()
        assert dispatcher.dropped == 0


async def test_a_trace_topic_without_writable_queues_does_not_affect_sends(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_cluster(store, topics=TOPICS) as cluster:
        cluster.topics[TRACE_TOPIC] = (4, 4, 4)
        async with Producer(cluster.address, trace=True) as producer:
            for _ in range(tracing.MAX_RECORDS):
                await producer.send(Message("T", b"x"))
            await trio.sleep(1)
            await producer.send(Message("T", b"x"))
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "trace records lost: group=DEFAULT_PRODUCER topic=RMQ_SYS_TRACE_TOPIC lost=20 "
        "error=topic 'RMQ_SYS_TRACE_TOPIC' has no queue that may be written to and has a master"
    ]


async def test_a_missing_trace_topic_is_looked_up_at_most_every_five_seconds(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_cluster(store, topics=["T"]) as cluster:
        async with Producer(cluster.address, trace=True) as producer:
            for _ in range(100):  # in ten seconds
                for _ in range(tracing.MAX_RECORDS):
                    await producer.send(Message("T", b"x"))
                await trio.sleep(0.1)
            dispatcher = producer._tracing
            assert dispatcher is not None
            questions = [one.fields.get("topic") for one in cluster.name_server.requests]
            assert questions.count(TRACE_TOPIC) <= 3
            assert dispatcher.dropped == 100 * tracing.MAX_RECORDS
            cluster.topics[TRACE_TOPIC] = (4, 4, 6)
            await trio.sleep(tracing.LOOKUP_INTERVAL)
            await producer.send(Message("T", b"x"))
        assert len(records(cluster)) == 1
    assert "topic 'RMQ_SYS_TRACE_TOPIC' does not exist" in caplog.text


def consumed(message_id: str) -> ConsumeStartTrace:
    return ConsumeStartTrace(
        timestamp_ms=1, region="R", group="g", request_id="r", message_id=message_id, retries=0, keys="k"
    )


async def test_message_ids_of_other_clients_may_contain_characters_that_keys_may_not() -> None:
    async with scripted_cluster(store, topics=TOPICS) as cluster, Producer(cluster.address) as producer:
        dispatcher = tracing.TraceDispatcher(core_of(producer), "g")
        for message_id in ("an id", "another\x01one\x02", " "):
            dispatcher.append(consumed(message_id))
        await dispatcher.flush()
        (request,) = traces(cluster)
        assert decode_properties(request.fields["i"])["KEYS"].split() == ["an", "id", "k", "another", "one"]


async def test_an_invalid_record_is_logged_and_tracing_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted_cluster(store, topics=TOPICS) as cluster, Producer(cluster.address) as producer:
        dispatcher = tracing.TraceDispatcher(core_of(producer), "g")
        dispatcher.append(object())  # type: ignore[arg-type]  # some fault of ours
        dispatcher.append(consumed("id"))
        await dispatcher.flush()
        assert dispatcher.dropped == 1
        assert decode_properties(traces(cluster)[0].fields["i"])["KEYS"] == "id k"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_records_with_large_keys_take_several_messages(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_cluster(store, topics=TOPICS) as cluster:
        async with Producer(cluster.address, trace=True) as producer:
            for number in range(20):
                await producer.send(Message("T", b"x", keys=f"{number}-" + "k" * 2000))
            dispatcher = producer._tracing
        assert dispatcher is not None
        assert dispatcher.dropped == 0
        assert len(records(cluster)) == 20
        keys = [
            key
            for request in traces(cluster)
            for key in decode_properties(request.fields["i"])["KEYS"].split()
            if "-" in key
        ]
        assert [key.partition("-")[0] for key in keys] == [str(number) for number in range(20)]
        assert len(traces(cluster)) == 2
    assert caplog.messages == []


async def test_a_record_with_too_large_keys_is_sent_with_those_that_fit() -> None:
    async with scripted_cluster(store, topics=TOPICS) as cluster, Producer(cluster.address) as producer:
        dispatcher = tracing.TraceDispatcher(core_of(producer), "g")
        large = "é" * 20_000  # 40,000 bytes
        dispatcher.append(attrs.evolve(consumed("before"), keys="k"))
        dispatcher.append(attrs.evolve(consumed("id"), keys=f"first {large} last"))
        dispatcher.append(attrs.evolve(consumed("after"), keys="k"))
        await dispatcher.flush()
        assert dispatcher.dropped == 0
        assert [decode_properties(request.fields["i"])["KEYS"] for request in traces(cluster)] == [
            "before k",
            "id first last after k",
        ]
        assert [fields[7] for fields in records(cluster)] == ["k", f"first {large} last", "k"]


async def test_records_that_a_closing_producer_cannot_send_are_counted_and_logged(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def hold_traces(connection: Connection, request: Command) -> None:
        if request.fields.get("b") != TRACE_TOPIC:
            store(connection, request)

    async with (
        scripted_cluster(hold_traces, topics=TOPICS) as cluster,
        Producer(cluster.address, trace=True, close_timeout=1) as producer,
    ):
        for _ in range(tracing.MAX_RECORDS + 5):
            await producer.send(Message("T", b"x"))
        dispatcher = producer._tracing
    assert dispatcher is not None
    assert dispatcher.dropped == tracing.MAX_RECORDS + 5
    assert [text for text in caplog.messages if "trace records lost" in text] == [
        "trace records lost: group=DEFAULT_PRODUCER topic=RMQ_SYS_TRACE_TOPIC lost=25 "
        "error=closed before the records were sent"
    ]


async def test_unsent_records_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address, trace=True) as producer:
        dispatcher = tracing.TraceDispatcher(core_of(producer), "g")
        record = object()
        for _ in range(tracing.MAX_BUFFERED_RECORDS + 5):
            dispatcher.append(record)  # type: ignore[arg-type]  # it is not looked at
        assert dispatcher.dropped == 5
    assert "trace records lost: group=g topic=RMQ_SYS_TRACE_TOPIC lost=1" in caplog.text
