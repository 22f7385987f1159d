from __future__ import annotations

import zlib

import attrs
import msgspec
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    BrokerError,
    ClosedError,
    Delivery,
    InvalidMessageError,
    ReplyTimeoutError,
    RequestTimeoutError,
    SendForbiddenError,
)
from rocketmq_py.hooks import RpcHook
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage, SendResult
from rocketmq_py.producer import PendingReply, Producer, ProducerHook, SendContext, SendMode
from rocketmq_py.properties import decode_properties, encode_properties
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PushReplyMessageRequest
from rocketmq_py.protocol.reply import reply_message
from rocketmq_py.remoting import Connection
from tests.cancelling import cancel_at_each_await
from tests.scripted import ignore, refuse, scripted_cluster, store

MESSAGE = Message("T", b"question")
SENDS = RequestCode.SEND_MESSAGE_V2


def push(properties: dict[str, str], body: bytes, system_flag: int = 0) -> PushReplyMessageRequest:
    return PushReplyMessageRequest(
        producer_group="repliers",
        topic="c_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=system_flag,
        born_timestamp=1_700_000_000_000,
        flag=3,
        properties=encode_properties({**properties, "MSG_TYPE": "reply"}),
        born_host="127.0.0.1:4321",
        store_host="127.0.0.1:10911",
        store_timestamp=1_700_000_000_001,
    )


@attrs.define(eq=False)
class Replier:
    """A broker with a consumer that replies to each request, ``times`` times."""

    times: int = 1
    before_the_answer: bool = False
    system_flag: int = 0
    heartbeats_before: list[int] = attrs.field(factory=list)
    heartbeats: int = 0

    def answer(self, connection: Connection, request: Command) -> None:
        if request.code == RequestCode.HEART_BEAT:
            self.heartbeats += 1
        if request.code != SENDS:
            store(connection, request)
            return
        self.heartbeats_before.append(self.heartbeats)
        if not self.before_the_answer:
            store(connection, request)
        properties = decode_properties(request.fields["i"])
        body = b"answer to " + request.body
        if self.system_flag:
            body = zlib.compress(body)
        for _ in range(self.times):
            header = push({"CORRELATION_ID": properties["CORRELATION_ID"]}, body, self.system_flag)
            connection.submit(
                header.code,
                header.to_fields(),
                body,
                deadline=trio.current_time() + 5,
                timeout=5,
                on_answer=lambda _: None,
            )
        if self.before_the_answer:
            store(connection, request)


@pytest.mark.parametrize("replier", [Replier(), Replier(before_the_answer=True), Replier(system_flag=1)])
async def test_the_reply_is_returned_and_never_the_request(replier: Replier) -> None:
    async with scripted_cluster(replier.answer) as cluster:
        async with Producer(cluster.address) as producer:
            reply = await producer.request(MESSAGE, timeout=20.0)
            assert (reply.body, reply.topic, reply.flag) == (b"answer to question", "c_REPLY_TOPIC", 3)
            assert (reply.born_host, reply.store_host) == ("127.0.0.1:4321", "127.0.0.1:10911")
            assert int(reply.properties["ARRIVE_TIME"]) > 0
            assert not reply.system_flag
            assert producer.in_flight == 0
            client_id = core_of(producer).client_id
        (request,) = cluster.brokers["broker-a"].asked(SENDS)
        properties = decode_properties(request.fields["i"])
        assert (properties["REPLY_TO_CLIENT"], properties["TTL"]) == (client_id, "20000")
        assert properties["CORRELATION_ID"] == reply.properties["CORRELATION_ID"]
    assert replier.heartbeats_before[0] >= 1, "a broker pushes replies only to clients that it knows"


async def test_each_of_many_requests_gets_its_own_reply(autojump_clock: object) -> None:
    async with (
        scripted_cluster(Replier().answer, Replier().answer) as cluster,
        Client(cluster.address) as client,
        client.producer("one") as one,
        client.producer("two") as two,
    ):
        done: list[PendingReply] = []
        pending = [
            (number, await producer.submit_request(Message("T", b"%d" % number)))
            for number in range(100)
            for producer in (one, two)
        ]
        for _, reply in pending:
            reply.add_done_callback(done.append)
        for number, reply in pending:
            assert (await reply).body == b"answer to %d" % number
            assert reply.sent is None or reply.sent.queue.topic == "T"
        assert sorted(done, key=id) == sorted((reply for _, reply in pending), key=id), "once for each"
        assert (one.statistics.sent, two.statistics.sent) == (100, 100)


async def test_repeated_replies_are_dropped_and_counted() -> None:
    async with scripted_cluster(Replier(times=3).answer) as cluster, Producer(cluster.address) as producer:
        called: list[ReceivedMessage] = []
        pending = await producer.submit_request(MESSAGE)
        pending.add_done_callback(lambda one: called.append(one.result()))
        await pending
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(called) == 1
        assert producer.statistics.late_replies == 2


async def test_the_error_without_a_reply_has_the_result_of_the_request(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        start = trio.current_time()
        with pytest.raises(ReplyTimeoutError, match=r"no reply within 2 s .* topic 'T', stored in") as caught:
            await producer.request(MESSAGE, timeout=2)
        assert trio.current_time() - start == pytest.approx(2, abs=0.11)
        assert caught.value.sent is not None
        assert producer.in_flight == 0


async def test_a_late_reply_is_dropped_and_counted(jumping_clock: trio.testing.MockClock) -> None:
    asked: list[tuple[Connection, Command]] = []

    def keep(connection: Connection, request: Command) -> None:
        asked.append((connection, request))
        store(connection, request)

    async with scripted_cluster(keep) as cluster, Producer(cluster.address) as producer:
        with pytest.raises(ReplyTimeoutError):
            await producer.request(MESSAGE)
        Replier().answer(*asked[-1])
        await trio.sleep(1)
        assert producer.statistics.late_replies == 1


async def test_a_request_that_cannot_be_sent_fails_with_the_reason(
    jumping_clock: trio.testing.MockClock,
) -> None:
    answer = refuse(ResponseCode.MESSAGE_ILLEGAL)
    async with scripted_cluster(answer) as cluster, Producer(cluster.address) as producer:
        with pytest.raises(BrokerError, match="MESSAGE_ILLEGAL"):
            await producer.request(MESSAGE)
        failed: list[PendingReply] = []
        pending = await producer.submit_request(MESSAGE)
        pending.add_done_callback(failed.append)
        with pytest.raises(BrokerError):
            await pending
        assert failed == [pending]
        assert (producer.statistics.sent, producer.statistics.failed) == (0, 2)
    async with scripted_cluster(ignore) as cluster, Producer(cluster.address) as producer:
        with pytest.raises((RequestTimeoutError, ReplyTimeoutError)):
            await producer.request(MESSAGE)


async def test_closing_fails_waiting_requests(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address) as producer:
            pending = await producer.submit_request(MESSAGE, timeout=1000)
        with pytest.raises(ClosedError) as caught:
            await pending
        assert caught.value.delivery is Delivery.UNKNOWN
        assert (producer.in_flight, producer.statistics.sent, producer.statistics.failed) == (0, 1, 0)


async def test_closing_fails_requests_that_were_not_sent(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(ignore) as cluster:
        async with Producer(cluster.address) as producer:
            pending = await producer.submit_request(MESSAGE, timeout=1000)
        with pytest.raises(ClosedError):
            await pending
        assert (producer.in_flight, producer.statistics.sent, producer.statistics.failed) == (0, 0, 1)


async def test_cancelled_request_leaks_nothing() -> None:
    async with scripted_cluster(Replier().answer) as cluster, Producer(cluster.address) as producer:

        async def check() -> None:
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert producer.in_flight == 0
            assert producer._replies._waiting == {}

        assert await cancel_at_each_await(lambda: producer.request(MESSAGE), check) >= 2


async def test_a_request_that_is_cancelled_before_the_answer_of_the_broker_counts_as_sent() -> None:
    """Its hooks run, too."""
    sends: list[tuple[Connection, Command]] = []
    has_arrived, hook_ran = trio.Event(), trio.Event()
    results: list[SendResult] = []

    def keep(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.SEND_MESSAGE_V2:
            sends.append((connection, request))
            has_arrived.set()
        else:
            store(connection, request)

    class Hook(ProducerHook):
        def after_send(self, context: SendContext) -> None:
            results.extend(context.results)
            hook_ran.set()

    async with scripted_cluster(keep) as cluster, Producer(cluster.address) as producer:
        producer.add_hook(Hook())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.request, MESSAGE)
            await has_arrived.wait()
            nursery.cancel_scope.cancel()
        store(*sends[0])
        with trio.fail_after(60):
            await hook_ran.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert (len(results), producer.statistics.sent, producer.in_flight) == (1, 1, 0)


async def test_flush_does_not_wait_for_a_cancelled_request(autojump_clock: object) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address, group="g") as producer:
        await producer.send(MESSAGE)
        async with trio.open_nursery() as nursery:
            asking = trio.CancelScope()

            async def ask() -> None:
                with asking:
                    await producer.request(MESSAGE, timeout=60)

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(producer.flush)
            await trio.testing.wait_all_tasks_blocked()
            asking.cancel()
            with trio.fail_after(1):
                while len(nursery.child_tasks):
                    await trio.sleep(0.1)


async def test_a_reply_to_another_producer_is_not_accepted() -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        await producer.send(MESSAGE)
        (connection,) = cluster.brokers["broker-a"].connections
        header = push({"CORRELATION_ID": "somebody-else-1"}, b"")
        answer = await connection.request(header.code, header.to_fields(), b"x", timeout=3)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert producer.statistics.late_replies == 0


def received(properties: dict[str, str]) -> ReceivedMessage:
    return ReceivedMessage(
        "T", b"question", "broker-b", 1, 5, 500, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, 0, 100,
        encode_properties(properties).encode(),
    )  # fmt: skip


def answer_send(connection: Connection, request: Command) -> None:
    connection.respond(request, 0, {"msgId": "0", "queueId": "0", "queueOffset": "0"})


ASKED = {"CLUSTER": "c", "CORRELATION_ID": "id-1", "REPLY_TO_CLIENT": "client-1", "TTL": "3000"}


async def test_a_reply_goes_to_the_broker_of_the_request() -> None:
    async with scripted_cluster(answer_send, answer_send, topics=["c_REPLY_TOPIC"], queues=1) as cluster:
        async with Producer(cluster.address) as producer:
            await producer.reply(received(ASKED), b"answer", properties={"language": "fr"})
        (request,) = cluster.brokers["broker-b"].asked(RequestCode.SEND_REPLY_MESSAGE_V2)
        assert (request.body, request.fields["b"]) == (b"answer", "c_REPLY_TOPIC")
        properties = decode_properties(request.fields["i"])
        wanted = {name: value for name, value in ASKED.items() if name != "CLUSTER"}
        wanted |= {"MSG_TYPE": "reply", "language": "fr"}
        assert {name: properties[name] for name in wanted} == wanted


async def test_hooks_see_a_reply_and_may_replace_it() -> None:
    class Hook(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            contexts.append(context)
            context.messages[0] = attrs.evolve(context.messages[0], body=b"another")

    contexts: list[SendContext] = []
    async with scripted_cluster(store, answer_send, topics=["c_REPLY_TOPIC"], queues=1) as cluster:
        async with Producer(cluster.address) as producer:
            producer.add_hook(Hook())
            result = await producer.reply(received(ASKED), b"answer")
        (request,) = cluster.brokers["broker-b"].asked(RequestCode.SEND_REPLY_MESSAGE_V2)
    assert request.body == b"another"
    assert decode_properties(request.fields["i"])["CORRELATION_ID"] == "id-1"
    assert [(context.mode, context.results) for context in contexts] == [(SendMode.AWAITED, (result,))]


async def test_a_hook_can_forbid_a_reply() -> None:
    class Forbid(ProducerHook):
        def check_forbidden(self, context: SendContext) -> None:
            raise PermissionError("not today")

    async with scripted_cluster(store, store, topics=["c_REPLY_TOPIC"]) as cluster:
        async with Producer(cluster.address) as producer:
            producer.add_hook(Forbid())
            with pytest.raises(SendForbiddenError, match="not today"):
                await producer.reply(received(ASKED), b"answer")
        assert not cluster.brokers["broker-b"].asked(RequestCode.SEND_REPLY_MESSAGE_V2)


async def test_the_reply_topic_has_no_namespace() -> None:
    # No TBW102: topics are not created here.
    async with scripted_cluster(answer_send, answer_send, topics=["c_REPLY_TOPIC"], queues=1) as cluster:
        async with Producer(cluster.address, namespace="tenant") as producer:
            await producer.reply(received(ASKED), b"answer")
        (request,) = cluster.brokers["broker-b"].asked(RequestCode.SEND_REPLY_MESSAGE_V2)
        assert request.fields["b"] == "c_REPLY_TOPIC"


async def test_a_message_that_is_not_a_request_cannot_be_replied_to() -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        for missing in ASKED:
            message = received({name: value for name, value in ASKED.items() if name != missing})
            with pytest.raises(InvalidMessageError, match=f"lacks the properties {missing}"):
                await producer.reply(message, b"answer")


async def test_a_reply_cannot_set_properties_of_rocketmq() -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        with pytest.raises(InvalidMessageError, match="CORRELATION_ID"):
            await producer.reply(received(ASKED), b"answer", properties={"CORRELATION_ID": "another"})


@pytest.mark.parametrize("hooks", ["none", "around sends", "around requests"])
async def test_a_request_whose_first_attempt_fails_is_retried(hooks: str) -> None:
    replier, answers = Replier(), [refuse(ResponseCode.SYSTEM_ERROR)]
    question = Message("T", b"question" * 1000)  # it is compressed

    def answer(connection: Connection, request: Command) -> None:
        (answers.pop() if answers and request.code == SENDS else replier.answer)(connection, request)

    def note(context: SendContext) -> None:
        seen.append(context)

    seen: list[SendContext] = []
    async with scripted_cluster(answer) as cluster, Producer(cluster.address) as producer:
        if hooks == "around sends":
            hook = ProducerHook()
            hook.after_send = note  # type: ignore[method-assign]  # the shortest hook
            producer.add_hook(hook)
        elif hooks == "around requests":
            core_of(producer).add_rpc_hook(RpcHook())
        for _ in range(2):  # before the brokers know this client, and after
            reply = await producer.request(question)
            assert zlib.decompress(reply.body.removeprefix(b"answer to ")) == question.body
        assert producer.statistics.retried == 1
        assert producer.in_flight == 0
    assert [(context.error, len(context.results)) for context in seen] == [(None, 1)] * len(seen)
    assert len(seen) == (2 if hooks == "around sends" else 0)


async def test_a_request_whose_selector_raises_does_not_wait_for_a_reply() -> None:
    def broken(queues: object, message: Message) -> MessageQueue:
        raise LookupError("no such shard")

    async with scripted_cluster(Replier().answer) as cluster, Producer(cluster.address) as producer:
        await producer.request(MESSAGE)
        with pytest.raises(LookupError, match="no such shard"):
            await producer.submit_request(MESSAGE, queue=broken)
        assert producer.in_flight == 0


@pytest.mark.parametrize(
    "host", ["::1:4321", "0:0:0:0:0:0:0:1:4321", "[::1]:4321", "/[0:0:0:0:0:0:0:1]:4321", "host/::1:4321"]
)
async def test_a_reply_has_an_ipv6_born_host(host: str) -> None:
    header = msgspec.structs.replace(push({}, b""), born_host=host, store_host="::1:10911")
    reply = reply_message(header, b"answer", 1)
    assert (reply.born_host, reply.store_host) == ("[::1]:4321", "[::1]:10911")


@pytest.mark.parametrize("host", ["", "broker-a:10911", "127.0.0.1:-1"])
async def test_a_reply_without_a_readable_address_is_delivered(host: str) -> None:
    header = push({}, b"")
    reply = reply_message(msgspec.structs.replace(header, born_host=host), b"answer", 1)
    assert (reply.body, reply.born_host, reply.store_host) == (b"answer", "0.0.0.0:0", "127.0.0.1:10911")


async def test_a_request_that_expires_before_it_is_written_was_not_sent() -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address, group="g") as producer:
        cluster.name_server.answer = ignore
        pending = await producer.submit_request(MESSAGE)
        (waiting,) = producer._replies._waiting.values()
        for _ in range(2):  # the second has no effect
            waiting.expire()
        with pytest.raises(ReplyTimeoutError) as caught:
            await pending
        assert caught.value.delivery is Delivery.NOT_SENT
