from __future__ import annotations

import attrs
import pytest

from rocketmq_py.protocol.trace import (
    MAX_KEYS_SIZE,
    ConsumeEndTrace,
    ConsumeReturnType,
    ConsumeStartTrace,
    EndTransactionTrace,
    PublishTrace,
    RecallTrace,
    TracedType,
    TraceKeys,
    TraceRecord,
    decode_records,
    encode_record,
    read_records,
)

PUBLISH = PublishTrace(
    timestamp_ms=1_700_000_000_000,
    region="DefaultRegion",
    group="g",
    topic="T",
    message_id="ID1",
    tags="A",
    keys="k1 k2",
    store_host="127.0.0.1:10911",
    body_size=5,
    cost_ms=3,
    traced_type=TracedType.DELAY,
    offset_message_id="OFF",
    success=True,
)
CASES: list[tuple[TraceRecord, str]] = [
    (PUBLISH, "Pub|1700000000000|DefaultRegion|g|T|ID1|A|k1 k2|127.0.0.1:10911|5|3|3|OFF|true"),
    (
        ConsumeStartTrace(
            timestamp_ms=1, region="R", group="g", request_id="Q", message_id="ID1", retries=2, keys=""
        ),
        "SubBefore|1|R|g|Q|ID1|2|null",
    ),
    (
        ConsumeEndTrace(
            request_id="Q", message_id="ID1", cost_ms=4, success=False, keys="k", timestamp_ms=1, group="g",
            returned=ConsumeReturnType.FAILED,
        ),
        "SubAfter|Q|ID1|4|false|k|4|1|g",
    ),
    (
        EndTransactionTrace(
            timestamp_ms=1, region="R", group="g", topic="T", message_id="ID1", tags="", keys="",
            store_host="h:1", transaction_id="TX", state="COMMIT_MESSAGE", from_check=True,
        ),
        "EndTransaction|1|R|g|T|ID1|null|null|h:1|2|TX|COMMIT_MESSAGE|true",
    ),
    (
        RecallTrace(timestamp_ms=1, region="R", group="g", topic="T", message_id="ID1", success=True),
        "Recall|1|R|g|T|ID1|true",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("record", "text"), CASES)
def test_record_equals_that_of_java(record: TraceRecord, text: str) -> None:
    assert encode_record(record) == text.replace("|", "\x01") + "\x02"
    assert read_records(encode_record(record).encode()) == [text.split("|")]


def test_records_of_a_cloud_have_no_time_and_group_at_their_end_as_in_java() -> None:
    for record, text in CASES:
        shown = "SubAfter|Q|ID1|4|false|k|4|" if text.startswith("SubAfter|") else text
        assert encode_record(record, cloud=True) == shown.replace("|", "\x01") + "\x02"
    (end,) = [record for record, _ in CASES if isinstance(record, ConsumeEndTrace)]
    assert decode_records(encode_record(end, cloud=True).encode()) == [
        attrs.evolve(end, timestamp_ms=0, group="")
    ]


def test_records_follow_one_another_and_share_their_keys() -> None:
    body = "".join(encode_record(record) for record, _ in CASES).encode()
    assert [fields[0] for fields in read_records(body)] == [
        "Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall",
    ]  # fmt: skip
    keys = TraceKeys()
    assert all(keys.add(record, partly=False) for record, _ in CASES)
    assert list(keys) == ["ID1", "k1", "k2", "k"]


def test_encoded_records_decode_unchanged() -> None:
    body = "".join(encode_record(record) for record, _ in CASES).encode()
    assert decode_records(body) == [record for record, _ in CASES]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Pub",
        "Pub|soon|DefaultRegion|g|T|ID1|A|k|h:1|5|3|3|OFF|true",
        "Pub|1|DefaultRegion|g|T|ID1|A|k|h:1|5|3|99|OFF|true",
        "Recall|soon|DefaultRegion|g|T|ID1|true",
        "Recall|1|DefaultRegion|g|T|ID1",
        "SubAfter|Q|ID1|4|false|k|x|1|g",
    ],
)
def test_invalid_records_are_skipped(text: str) -> None:
    good, _ = CASES[1]
    body = f"{text}\x02".replace("|", "\x01").encode() + encode_record(good).encode()
    assert decode_records(body) == [good]


def test_records_of_old_clients_decode() -> None:
    before_4_7 = "Pub|1|R|g|T|ID1|A|k|h:1|5|3|0|true\x02SubAfter|Q|ID1|4|true|null\x02"
    sent, consumed = decode_records(before_4_7.replace("|", "\x01").encode())
    assert isinstance(sent, PublishTrace)
    assert (sent.offset_message_id, sent.success) == ("", True)
    assert isinstance(consumed, ConsumeEndTrace)
    assert (consumed.returned, consumed.timestamp_ms, consumed.group) == (ConsumeReturnType.SUCCESS, 0, "")


def test_keys_of_a_message_are_limited() -> None:
    keys = TraceKeys()
    half = "x" * (MAX_KEYS_SIZE // 2)
    assert keys.add(attrs.evolve(PUBLISH, keys=f"{half} k1"), partly=False)
    assert not keys.add(attrs.evolve(PUBLISH, message_id="ID2", keys=f"y{half} k3"), partly=False)
    assert list(keys) == ["ID1", half, "k1"]
    assert keys.add(attrs.evolve(PUBLISH, message_id="ID2", keys=f"y{half} k3"), partly=True)
    assert list(keys) == ["ID1", half, "k1", "ID2", "k3"]
