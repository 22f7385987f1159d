from __future__ import annotations

import pytest

from rocketmq_py.codes import version_name
from rocketmq_py.protocol.command import VERSION


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (0, "3.x"),
        (211, "3.x"),
        (212, "4.0.0-SNAPSHOT"),
        (213, "4.0.0"),
        (407, "4.9.7"),
        (410, "4.9.9-SNAPSHOT"),
        (411, "4.9.9"),
        (413, "5.0.0"),
        (VERSION, "5.5.0"),
        (611, "5.9.9"),
    ],
)
def test_the_name_of_a_version(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name
