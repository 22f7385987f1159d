"""Invalid requests and bytes do not stop the broker from serving other clients."""

from __future__ import annotations

import logging
import random

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_py.address import split_address
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.command import encode_request
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.headers import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ConsumeMessageDirectlyRequest,
    EndTransactionRequest,
    GetConsumerStatusRequest,
    PopMessageRequest,
    PullMessageRequest,
    QueryConsumeTimeSpanRequest,
    RecallMessageRequest,
    ResetOffsetRequest,
    SendMessageRequest,
    SendMessageRequestV2,
)
from tests.broker.offline import OfflineBroker, OfflineClient

MAY_BE_SILENT = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.END_TRANSACTION,
    RequestCode.POP_MESSAGE,
)


@pytest.mark.parametrize("code", list(RequestCode))
async def test_a_request_without_fields_and_body_is_answered(
    client: OfflineClient, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.ask(code, {})
    assert answer.code in list(ResponseCode)
    if answer.code == ResponseCode.SYSTEM_ERROR:
        assert answer.remark
    assert not caplog.records, "the broker answered, and did not log a failure"


async def test_an_unknown_request_is_refused(client: OfflineClient) -> None:
    for answer in (client.ask(99_999, {}), client.ask_name_server(99_999, {})):
        assert (answer.code, answer.remark) == (
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            " request type 99999 not supported",
        )


_NAMES = sorted(
    {
        field.encode_name
        for header in (
            SendMessageRequest,
            SendMessageRequestV2,
            PullMessageRequest,
            EndTransactionRequest,
            RecallMessageRequest,
            PopMessageRequest,
            AckMessageRequest,
            ChangeInvisibleTimeRequest,
            ResetOffsetRequest,
            GetConsumerStatusRequest,
            ConsumeMessageDirectlyRequest,
            QueryConsumeTimeSpanRequest,
        )
        for field in msgspec.structs.fields(header)
    }
    | {"offset", "group", "delayLevel", "clientID", "key", "maxNum", "timestamp", "perm", "attributes"}
)
_VALUES = st.one_of(
    st.sampled_from(["", "0", "1", "-1", "true", "t", "TBW102", "%RETRY%g", "*", "A||B"]),
    st.integers(-(2**70), 2**70).map(str),
    st.text(max_size=20),
    st.sampled_from(["DELAY\x011\x02", "DELAY\x01x\x02", "\x01\x02", "TAGS\x01A", "UNIQ_KEY\x01\x02"]),
    st.sampled_from(
        ["TRAN_MSG\x01true\x02", "TIMER_DELAY_MS\x011\x02", "TIMER_OUT_MS\x01²\x02", "REAL_TOPIC\x01t\x02"]
    ),
    st.just(RecallHandle("t", "broker-a", "²", "U").encode()),
)
_BODIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"{}",
            b"[]",
            b"null",
            b"1",
            b'{"clientID":1}',
            rb'{"clientID":"\ud800","consumerDataSet":[{"groupName":"\udfff"}]}',
            rb'{0:1,"groupName":"\ud800"}',
            b'{"x":' * 700 + b"1" + b"}" * 700,
            b'{"clientID":' * 60 + b"1" + b"}" * 60,
            b'{"mqSet":[{}]}',
            b'{"groupName":null}',
            b'{"consumerGroup":"g","acks":[{"c":"g","t":"TBW102","q":0,"so":0,"it":1,"rq":0,"b":"/w=="},1]}',
            b'{"topic":"TBW102","consumerGroup":"g","mode":"POP","popShareQueueNum":-1}',
            b'{"topic":"TBW102","consumerGroup":"g","clientId":"c","strategyName":"AVG"}',
            b'{"clientId":"c","group":"g","subscriptionData":{"expressionType":"SQL92","subString":"(((("}}',
        ]
    ),
)


_REQUESTS = st.tuples(
    st.sampled_from(list(RequestCode)),
    st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=20),
    _BODIES,
)


@given(st.lists(_REQUESTS, max_size=8))
@settings(max_examples=3 * settings().max_examples // 2)
def test_any_fields_and_bodies_are_answered_or_held(
    requests: list[tuple[int, dict[str, str], bytes]],
) -> None:
    async def ask_all() -> None:
        client = OfflineBroker(BrokerConfig()).connect()
        for code, fields, body in requests:
            opaque = client.send_request(code, fields, body)
            answers = [answer.opaque for answer in client.answers].count(opaque)
            assert answers == 1 or (answers == 0 and code in MAY_BE_SILENT)
        assert client.send("afterwards").code == ResponseCode.SUCCESS
        client.close()

    failures = FailureRecords()
    logger = logging.getLogger("rocketmq_py.broker")
    logger.addHandler(failures)
    try:
        trio.run(ask_all)
    finally:
        logger.removeHandler(failures)
    assert failures.messages == []


class FailureRecords(logging.Handler):
    """Collects the log records of requests that failed with an unexpected error."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


async def test_invalid_bytes_close_only_their_connection() -> None:
    rng = random.Random(5)
    good = encode_request(RequestCode.HEART_BEAT, 1, {}, b"{}")
    async with EmbeddedBroker() as broker:
        for address in (broker.broker_address, broker.name_server_address):
            for data in (
                b"GET / HTTP/1.1\r\n\r\n",
                b"\x7f\xff\xff\xff",
                b"\xff\xff\xff\xff",
                b"\x00\x00\x00\x00",
                b"\x00\x00\x00\x08\x00\xff\xff\xff{}{}",
                b"\x00\x00\x00\x06\x07\x00\x00\x02{}",
                b"\x00\x00\x00\x06\x00\x00\x00\x02[]",
                rng.randbytes(5000),
                good[:-1] + good,
            ):
                async with await trio.open_tcp_stream(*split_address(address)) as stream:
                    await stream.send_all(data)
                    await stream.send_eof()
                    while await _receive(stream):
                        pass
            async with await trio.open_tcp_stream(*split_address(address)) as stream:
                await stream.send_all(encode_request(99_999, 7, {}))
                assert b"not supported" in await stream.receive_some()


async def _receive(stream: trio.SocketStream) -> bytes:
    try:
        return bytes(await stream.receive_some())
    except trio.BrokenResourceError:
        return b""
