from __future__ import annotations

import math

from rocketmq_py.remoting.back_off import BackOff


def test_pauses_are_doubled_up_to_the_longest() -> None:
    back_off = BackOff(0.5, longest=3)
    assert [back_off.after(failures) for failures in range(1, 6)] == [0.5, 1, 2, 3, 3]


def test_any_number_of_failures_has_a_pause() -> None:
    assert BackOff(0.1, longest=5).after(100_000) == 5
    assert math.isfinite(BackOff(0.1).after(100_000))
