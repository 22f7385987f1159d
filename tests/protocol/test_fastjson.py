from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol import fastjson
from tests.protocol.strategies import text

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@given(values.filter(lambda value: value not in (float("inf"), float("-inf"))))
def test_standard_json_is_read_as_such(value: Any) -> None:
    written = json.dumps(value, allow_nan=True)
    if "Infinity" not in written:
        assert fastjson.loads(written.encode()) == value


@given(values)
def test_standard_json_is_read_as_such_in_the_dialect_too(value: Any) -> None:
    written = json.dumps(value)
    if "Infinity" not in written:
        # The bare key makes all of it the dialect.
        assert fastjson.loads(f'{{0:{written},"1":2}}'.encode()) == {"0": value, "1": 2}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{0:"a"}', {"0": "a"}),
        ("{-1:1,2.5:2,true:3,null:4}", {"-1": 1, "2.5": 2, "true": 3, "null": 4}),
        ("{ 0 : [ ] , 1 : { } }", {"0": [], "1": {}}),
        ('{{"b":1,"a":"x"}:5}', {(("a", "x"), ("b", 1)): 5}),
        ("{{}:1}", {(): 1}),
        ("{[1,[2]]:1}", {(1, (2,)): 1}),
        ('{{"a":{"c":[1]}}:1}', {(("a", (("c", (1,)),)),): 1}),
        ('{0:{0:{{"a":1}:{1:2}}}}', {"0": {"0": {(("a", 1),): {"1": 2}}}}),
        ('{0:"\\u00e9\\n\\"\\\\ é"}', {"0": 'é\n"\\ é'}),
        ('{0:"a\tb"}', {"0": "a\tb"}),
        ("{0:-1.5e3,1:12345678901234567890}", {"0": -1500.0, "1": 12345678901234567890}),
        ('{0:1,0:2,"0":3}', {"0": 3}),
    ],
)
def test_dialect(data: str, expected: object) -> None:
    assert fastjson.loads(data.encode()) == expected


def test_a_key_that_was_an_object_becomes_it_again() -> None:
    table = fastjson.loads(b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:5}}')["offsetTable"]
    assert [dict(key) for key in table] == [{"brokerName": "b", "queueId": 3, "topic": "T"}]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  ",
        b"{",
        b"}",
        b"{0}",
        b"{0:}",
        b"{0:1",
        b"{0:1,}",
        b"{0:1;1:2}",
        b"{,}",
        b"[1,]",
        b"{0:[1 2]}",
        b"{0:[}",
        b"{0:'a'}",
        b'{0:"a}',
        b'{0:"a\\"}',
        b'{0:"\\x"}',
        b"{a:1}",
        b"{0:tru}",
        b"{0:+1}",
        b"{0:1}x",
        b"{0:1}}",
        b'{0:"\xff"}',
        b"{0:" + b"9" * 5000 + b"}",
        b"{" * 200_000,
        b"[" * 200_000,
        b"{[" * 100_000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_garbage(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        fastjson.loads(data)


def test_nesting_is_bounded() -> None:
    depth = fastjson.MAX_DEPTH
    assert fastjson.loads(b"{0:" * depth + b"1" + b"}" * depth)
    with pytest.raises(ProtocolError, match="deeper than 64"):
        fastjson.loads(b"{0:" * (depth + 1) + b"1" + b"}" * (depth + 1))


@given(st.text('{}[]:,"01-.etrufalsn\\ x', max_size=40))
def test_anything_is_read_or_is_a_protocol_error(data: str) -> None:
    try:
        fastjson.loads(data.encode())
    except ProtocolError:
        return


def test_an_unfinished_string_takes_no_longer_for_being_long() -> None:
    with pytest.raises(ProtocolError):
        fastjson.loads(b'{0:"' + b"\\a" * 500_000)
