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


def test_others_are_let_in_while_it_waits_and_it_goes_on_when_they_have_left() -> None:
    wakes, seen = Wakes(), list[str]()

    def enter(token: trio.lowlevel.TrioToken) -> None:
        with wakes.running:
            token.run_sync_soon(seen.append, "goes on")
            for _ in range(1000):
                seen.append("in")
            assert seen[-1000:] == ["in"] * 1000

    async def main() -> None:
        for _ in range(20):
            assert wakes.running.locked()
            await trio.to_thread.run_sync(enter, trio.lowlevel.current_trio_token())

    trio.run(main, instruments=[wakes])
    assert seen.count("goes on") == 20
    wakes.let_in()  # as where the thread has ended
    wakes.let_in()
    assert not wakes.running.locked()
