from __future__ import annotations

import attrs
import pytest

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.handles import PoppedOffsets, ReceiptHandle, TopicKind, pop_retry_topic
from tests.protocol.test_golden_frames import FILES, decode, frames_of

TEXT = "5 1700000000000 30000 2 1 broker-a 3 7"
HANDLE = ReceiptHandle(
    start_offset=5,
    pop_time_ms=1_700_000_000_000,
    invisible_ms=30_000,
    revive_queue_id=2,
    topic_kind=TopicKind.RETRY,
    broker_name="broker-a",
    queue_id=3,
    offset=7,
)


def test_a_handle_is_a_text() -> None:
    assert ReceiptHandle.parse(TEXT) == HANDLE
    assert str(HANDLE) == TEXT


def test_handles_of_old_clients_have_no_offset() -> None:
    handle = attrs.evolve(HANDLE, offset=None)
    assert str(handle) == TEXT.removesuffix(" 7")
    assert ReceiptHandle.parse(str(handle)) == handle


@pytest.mark.parametrize("text", ["", "5", "5 x 30000 2 1 broker-a 3 7", TEXT.replace(" 1 ", " 9 ")])
def test_invalid_handles_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="is not a receipt handle"):
        ReceiptHandle.parse(text)


def test_ordered_pops_have_their_own_revive_queue() -> None:
    assert attrs.evolve(HANDLE, revive_queue_id=999).is_ordered
    assert not HANDLE.is_ordered


@pytest.mark.parametrize(
    ("mark", "topic"),
    [(TopicKind.NORMAL, "t_1"), (TopicKind.RETRY, "%RETRY%g_t_1"), (TopicKind.RETRY_V2, "%RETRY%g+t_1")],
)
def test_a_mark_stands_for_a_topic(mark: TopicKind, topic: str) -> None:
    assert TopicKind.of(topic) is mark
    assert mark.topic("t_1", "g") == topic


def test_retry_topics() -> None:
    assert pop_retry_topic("t", "g") == "%RETRY%g_t"
    assert pop_retry_topic("t", "g", v2=True) == "%RETRY%g+t"


def test_where_popped_messages_come_from() -> None:
    popped = PoppedOffsets.parse("0 3 10;1 0 5", "0 3 10,12;1 0 5", "0 qo3%12 2;0 3 0;1 0 1")
    queue, retry = (TopicKind.NORMAL, 3), (TopicKind.RETRY, 0)
    assert popped.starts == {queue: 10, retry: 5}
    assert popped.offsets == {queue: (10, 12), retry: (5,)}
    assert [popped.count(queue, 10), popped.count(queue, 12), popped.count(retry, 5)] == [0, 2, 1]
    assert popped.count((TopicKind.NORMAL, 9), 1) == 0
    assert (
        PoppedOffsets.parse(popped.start_offset_info, popped.msg_offset_info, popped.order_count_info)
        == popped
    )


@pytest.mark.parametrize(
    "fields",
    [
        ("0 3",),
        ("x 3 1",),
        ("0 3 1;0 3 1",),
        ("0 3 1", "0 3 1,x"),
        ("0 3 1", None, "0 qo3 1"),
        ("0 3 1", None, "0 qox%1 1"),
    ],
)
def test_invalid_pop_responses_are_refused(fields: tuple[str | None, ...]) -> None:
    with pytest.raises(ProtocolError, match="in the answer to a pop cannot be read"):
        PoppedOffsets.parse(*fields)


def test_java_handles_and_offsets_encode_unchanged() -> None:
    commands = [decode(frame) for file in FILES for frame in frames_of(file)]
    handles = [command.fields["extraInfo"] for command in commands if "extraInfo" in command.fields]
    assert handles
    for text in handles:
        assert str(ReceiptHandle.parse(text)) == text
    infos = ("startOffsetInfo", "msgOffsetInfo", "orderCountInfo")
    answers = [command.fields for command in commands if "startOffsetInfo" in command.fields]
    assert {name for fields in answers for name in fields} >= set(infos)
    for fields in answers:
        popped = PoppedOffsets.parse(*[fields.get(name) for name in infos])
        written = (popped.start_offset_info, popped.msg_offset_info, popped.order_count_info)
        assert written == tuple([fields.get(name, "") for name in infos])
