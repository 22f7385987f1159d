from __future__ import annotations

import base64

import pytest

from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.protocol.handles import RecallHandle

HANDLE = RecallHandle("orders", "broker-a", "1732190000000", "7F0000013A5C0D0000000000")


def test_a_handle_survives_its_way() -> None:
    assert RecallHandle.decode(HANDLE.encode()) == HANDLE


def test_it_is_what_a_broker_makes() -> None:
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
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(InvalidMessageError, match="recall handle"):
        RecallHandle.decode(text)
