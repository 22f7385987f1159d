"""Waking those who wait for what happens in trio's thread."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from rocketmq_py.crossing.wakes import Wakes


def test_others_are_woken_when_there_is_nothing_else_to_do() -> None:
    wakes, seen = Wakes(), list[str]()

    async def main() -> None:
        wakes.add(partial(seen.append, "one"))
        wakes.add(partial(seen.append, "other"))
        seen.append("done")
        await trio.lowlevel.checkpoint()
        seen.append("later")
        await trio.lowlevel.checkpoint()

    trio.run(main, instruments=[wakes])
    assert seen == ["done", "one", "other", "later"]


def test_a_wake_that_fails_keeps_no_other_from_being_called(caplog: pytest.LogCaptureFixture) -> None:
    wakes, seen = Wakes(), list[str]()

    def fail() -> None:
        raise SystemExit("a defect")

    async def main() -> None:
        for name in ("one", "other"):
            wakes.add(fail)
            wakes.add(partial(seen.append, name))
            await trio.lowlevel.checkpoint()

    trio.run(main, instruments=[wakes])
    assert seen == ["one", "other"]
    assert [record.message for record in caplog.records] == [
        "waking what waits for the thread that runs trio has failed"
    ] * 2
