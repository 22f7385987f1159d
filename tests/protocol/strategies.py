"""Hypothesis strategies that several modules use."""

from __future__ import annotations

from hypothesis import strategies as st

from rocketmq_py.protocol.command import Command, Serialization

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)

json_commands = st.builds(
    Command,
    int32,
    int32,
    int32,
    st.dictionaries(text, text, max_size=5),
    st.binary(max_size=50),
    st.none() | text,
    st.integers(0, 13),
    int32,
)
binary_commands = st.builds(
    Command,
    int16,
    int32,
    int32,
    st.dictionaries(text, text, max_size=5),
    st.binary(max_size=50),
    st.none() | text.filter(bool),
    st.integers(-128, 127),
    int16,
    st.just(Serialization.ROCKETMQ),
)
commands = json_commands | binary_commands
