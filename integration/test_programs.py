"""The asyncio and threads APIs in real programs: web servers, forked workers, task queues, asyncio tests.

Each program runs as its users start it, in its own process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rocketmq_py
from rocketmq_py.testing import TestBroker, run_broker

for required in ("celery", "django", "fastapi", "gunicorn", "pytest_asyncio", "uvicorn", "uvloop"):
    pytest.importorskip(required)

ROOT = Path(__file__).parents[1]
PATIENCE = 60
TOPIC = "Orders"


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with run_broker(topics=[TOPIC]) as broker:
        yield broker


def environment(broker: TestBroker, **more: str) -> dict[str, str]:
    source = Path(rocketmq_py.__file__).parents[1]
    path = os.pathsep.join([str(source), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "NAMESRV_ADDR": broker.name_server_address, **more}


@contextmanager
def running(
    *arguments: str, env: Mapping[str, str], until: str, warns: bool = False
) -> Iterator[re.Match[str]]:
    """Run a program that must exit cleanly on SIGTERM. Its output contains ``until`` once it is ready.

    Args:
        warns: whether the program has warnings of its own.
    """
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-m", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        output = ""
        try:
            for line in process.stdout:
                output += line
                if found := re.search(until, line):
                    break
            else:
                pytest.fail(f"it has ended:\n{output}")
            yield found
        finally:
            process.send_signal(signal.SIGTERM)
            output += process.stdout.read()
            process.wait(PATIENCE)
    assert "Traceback" not in output, output
    assert warns or "Warning" not in output, output


def ask(url: str, method: str = "GET") -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=PATIENCE) as answer:
        return json.load(answer)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bodies(broker: TestBroker) -> set[str]:
    return {message.body.decode() for message in broker.messages(TOPIC)}


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_fastapi_under_uvicorn(broker: TestBroker, loop: str) -> None:
    """A route uses a producer, and a consumer runs next to the routes. The application opens and closes
    both.
    """
    arguments = ("uvicorn", "--loop", loop, "--port", "0", "--no-access-log", "examples.fastapi_app:app")
    with running(*arguments, env=environment(broker), until=r"running on (http://\S+)") as found:
        url = found[1]
        ids = {ask(f"{url}/orders/{number}", "POST")["message_id"] for number in range(20)}
        billed: list[str] = []
        while len(billed) < 20:
            billed = ask(f"{url}/billed")
        assert ask(f"{url}/ready") == {"reasons": []}
    assert sorted(billed) == sorted(bodies(broker)) == sorted(f"order {number}" for number in range(20))
    assert ids == {message.message_id for message in broker.messages(TOPIC)}


def test_django_under_gunicorn(broker: TestBroker, tmp_path: Path) -> None:
    """Workers forked from a process that has imported everything."""
    port = free_port()
    arguments = ("gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}")
    env = environment(broker, HOME=str(tmp_path))
    site = "examples.django_site:application"
    # Its warning is about the listening socket.
    with running(*arguments, site, env=env, until="Booting worker", warns=True):
        answers = [ask(f"http://127.0.0.1:{port}/orders/{number}") for number in range(40)]
    assert bodies(broker) == {f"order {number}" for number in range(40)}
    assert {answer["message_id"] for answer in answers} == {
        message.message_id for message in broker.messages(TOPIC)
    }


def test_celery(broker: TestBroker) -> None:
    """Tasks go through the broker to the forked processes of a worker, which also send."""
    env = environment(broker)
    call = "from examples.celery_tasks import order\nfor number in range(10): order.delay(number)"
    subprocess.run([sys.executable, "-c", call], env=env, cwd=ROOT, check=True, timeout=PATIENCE)
    worker = ("celery", "-A", "examples.celery_tasks", "worker", "--concurrency", "2", "--loglevel", "INFO")
    with running(*worker, env=env, until="ready", warns=True):
        broker.wait_for(TOPIC, count=20, timeout=PATIENCE)
    expected = {f"{kind} {number}" for kind in ("order", "reminder") for number in range(10)}
    assert bodies(broker) == expected


ASYNCIO_TESTS = """
import pytest
from rocketmq_py import Message
from rocketmq_py.aio import Client, Producer


@pytest.fixture
async def producer():
    async with Producer(group="senders") as producer:
        yield producer


@pytest.mark.parametrize("number", range(5))
async def test_each_has_its_own_loop(producer, number):
    result = await producer.send(Message("Orders", b"order %d" % number))
    async with Client() as client, client.admin() as admin:
        found = await admin.messages.get(result.offset_message_id)
    assert found.body == b"order %d" % number
"""


def test_pytest_asyncio(broker: TestBroker, tmp_path: Path) -> None:
    """Each test has its own event loop."""
    (tmp_path / "test_orders.py").write_text(ASYNCIO_TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        "filterwarnings = error\n"
    )
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-m", "pytest", "-q", "-p", "no:trio", str(tmp_path)],
        env=environment(broker), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert "5 passed" in ended.stdout, ended.stdout + ended.stderr
    assert bodies(broker) == {f"order {number}" for number in range(5)}


CELLS = {
    """
    import asyncio
    from rocketmq_py import Message
    from rocketmq_py.aio import Producer, PushConsumer
    producer = Producer(group="notebook")
    await producer.start()
    """: "",
    """
    result = await producer.send(Message("Orders", b"from a cell"))
    print(result.status.name)
    """: "SEND_OK\n",
    """
    async def handle(message):
        print(message.body.decode())
        consumer.stop()

    async with PushConsumer(group="notebook", consume_from="earliest") as consumer:
        consumer.subscribe("Orders")
        await consumer.run(handle)
    """: "from a cell\n",
    """
    await producer.aclose()
    print(producer.is_open, [task for task in asyncio.all_tasks() if "rocketmq_py" in repr(task)])
    """: "False []\n",
}
"""The code of cells, and their output."""


def test_jupyter_cells(broker: TestBroker) -> None:
    """Top-level await in a notebook kernel, whose event loop runs across cells."""
    pytest.importorskip("ipykernel")
    manager: Any = pytest.importorskip("jupyter_client").KernelManager()
    manager.start_kernel(env=environment(broker), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE)

        def execute(cell: str) -> str:
            output: list[str] = []

            def hear(message: Mapping[str, Any]) -> None:
                if message["msg_type"] == "stream":
                    output.append(message["content"]["text"])

            reply = client.execute_interactive(textwrap.dedent(cell), timeout=PATIENCE, output_hook=hear)
            assert reply["content"]["status"] == "ok", "".join(reply["content"]["traceback"])
            return "".join(output)

        assert [execute(cell) for cell in CELLS] == list(CELLS.values())
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    assert bodies(broker) == {"from a cell"}
