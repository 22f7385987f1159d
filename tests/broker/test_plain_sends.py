"""The fast path for plain sends gives the same results as the general send processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from rocketmq_py.address import split_address
from rocketmq_py.broker import BrokerConfig, EmbeddedBroker
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.command import Command, encode_request
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.protocol.typed_sends import SendCommand
from rocketmq_py.remoting import Connection
from tests.broker.offline import Answer, OfflineBroker

CODE = int(RequestCode.SEND_MESSAGE_V2)
FIELDS = {
    "a": "G", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1690000000000", "h": "7",
    "i": "UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01A\x02", "j": "0", "k": "false", "m": "false", "n": "b",
}  # fmt: skip
MAX_MESSAGE_SIZE = 10

Send: TypeAlias = tuple[dict[str, str], bytes]


class SendTarget:
    """A broker and its client. With ``fast``, sends go to the broker's fast path first."""

    def __init__(self, *, fast: bool) -> None:
        self.broker = OfflineBroker(BrokerConfig(max_message_size=MAX_MESSAGE_SIZE))
        topics = self.broker.broker.state.topics
        topics.put(TopicConfig("T", 4, 4))
        topics.put(TopicConfig("%RETRY%G", 4, 4))
        topics.put(TopicConfig("narrow", 1, 2))
        topics.put(TopicConfig("ordered", 4, 4, order=True))
        self.client = self.broker.connect()
        self._fast = fast
        self._decoder = FrameDecoder(decodes_send_requests=True)
        self._decoder.feed_typed(encode_request(CODE, 0, FIELDS))

    def send(self, send: Send) -> bool:
        """Send a message. Returns whether the fast path handled it."""
        (request,) = self._decoder.feed_typed(encode_request(CODE, 5, *send))
        connection = cast(Connection, self.client)
        if isinstance(request, SendCommand):
            handler = self.broker.broker.send_handler
            assert handler is not None
            frame = handler(connection, request) if self._fast else None
            if frame is not None:
                (answer,) = FrameDecoder().feed(frame)
                self.client.answers.append(
                    Answer(answer.opaque, answer.code, answer.fields, answer.body, answer.remark)
                )
                return True
            request = request.as_command()
        assert isinstance(request, Command)
        self.broker.broker.dispatch(connection, request)
        return False

    def delete(self, topic: str) -> None:
        self.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})

    def stored(self) -> list[tuple[bytes, int]]:
        log = self.broker.broker.state.store.log
        return [(message.data, message.tags_code) for message in log.slice(log.start, log.end)]

    @property
    def queues(self) -> list[str]:
        store = self.broker.broker.state.store
        return [repr(store.find_queue("T", queue_id)) for queue_id in range(4)]


_NUMBERS = st.sampled_from(
    ["0", "1", "3", "4", "-1", "+1", "00", " 2", "1_0", "²", "٣", "x", "", "1.0", "9" * 30]
)
_PIECES = st.sampled_from(
    [
        "UNIQ_KEY\x01U", "UNIQ_KEY\x01U", "UNIQ_KEY\x01V", "UNIQ_KEY\x01", "TAGS\x01A", "WAIT\x01true",
        "k\x01é\U0001f600", "k\x01v\x01w", "k\x01", "\x01v", "k", "", "MSG_REGION\x01mine", "TRACE_ON\x01x",
        "CLUSTER\x01c", "DELAY\x011", "DELAY\x01x", "TIMER_DELAY_MS\x0150", "TRAN_MSG\x01true",
        "INNER_NUM\x013", "POP_CK\x01x", "_SYS_MSG_PRIORITY_\x012", "long\x01" + "x" * 32_750,
    ]
)  # fmt: skip
_PROPERTIES = st.tuples(st.lists(_PIECES, max_size=4), st.sampled_from(["\x02", "\x02", ""])).map(
    lambda drawn: "\x02".join(drawn[0]) + drawn[1]
)
_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["T", "narrow", "ordered", "new", "%RETRY%G", "SCHEDULE_TOPIC_XXXX", "", "t t"]),
        "c": st.sampled_from(["TBW102", "unknown"]),
        "d": _NUMBERS,
        "e": _NUMBERS,
        "f": st.sampled_from(["0", "1", "769", "4", "8", "12", "128", "16", "-1", "x"]),
        "g": _NUMBERS,
        "h": _NUMBERS,
        "i": _PROPERTIES,
        "j": _NUMBERS,
        "l": _NUMBERS,
        "m": st.sampled_from(["false", "true"]),
    },
)
_SENDS = st.tuples(
    _CHANGES.map(lambda changes: FIELDS | changes),
    st.sampled_from([b"body", b"body", b"", b"x" * MAX_MESSAGE_SIZE, b"x" * (MAX_MESSAGE_SIZE + 1)]),
)


@given(st.lists(_SENDS | st.sampled_from(["T", "narrow"]), max_size=8))
@settings(max_examples=3 * settings().max_examples)
def test_fast_and_general_path_give_the_same_results(actions: Sequence[Send | str]) -> None:
    async def compare() -> None:
        fast, general = SendTarget(fast=True), SendTarget(fast=False)
        for action in actions:
            for target in (fast, general):
                if isinstance(action, str):
                    target.delete(action)
                else:
                    target.send(action)
            assert fast.client.answers == general.client.answers
        assert fast.stored() == general.stored()
        assert fast.queues == general.queues

    trio.run(compare, clock=MockClock())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"i": "UNIQ_KEY\x01U\x02WAIT\x01true"},
        {"i": "UNIQ_KEY\x01U\x02WAIT\x01false\x02TAGS\x01A\x02KEYS\x01k l\x02"},
        {"i": "UNIQ_KEY\x01U\x02WAIT\x01true\x02KEYS\x01k\x02TAGS\x01A\x02"},
        {"i": "UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01A\x02k\x01v\x02"},
        {"i": "k\x01é\x02TAGS\x01A\x02UNIQ_KEY\x01U"},
        {"f": "769"},
        {"b": "narrow", "e": "1"},
    ],
    ids=[
        "ours", "Java's 4.9", "keys", "keys first", "properties", "properties first", "compressed",
        "a queue that is only read",
    ],
)  # fmt: skip
async def test_plain_messages_take_the_fast_path(changes: dict[str, str], mock_clock: MockClock) -> None:
    fast, general = SendTarget(fast=True), SendTarget(fast=False)
    assert fast.send((FIELDS | changes, b"body"))
    general.send((FIELDS | changes, b"body"))
    assert fast.client.answers == general.client.answers
    assert fast.client.answers[-1].code == ResponseCode.SUCCESS
    assert fast.stored() == general.stored()


@pytest.mark.parametrize(
    "changes",
    [
        *[
            {"i": f"UNIQ_KEY\x01U\x02{more}"}
            for more in (
                "UNIQ_KEY\x01V\x02",
                "k\x01v\x01w\x02",
                "k\x01\x02",
                "\x01v\x02",
                "k\x02",
                "\x02",
                "MSG_REGION\x01mine\x02",
                "TRACE_ON\x01mine\x02",
                "CLUSTER\x01mine\x02",
                "DELAY\x011\x02",
                "DELAY\x01x\x02",
                "TIMER_DELAY_MS\x0150\x02",
                "TRAN_MSG\x01true\x02",
                "POP_CK\x01x\x02",
                "_SYS_MSG_PRIORITY_\x012\x02",
                "long\x01" + "x" * 32_700,
            )
        ],
        {"i": ""},
        {"i": "UNIQ_KEY\x01\x02WAIT\x01true\x02"},
        {"i": "UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01\x02"},
        {"i": "UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01A\x02TAGS\x01B\x02"},
        {"i": "UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01A\x01B\x02"},
        {"i": "UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01A\x02DELAY\x011\x02"},
        {"i": "UNIQ_KEY\x01U\x02WAIT\x01true\x02\x02"},
        {"i": "UNIQ_KEY\x01U\x02WAIT\x01\x02"},
        {"b": "new"},
        {"b": "t t"},
        {"b": "ordered"},
        {"b": "SCHEDULE_TOPIC_XXXX"},
        {"b": "%RETRY%G"},
        {"d": "x"},
        *[{"e": queue_id} for queue_id in ("4", "-1", "+1", "00", " 2", "1_0", "²", "٣", "1.0", "9" * 5000)],
        *[{"f": system_flag} for system_flag in ("4", "8", "12", "128", "x", str(2**31))],
        {"g": str(2**63)},
        {"g": "x"},
        {"h": "x"},
        {"h": str(2**31)},
    ],
)
async def test_messages_that_are_not_plain_take_the_general_path(
    changes: dict[str, str], mock_clock: MockClock
) -> None:
    fast, general = SendTarget(fast=True), SendTarget(fast=False)
    assert not fast.send((FIELDS | changes, b"body"))
    general.send((FIELDS | changes, b"body"))
    assert fast.client.answers == general.client.answers
    assert fast.stored() == general.stored()
    assert fast.queues == general.queues


@pytest.mark.parametrize("body", [b"", b"x" * (MAX_MESSAGE_SIZE + 1)])
async def test_invalid_bodies_are_refused_by_the_general_path(body: bytes) -> None:
    fast, general = SendTarget(fast=True), SendTarget(fast=False)
    assert not fast.send((FIELDS, body))
    general.send((FIELDS, body))
    assert fast.client.answers == general.client.answers
    assert fast.client.answers[-1].code != ResponseCode.SUCCESS
    assert fast.stored() == []


async def test_the_fast_path_notices_a_deleted_topic() -> None:
    target = SendTarget(fast=True)
    assert target.send((FIELDS, b"1"))
    assert target.send((FIELDS, b"2"))
    target.delete("T")
    assert not target.send((FIELDS, b"3"))
    assert target.send((FIELDS, b"4"))
    offsets = [answer.fields.get("queueOffset") for answer in target.client.answers]
    assert offsets == ["0", "1", None, "0", "1"]


async def test_a_region_without_an_answer_template_takes_the_general_path() -> None:
    broker = OfflineBroker(BrokerConfig(region_id="\x00msgId"))
    target = SendTarget(fast=True)
    target.broker, target.client = broker, broker.connect()
    assert not target.send((FIELDS, b"body"))
    assert target.client.answers[-1].fields["MSG_REGION"] == "\x00msgId"


async def test_access_keys_disable_the_fast_path() -> None:
    assert OfflineBroker(BrokerConfig(access_keys={"key": "secret"})).broker.send_handler is None


async def _answers(broker: EmbeddedBroker, frames: bytes, count: int) -> list[Command]:
    decoder, answers = FrameDecoder(), list[Command]()
    async with await trio.open_tcp_stream(*split_address(broker.broker_address)) as stream:
        await stream.send_all(frames)
        while len(answers) < count:
            answers += decoder.feed(await stream.receive_some())
    return answers


async def test_sends_on_both_paths_are_answered_in_order() -> None:
    delayed = FIELDS | {"i": "UNIQ_KEY\x01U\x02DELAY\x011\x02"}
    sent = [FIELDS, FIELDS, delayed, FIELDS, FIELDS | {"e": "9"}, FIELDS, FIELDS]
    frames = b"".join([encode_request(CODE, number, fields, b"body") for number, fields in enumerate(sent)])
    async with EmbeddedBroker(topics={"T": 4}) as broker:
        answers = await _answers(broker, frames, len(sent))
    assert [answer.opaque for answer in answers] == list(range(len(sent)))
    assert [answer.code for answer in answers] == [0, 0, 0, 0, ResponseCode.INVALID_PARAMETER, 0, 0]
    assert [answer.fields.get("queueOffset") for answer in answers] == ["0", "1", "0", "2", None, "3", "4"]


async def test_on_request_is_called_for_every_send() -> None:
    requests: list[tuple[int, str | None]] = []
    frames = encode_request(CODE, 1, FIELDS, b"body") * 3
    async with EmbeddedBroker(
        topics={"T": 4}, on_request=lambda code, topic, _: requests.append((code, topic))
    ) as broker:
        await _answers(broker, frames, 3)
    assert requests == [(CODE, "T")] * 3
