"""Plain sends go to a dedicated handler first."""

from __future__ import annotations

import pytest
import trio

from rocketmq_py.address import split_address
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.command import Command, encode_request, encode_response
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.protocol.typed_sends import SendCommand
from rocketmq_py.remoting import Connection, SendHandler, serve

FIELDS = {"a": "G", "b": "T", "e": "0", "f": "0", "g": "1", "h": "0"}
BODIES = [b"first", b"plain", b"unusual", b"plain"]


def echo(connection: Connection, request: Command) -> None:
    connection.respond(request, ResponseCode.SUCCESS, request.fields, request.body)


def take(_: Connection, send: SendCommand) -> bytes | None:
    if send.body == b"unusual":
        return None
    return encode_response(send.as_command(), ResponseCode.SUCCESS, {"plain": send.fields.topic})


def fail(_: Connection, __: SendCommand) -> bytes | None:
    raise LookupError("a defect")


async def answers_to(sent: list[bytes], send_handler: SendHandler) -> list[Command]:
    """Return the responses until the connection ends."""
    frames = [
        encode_request(RequestCode.SEND_MESSAGE_V2, number, FIELDS, body) for number, body in enumerate(sent)
    ]
    async with trio.open_nursery() as nursery:
        address: str = await nursery.start(
            lambda task_status: serve(
                echo, "127.0.0.1", 0, send_handler=lambda: send_handler, task_status=task_status
            )
        )
        answers: list[Command] = []
        async with await trio.open_tcp_stream(*split_address(address)) as stream:
            decoder = FrameDecoder()
            await stream.send_all(b"".join(frames))
            while len(answers) < len(sent) and (data := await stream.receive_some()):
                answers += decoder.feed(data)
        nursery.cancel_scope.cancel()
    return answers


async def test_unhandled_sends_go_to_the_general_handler() -> None:
    answers = await answers_to(BODIES, take)
    assert [answer.opaque for answer in answers] == [0, 1, 2, 3]
    assert [answer.fields for answer in answers] == [FIELDS, {"plain": "T"}, FIELDS, {"plain": "T"}]
    assert [answer.body for answer in answers] == [b"first", b"", b"unusual", b""]


async def test_exception_in_the_send_handler_is_returned_to_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = await answers_to(BODIES, fail)
    assert [answer.code for answer in answers] == [0, *[ResponseCode.SYSTEM_ERROR] * 3]
    assert answers[1].remark == "LookupError: a defect"
    assert "code=310" in caplog.text
