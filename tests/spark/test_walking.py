from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.spark.walking import SMALLEST, walk

FEWS = (0, 2, 1000)
"""Side by side, the last two by themselves, and each by itself."""


def walked(pieces: list[bytes], few: int) -> list[int] | None:
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    starts = ends - np.array([len(piece) for piece in pieces], np.int64)
    buffer = np.frombuffer(b"".join([*pieces, bytes(3)]), np.uint8)
    found = walk(buffer, starts, ends, few)
    return None if found is None else found.tolist()


def sized(size: int, said: int | None = None) -> bytes:
    return (size if said is None else said).to_bytes(4, "big", signed=True) + bytes(range(size - 4))


sizes = st.lists(st.lists(st.integers(SMALLEST, 250), max_size=5), max_size=7)


@given(sizes)
def test_messages_begin_where_those_before_them_end(chunks: list[list[int]]) -> None:
    pieces = [b"".join(map(sized, chunk)) for chunk in chunks]
    flat = [size for chunk in chunks for size in chunk]
    expected = [sum(flat[:number]) for number in range(len(flat))]
    for few in FEWS:
        assert walked(pieces, few) == expected


@given(sizes, st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 260), st.data())
def test_one_wrong_size_is_found(chunks: list[list[int]], wrong: int, data: st.DataObject) -> None:
    pieces = [[sized(size) for size in chunk] for chunk in [*chunks, [100, 120]]]
    piece = data.draw(st.sampled_from([piece for piece in pieces if piece]))
    at = data.draw(st.integers(0, len(piece) - 1))
    is_right = wrong == len(piece[at])
    piece[at] = sized(len(piece[at]), wrong)
    found = [walked([b"".join(piece) for piece in pieces], few) for few in FEWS]
    assert found[0] == found[1] == found[2]
    assert (found[0] is not None) == is_right


def test_a_rest_is_found_wherever_it_is() -> None:
    for few in FEWS:
        for rest in range(1, SMALLEST):
            whole, broken = sized(100), sized(100) + sized(SMALLEST)[:rest]
            assert walked([whole, broken], few) is None
            assert walked([broken, whole], few) is None
