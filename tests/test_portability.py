"""The APIs work on systems that lack functions of Linux: no fork, no eventfd."""

from __future__ import annotations

import textwrap

import pytest

from rocketmq_py.broker import EmbeddedBroker
from tests.programs import run

WITHOUT_FORK = """
import os, socket, subprocess, asyncio, multiprocessing.util
for name in ("register_at_fork", "fork", "eventfd", "eventfd_read", "eventfd_write", "O_DIRECTORY"):
    if hasattr(os, name):
        delattr(os, name)
"""
"""Removes the functions that Windows lacks, once the standard library's modules that use them are loaded."""

PROGRAMS = {
    "threads": """
        from rocketmq_py import Message
        from rocketmq_py.blocking import Client
        with Client("{address}") as client:
            with client.producer("group") as producer:
                producer.submit(Message("T", b"hello")).result()
            with client.lite_pull_consumer("readers", consume_from="earliest") as consumer:
                consumer.subscribe("T")
                [message] = consumer.poll(wait=60)
        print(message.body)
    """,
    "asyncio": """
        import asyncio
        from rocketmq_py import Message
        from rocketmq_py.aio import Client
        async def main():
            async with Client("{address}") as client:
                async with client.producer("group") as producer:
                    await (await producer.submit(Message("T", b"hello")))
                async with client.lite_pull_consumer("readers", consume_from="earliest") as consumer:
                    consumer.subscribe("T")
                    [message] = await consumer.poll(wait=60)
            print(message.body)
        asyncio.run(main())
    """,
    "asyncio on a loop like the proactor of Windows": """
        import asyncio
        from rocketmq_py import Message
        from rocketmq_py.aio import Producer, Reader
        class Loop(asyncio.SelectorEventLoop):
            def add_reader(self, *arguments):
                raise NotImplementedError
        async def main():
            async with Producer("{address}", group="group") as producer:
                await producer.send(Message("T", b"hello"))
            async with Reader("{address}") as reader:
                async with reader.open("T", start="earliest", stop_at_end=True) as messages:
                    print(*[message.body async for message in messages])
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(main())
    """,
    "broadcasting": """
        import tempfile, trio
        from rocketmq_py import Client, Message
        async def main():
            async with Client("{address}", instance_name="one") as client:
                async with client.producer("group") as producer:
                    await producer.send(Message("T", b"hello"))
                with tempfile.TemporaryDirectory() as folder:
                    async with client.push_consumer(
                        "all", broadcasting=True, consume_from="earliest", local_offsets=folder
                    ) as consumer:
                        consumer.subscribe("T")
                        async def handle(message):
                            print(message.body)
                            consumer.stop()
                        await consumer.run(handle)
        trio.run(main)
    """,
    "log handler": """
        import logging
        from rocketmq_py.blocking import Reader
        from rocketmq_py.integrations.log_handler import RocketMQHandler
        handler = RocketMQHandler("T", "{address}")
        handler.setFormatter(logging.Formatter("%(message)s"))
        logging.getLogger().addHandler(handler)
        logging.warning("hello")
        handler.flush()
        with Reader("{address}") as reader:
            print([message.body for queue in reader.offsets("T") for message in reader.range(queue)][0])
    """,
}


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
async def test_programs_run_without_fork_and_eventfd(program: str) -> None:
    async with EmbeddedBroker() as broker:
        code = textwrap.dedent(program).replace("{address}", broker.name_server_address)
        assert await run("-c", WITHOUT_FORK + code) == ["b'hello'"]
