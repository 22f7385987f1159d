"""An iterator of a Reader that several threads share: another thread iterates between any two bytecodes."""

from __future__ import annotations

import pytest

from rocketmq_py.blocking import Client
from rocketmq_py.message import Message
from tests.handoff.conftest import run_watched

PROGRAM = """
    import asyncio, itertools, sys
    from concurrent.futures import ThreadPoolExecutor
    from rocketmq_py import aio, blocking
    from tests.handoff.interrupting import Interruption

    address, api = sys.argv[1:]
    pool = ThreadPoolExecutor(1)

    def check(make_range, take):
        for step in itertools.count(1):
            messages, taken = make_range(), []
            other = Interruption(step, lambda: taken.append(pool.submit(take, messages).result()))
            with other:
                taken.append(take(messages))
            if other.place is None:
                break
            assert sorted(taken, key=bool) == [None, b"x"], (other.place, taken)
        assert step > 50

    def in_threads():
        with blocking.Reader(address) as reader:
            (queue,) = [queue for queue, (first, end) in reader.offsets("T").items() if end > first]

            def take(messages):
                message = next(messages, None)
                return message and message.body

            check(lambda: reader.range(queue), take)

    def on_loops():
        loop = asyncio.new_event_loop()
        reader = aio.Reader(address)
        loop.run_until_complete(reader.start())
        offsets = loop.run_until_complete(reader.offsets("T"))
        (queue,) = [queue for queue, (first, end) in offsets.items() if end > first]
        others = pool.submit(asyncio.new_event_loop).result()

        async def take_one(messages):
            message = await anext(messages, None)
            return message and message.body

        def take(messages):
            by = loop if not loop.is_running() else others
            return by.run_until_complete(take_one(messages))

        check(lambda: reader.range(queue), take)
        loop.run_until_complete(reader.aclose())
        for one in (loop, others):
            one.close()

    in_threads() if api == "blocking" else on_loops()
"""


@pytest.mark.parametrize("api", ["blocking", "aio"])
@pytest.mark.long
def test_a_message_that_another_thread_takes_between_any_two_bytecodes(
    address: str, client: Client, api: str
) -> None:
    with client.producer("g") as producer:
        producer.send(Message("T", b"x"))
    run_watched(PROGRAM, address, api)
