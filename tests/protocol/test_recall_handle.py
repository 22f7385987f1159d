from __future__ import annotations

import base64

import pytest

from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.protocol.handles import RecallHandle

HANDLE = RecallHandle("orders", "broker-a", "1732190000000", "7F0000013A5C0D0000000000")


def test_handle_round_trip() -> None:
    assert RecallHandle.decode(HANDLE.encode()) == HANDLE


def test_handle_equals_that_of_a_broker() -> None:
    words = b"v1 orders broker-a 1732190000000 7F0000013A5C0D0000000000"
    assert HANDLE.encode() == base64.urlsafe_b64encode(words).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1 a b c d",
        base64.urlsafe_b64encode(b"v1 a b c").decode(),
        base64.urlsafe_b64encode(b"v2 a b c d").decode(),
        base64.urlsafe_b64encode(b"\xff\xff\xff").decode(),
        "ünicode",
    ],
)
def test_invalid_handles_are_refused(text: str) -> None:
    with pytest.raises(InvalidMessageError, match="recall handle"):
        RecallHandle.decode(text)
