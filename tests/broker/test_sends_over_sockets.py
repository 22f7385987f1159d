"""Sends over sockets to the embedded broker."""

from __future__ import annotations

import trio

from rocketmq_py.address import split_address
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.command import Command, encode_request
from rocketmq_py.protocol.frames import FrameDecoder

CODE = int(RequestCode.SEND_MESSAGE_V2)
FIELDS = {
    "a": "G", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1690000000000", "h": "7",
    "i": "UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01A\x02", "j": "0", "k": "false", "m": "false", "n": "b",
}  # fmt: skip


async def _answers(broker: EmbeddedBroker, frames: bytes, count: int) -> list[Command]:
    decoder, answers = FrameDecoder(), list[Command]()
    async with await trio.open_tcp_stream(*split_address(broker.broker_address)) as stream:
        await stream.send_all(frames)
        while len(answers) < count:
            answers += decoder.feed(await stream.receive_some())
    return answers


async def test_sends_are_answered_in_order() -> None:
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
