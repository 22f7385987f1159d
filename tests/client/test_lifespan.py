from __future__ import annotations

import asyncio
import math
import threading

import pytest
import trio
import trio.testing

from rocketmq_py.client.lifespan import Lifespan, from_any_thread, nursery_of
from rocketmq_py.errors import ClosedError, ConfigurationError, OutsideEventLoopError


class Sample(Lifespan):
    def __init__(self, failure: Exception | None = None, close_seconds: float = 0) -> None:
        super().__init__()
        self.failure = failure
        self.close_seconds = close_seconds
        self.events: list[str] = []
        self.background: trio.CancelScope | None = None

    async def _open(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        self._nursery.start_soon(self._work)
        self.events.append("open")

    async def _work(self) -> None:
        try:
            await trio.sleep(math.inf)
        finally:
            self.events.append("background ended")

    async def _close(self) -> None:
        await trio.sleep(self.close_seconds)
        self.events.append("closed gracefully")

    def _abandon(self) -> None:
        self.events.append("abandoned")

    def use(self) -> None:
        self._check_open()

    @from_any_thread
    def place(self, *, failure: Exception | None = None) -> int:
        """Return the thread that runs this method."""
        if failure is not None:
            raise failure
        return threading.get_ident()


ALL = ["open", "closed gracefully", "background ended", "abandoned"]


async def test_leaving_closes_gracefully_and_ends_the_background_tasks() -> None:
    async with Sample() as sample:
        open_inside = sample.is_open
    assert (open_inside, sample.is_open) == (True, False)
    assert sample.events == ALL


async def test_the_users_own_exception_passes_unchanged() -> None:
    sample = Sample()
    with pytest.raises(KeyError) as caught:
        async with sample:
            raise KeyError("mine")
    assert caught.value.args == ("mine",)
    assert sample.events == ALL


async def test_a_cancellation_still_closes_gracefully(autojump_clock: trio.testing.MockClock) -> None:
    sample = Sample(close_seconds=1)
    with trio.move_on_after(5) as scope:
        async with sample:
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert sample.events == ALL


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ZeroDivisionError])
async def test_an_exception_of_closing_propagates(kind: type[BaseException]) -> None:
    class Failing(Sample):
        async def _close(self) -> None:
            await trio.lowlevel.checkpoint()
            raise kind("while closing")

    sample = Failing()
    with pytest.raises(kind, match="while closing"):
        async with sample:
            pass
    assert sample.events == ["open", "background ended", "abandoned"]
    async with trio.open_nursery() as nursery:
        sample = Failing()
        await sample.start(nursery)
        with pytest.raises(kind, match="while closing"):
            await sample.aclose()
        assert sample.events == ["open", "background ended", "abandoned"]
        await sample.aclose()  # closing again does nothing


async def test_closing_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    sample = Sample(close_seconds=1000)
    start = trio.current_time()
    async with sample:
        pass
    assert trio.current_time() - start == 5
    assert sample.events == ["open", "background ended", "abandoned"]


async def test_an_exception_of_opening_propagates() -> None:
    with pytest.raises(ConfigurationError, match="no"):
        async with Sample(ConfigurationError("no")):
            pytest.fail("not reached")


async def test_opening_can_be_cancelled() -> None:
    class Hanging(Sample):
        async def _open(self) -> None:
            await trio.sleep_forever()

    with trio.CancelScope() as scope:
        scope.cancel()
        async with Hanging():
            pytest.fail("not reached")
    assert scope.cancelled_caught


async def test_an_exception_of_a_background_task_propagates() -> None:
    class Buggy(Sample):
        async def _work(self) -> None:
            raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        async with Buggy():
            await trio.sleep_forever()


async def test_start_uses_the_nursery_of_the_caller(nursery: trio.Nursery) -> None:
    sample = Sample()
    await sample.start(nursery)
    assert sample.is_open
    await sample.aclose()
    await sample.aclose()  # closing again does nothing
    assert sample.events == ALL


async def test_cancelling_the_callers_nursery_ends_it_without_a_graceful_close() -> None:
    sample = Sample()
    async with trio.open_nursery() as nursery:
        await sample.start(nursery)
        nursery.cancel_scope.cancel()
    await sample.aclose()
    assert not sample.is_open
    assert sample.events == ["open", "background ended", "abandoned"]


async def test_it_cannot_be_opened_twice() -> None:
    sample = Sample()
    with pytest.raises(ClosedError, match="not open"):
        _ = nursery_of(sample)
    await sample.aclose()  # never opened, so there is nothing to do
    with pytest.raises(ClosedError, match="this Sample is not open: use it inside `async with Sample"):
        sample.use()
    async with sample:
        with pytest.raises(ClosedError, match="opened before"):
            await sample.__aenter__()
    with pytest.raises(ClosedError, match="opened before"):
        async with sample:
            pytest.fail("not reached")


async def test_two_tasks_cannot_open_it_at_once(nursery: trio.Nursery) -> None:
    sample = Sample()
    errors: list[str] = []

    async def open_it() -> None:
        try:
            await sample.start(nursery)
        except ClosedError as error:
            errors.append(str(error))

    async with trio.open_nursery() as opening:
        opening.start_soon(open_it)
        opening.start_soon(open_it)
    assert errors == ["this Sample was opened before; make a new one"]
    assert sample.events == ["open"]


async def test_it_is_closed_after_the_block() -> None:
    async with Sample() as sample:
        sample.use()
    with pytest.raises(ClosedError, match="this Sample is closed"):
        sample.use()


class SlowToOpen(Sample):
    async def _open(self) -> None:
        await trio.sleep(1)
        await super()._open()


async def test_methods_raise_while_another_task_opens_it(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sample = SlowToOpen()
    nursery.start_soon(sample.start, nursery)
    await trio.sleep(0.5)
    assert not sample.is_open
    with pytest.raises(ClosedError, match="this SlowToOpen is still being opened by another task"):
        sample.use()
    await trio.sleep(1)
    sample.use()
    await sample.aclose()


@pytest.mark.parametrize("shielded", [False, True])
async def test_closing_while_another_task_opens_it_fails_the_opening(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, shielded: bool
) -> None:
    class Opening(SlowToOpen):
        async def _open(self) -> None:
            with trio.CancelScope(shield=shielded):
                await super()._open()

    sample = Opening()

    async def open_it() -> None:
        with pytest.raises(ClosedError, match="this Opening was closed while it was being opened"):
            async with sample:
                pytest.fail("not reached")

    nursery.start_soon(open_it)
    await trio.sleep(0.5)
    await sample.aclose()
    assert "closed gracefully" not in sample.events
    assert sample.events[-1] == "abandoned"
    with pytest.raises(ClosedError, match="this Opening is closed"):
        sample.use()


async def test_closing_after_failed_opening_does_nothing(nursery: trio.Nursery) -> None:
    sample = Sample(ConfigurationError("no"))
    with pytest.raises(ConfigurationError, match="no"):
        await sample.start(nursery)
    await sample.aclose()
    assert sample.events == ["abandoned"]


def test_opening_without_trio_raises_a_helpful_error() -> None:
    async def open_one() -> None:
        async with Sample():
            pytest.fail("not reached")

    with pytest.raises(
        OutsideEventLoopError, match=r"Sample runs on trio: .*trio\.run.* rocketmq_py\.blocking"
    ):
        asyncio.run(open_one())


async def test_use_in_another_thread_raises() -> None:
    errors: list[str] = []

    async def use_in_each_way(sample: Sample) -> None:
        with pytest.raises(OutsideEventLoopError) as caught:
            sample.use()
        errors.append(str(caught.value))
        with pytest.raises(OutsideEventLoopError):
            await sample.aclose()

    async with Sample() as sample:
        await trio.to_thread.run_sync(trio.run, use_in_each_way, sample)
        sample.use()
    assert sample.events == ALL
    (error,) = errors
    assert "this Sample was opened in a trio.run in another thread" in error
    assert "rocketmq_py.blocking" in error


async def test_a_plain_with_raises_a_helpful_error() -> None:
    text = r"use 'async with Sample\(\.\.\.\)', or rocketmq_py\.blocking for a plain 'with'"
    with pytest.raises(TypeError, match=text), Sample():  # type: ignore[attr-defined]  # the fault that is tested
        pass


async def test_a_method_for_any_thread_runs_in_the_thread_of_trio_while_the_object_is_open() -> None:
    here = threading.get_ident()
    sample = Sample()
    assert await trio.to_thread.run_sync(sample.place) != here
    async with sample:
        assert sample.place() == here
        assert await trio.to_thread.run_sync(sample.place) == here
        with pytest.raises(KeyError):
            await trio.to_thread.run_sync(lambda: sample.place(failure=KeyError("mine")))
    assert await trio.to_thread.run_sync(sample.place) != here
