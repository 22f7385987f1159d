"""The examples run, and use public names only."""

from __future__ import annotations

import ast
import re
import signal
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

from rocketmq_py.broker import EmbeddedBroker
from tests.programs import ENVIRONMENT, run
from tests.reference import AIRFLOW, PACKAGES, names_of

EXAMPLES = Path(__file__).parent.parent / "examples"
SVG_TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with EmbeddedBroker() as broker:
        yield broker.name_server_address


def test_no_text_installs_the_package_from_an_index() -> None:
    """It is not published. Another package could get its name there."""
    root = EXAMPLES.parent
    texts = [path for folder in ("examples", "docs", "src") for path in (root / folder).rglob("*")]
    texts = [path for path in texts if path.name.endswith((".md", ".py", ".yml", ".sh", "Dockerfile"))]
    assert len(texts) > 100
    command = re.compile(r"""pip install ['"]?rocketmq-py\[""")
    assert [str(path) for path in texts if command.search(path.read_text())] == []


async def example(name: str, *arguments: str) -> list[str]:
    return await run(str(EXAMPLES / name), *arguments)


async def test_the_demo() -> None:
    pytest.importorskip("rocksdict", reason="the extra relay is not installed")
    lines = await example("demo.py")
    assert lines[-1] == "All 10002 messages were sent, consumed and printed."
    assert "(10002 lines)" in lines
    assert any(re.fullmatch(r"  see you    \d+ ms after its time", line) for line in lines)


async def test_send_then_tail_then_consume(address: str) -> None:
    awaited, pipelined, oneway = await example("send.py", address)
    assert awaited.startswith("awaited: SEND_OK, queue ")
    assert pipelined == "pipelined: 100 stored in 4 queues"
    assert oneway == "oneway: on its way"

    lines = await example("tail.py", address)
    *messages, first, _, _, _ = lines
    assert len(messages) == 40
    assert first.startswith("broker-a queue 0: offsets 0 to 2")

    command = [sys.executable, str(EXAMPLES / "consume.py"), address]
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            lambda task_status: trio.run_process(
                command, stdout=PIPE, check=False, env=ENVIRONMENT, task_status=task_status
            )
        )
        assert process.stdout is not None
        consumed = b""
        while consumed.count(b"\n") < 101:  # all messages except the oneway one, which has no tag
            consumed += await process.stdout.receive_some()
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert b"b'awaited'" in consumed
    assert b"b'oneway'" not in consumed


async def test_a_shared_client(address: str) -> None:
    lines = await example("shared_client.py", address)
    assert sorted(lines) == [f"order {number} billed" for number in range(5)]


async def test_ordered(address: str) -> None:
    lines = await example("ordered.py", address)
    assert len(lines) == 13
    for order in range(4):
        steps = [line.split(", ")[0].split(" ", 2)[2] for line in lines if line.startswith(f"order {order}")]
        assert [step.split(":")[0] for step in steps] == ["placed", "paid", "shipped"]
        assert len({step.split(": ")[1] for step in steps}) == 1, "one queue"
    assert lines[-1] == "chosen by a function: queue 3"


async def test_pop(address: str) -> None:
    *lines, last = await example("pop.py", address)
    assert sorted(lines) == [
        "broken: fails",
        "easy: done, delivered 1 times",
        "long: done, delivered 1 times",
    ]
    assert last == "broken: done, delivered 2 times"


async def test_lite_topics(address: str) -> None:
    lines = await example("lite_topics.py", address)
    assert lines == [f"session-1 has 'session-1: line {number}'" for number in (1, 2, 3)]


async def test_delayed(address: str) -> None:
    lines = await example("delayed.py", address)
    assert [line.split(":")[0] for line in lines] == ["by level", "by seconds and by time", "by time"]


async def test_requests_and_replies(address: str) -> None:
    first, second = await example("request_reply.py", address)
    assert first == "ARE YOU THERE?"
    assert second == ", ".join(f"QUESTION {number}" for number in range(10))


async def test_typed_bodies(address: str) -> None:
    *orders, dead_letter = await example("typed_bodies.py", address)
    assert sorted(orders) == [
        "order-1: Order(number=1, amount=9.5) as application/json",
        "order-2: Order(number=2, amount=20.0) as application/msgpack",
        "order-4: Order(number=4, amount=1.0) as application/json",
    ]
    assert dead_letter.startswith("dead letter order-3: its body cannot")
    assert dead_letter.endswith("cannot be decoded as Order: Expected `int`, got `str` - at `$.number`")


async def test_examples_of_orders_share_a_broker(address: str) -> None:
    """A reader runs one example after the other."""
    await example("transaction.py", address)
    assert len(await example("typed_bodies.py", address)) == 4
    lines = await example("shared_client.py", address)
    assert sorted(lines) == [f"order {number} billed" for number in range(5)]


async def test_deduplication(address: str) -> None:
    stored = ["stored: book", "stored: chair", "stored: lamp"]
    assert await example("deduplication.py", address) == ["5 messages", *stored]


async def test_batches(address: str) -> None:
    assert await example("batches.py", address) == [
        "a list: 100 messages from offset 0 on",
        "by themselves: 1000 messages, each with its result",
    ]


async def test_blocking(address: str) -> None:
    assert await example("blocking.py", address) == [
        "awaited: 100 messages of 4 threads",
        "pipelined: 100 results",
        "many at once: 1000 outcomes, 0 of them errors",
        "read: 1200 messages; all of them undecoded as well",
    ]


async def test_lite_pull(address: str) -> None:
    assert await example("lite_pull.py", address) == [
        "got 4 queues",
        "polled 20 messages",
        "lost 4 queues",
        "read 3 again; committed 3",
        "by its id: b'19'",
        "the last of a queue: 2",
    ]


async def test_filters(address: str) -> None:
    assert await example("filters.py", address) == [
        "by tags: [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]",
        "by a SQL filter: [5, 6, 7, 8, 17, 19]",
        "refused: size >",
        "accepted: size > 5",
    ]


async def test_orderly(address: str) -> None:
    assert await example("orderly.py", address) == [
        f"order-{number}: placed, paid, shipped" for number in range(4)
    ]


async def test_broadcasting(address: str) -> None:
    lines = await example("broadcasting.py", address)
    assert sorted(lines) == ["one knows 5 values", "two knows 5 values"]


async def test_lists(address: str) -> None:
    [line] = await example("lists.py", address)
    assert line.startswith("stored 100 readings, ")
    assert 1 < int(line.split()[3]) <= 32


async def test_priorities(address: str) -> None:
    assert await example("priorities.py", address) == [
        "by topics: 10 urgent, 50 ordinary",
        "by queues: the urgent one is number 0 of queue 0",
        "by queues: 50 ordinary ones are in the other 3",
    ]


async def test_traced(address: str) -> None:
    *lines, statistics, span = await example("traced.py", address)
    assert [line.split(":")[0] for line in lines] == ["awaited to queue 0", "look it up"]
    assert (statistics, span) == ("sent 1, failed 0, retried 0", "span: send TracedTest")


async def test_an_observed_consumer(address: str) -> None:
    good, bad, numbers, *statistics, spans = await example("observing_consumer.py", address)
    assert (good, bad) == ("a good one: SUCCESS", "a bad one: FAILED")
    assert numbers == "handled 1, failed 1"
    assert statistics[0].startswith("pulled 2, handled 1, failed 1")
    assert spans == "6 spans in 2 traces: send, process, work"


async def test_transactions(address: str) -> None:
    assert await example("transaction.py", address) == [
        "book: committed",
        "lamp: committed",
        "book: rolled back, UNIQUE constraint failed: orders.item",
    ]


async def test_log_records(address: str) -> None:
    assert await example("log_records.py", address) == [
        "dropped: 0",
        "ERROR of shop: order 10 was refused (order 10)",
    ]


async def test_cloud_events(address: str) -> None:
    pytest.importorskip("cloudevents.core")
    lines = await example("cloud_events.py", address)
    assert sorted(lines) == [
        "application/cloudevents+json order.placed {'order': 7}",
        "application/json order.placed {'order': 7}",
    ]


async def test_data_frames(address: str) -> None:
    pytest.importorskip("pandas")
    assert await example("data_frames.py", address) == [
        "sent 1000 sales",
        "revenue by shop: {'1': 249500.0, '2': 250000.0}",
        "new since the last report: 0",
    ]


async def test_a_users_test_with_the_embedded_broker(tmp_path: Path) -> None:
    # The same as a project without pytest settings.
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\n")
    test = str(EXAMPLES / "embedded_broker.py")
    lines = await run("-m", "pytest", "-q", "-p", "no:asyncio", "-c", str(settings), test)
    assert lines[-1].startswith("1 passed")


async def test_a_users_tests_with_the_fixtures(tmp_path: Path) -> None:
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\n")
    # Load the plugin as an installed package does. Leave out a plugin that warns about missing settings.
    plugin = ("-p", "rocketmq_py.pytest_plugin", "-p", "no:asyncio")
    lines = await run("-m", "pytest", "-q", *plugin, "-c", str(settings), str(EXAMPLES / "test_kit.py"))
    assert lines[-1].startswith("3 passed")


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_only_public_names_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "how is it run?"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rocketmq_py"):
            module = str(node.module)
            if module not in ("rocketmq_py.codes", "rocketmq_py.errors"):  # all of their classes are public
                assert module in (*PACKAGES, *AIRFLOW)
                assert {alias.name for alias in node.names} <= names_of(module)


async def test_pictures(tmp_path: Path) -> None:
    lines = await example("pictures.py", str(tmp_path))
    words = {
        "topics": "TRANSACTION",
        "group": "Payments",
        "top": "shipping",
        "session-light": "5000 messages sent",
        "session-dark": "5000 messages sent",
    }
    assert lines == [str(tmp_path / f"{name}.svg") for name in words]
    for name, word in words.items():
        made = (tmp_path / f"{name}.svg").read_text()
        kept = (EXAMPLES / "pictures" / f"{name}.svg").read_text()
        for picture in (made, kept):
            assert word in picture
            assert "url(" not in picture
            assert "href" not in picture
        assert commands_of(kept) == commands_of(made), "run `make pictures`"


def commands_of(picture: str) -> list[str]:
    """Return the text of each line that begins with the prompt."""
    texts = [element.text or "" for element in ElementTree.fromstring(picture).iter(SVG_TEXT)]
    return [command for prompt, command in pairwise(texts) if prompt == "$"]
