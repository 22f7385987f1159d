"""Pyright knows the type of every public symbol."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from integration.environments import ROOT, environment

FETCH_SECONDS = 300.0
"""The timeout in seconds for the download of pyright."""


TYPED_BODIES = """
import attrs
from typing_extensions import assert_type
from rocketmq_py import Message, Producer, PushConsumer, ReceivedMessage, aio, blocking
from rocketmq_py.codecs import MESSAGEPACK
from rocketmq_py.deduplication import Deduplicate, SQLiteStore

@attrs.frozen
class Order:
    number: int

async def handle(order: Order) -> None: ...
async def handle_with_message(order: Order, message: ReceivedMessage) -> None: ...
async def handle_list(orders: list[Order]) -> None: ...
def handle_plain(order: Order) -> None: ...

async def main(
    consumer: PushConsumer, on_loop: aio.PushConsumer, in_threads: blocking.PushConsumer, producer: Producer
) -> None:
    await consumer.run(handle)
    await consumer.run(handle_with_message)
    await on_loop.run(handle_list)
    in_threads.run(handle_plain)
    await consumer.run(Deduplicate(SQLiteStore("handled.sqlite"), key="keys")(handle_with_message))
    message = Message.of("T", Order(1), "tag", sharding_key="k", codec=MESSAGEPACK)
    assert_type(message, Message)
    reply = await producer.request(message)
    assert_type(reply.decode(Order), Order)
    assert_type(reply.decode(list[Order]), list[Order])
"""
"""A program whose types need no cast."""

SETTINGS = """
from rocketmq_py import Client, Producer, aio, blocking

def main(client: Client, on_loop: aio.Client, in_threads: blocking.Client) -> None:
    Producer("a:1", tls=True, retries=5)
    client.producer("g", retries=5)
    client.producer("g", tls=True)  # wrong
    client.push_consumer("g", orderly=True)
    client.push_consumer("g", ordered=True)  # wrong
    on_loop.pop_consumer("g", trace=True)
    on_loop.pop_consumer("g", zone="a")  # wrong
    in_threads.lite_topic_consumer("g", parent="T")
    in_threads.lite_topic_consumer("g", parent="T", namespace="n")  # wrong
"""
"""A program with settings that type checkers refuse."""
WRONG_LINES = [number for number, line in enumerate(SETTINGS.split("\n"), 1) if "# wrong" in line]


@pytest.fixture
def pyright() -> Path:
    """The Python of an environment with pyright and an installed copy of the package."""
    try:
        python = environment("pyright", sys.executable, ["pyright"])
        # The first call fetches Node and pyright.
        subprocess.run([python, "-m", "pyright", "--version"], check=True, timeout=FETCH_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"pyright cannot be had here: {error}")
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
    installed = packages / "rocketmq_py"
    shutil.rmtree(installed, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "rocketmq_py", installed, ignore=shutil.ignore_patterns("__pycache__"))
    return python


def run_pyright(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "pyright", *arguments],
        cwd=folder,
        # Pyright asks the first Python on the PATH where packages are.
        env={**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def run_mypy(program: Path) -> subprocess.CompletedProcess[str]:
    arguments = ["--strict", "--config-file", os.devnull, "--no-pretty", str(program)]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *arguments],
        cwd=ROOT / "src",
        capture_output=True,
        text=True,
        check=False,
    )


def test_typed_bodies_need_no_casts(pyright: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"# pyright: strict\n{TYPED_BODIES}")
    completed = run_pyright(pyright, tmp_path, str(program))
    assert completed.returncode == 0, completed.stdout
    completed = run_mypy(program)
    assert completed.returncode == 0, completed.stdout


def test_mypy_refuses_wrong_settings(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SETTINGS)
    found = re.findall(r":(\d+): error: Unexpected keyword argument", run_mypy(program).stdout)
    assert [int(number) for number in found] == WRONG_LINES


def test_pyright_refuses_wrong_settings(pyright: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SETTINGS)
    found = re.findall(r":(\d+):\d+ - error: No parameter named", run_pyright(pyright, tmp_path).stdout)
    assert [int(number) for number in found] == WRONG_LINES


def test_pyright_finds_every_symbol_complete(pyright: Path, tmp_path: Path) -> None:
    """Pyright checks the package as an installed one, together with the other packages installed for these
    tests.
    """
    completed = run_pyright(
        pyright, tmp_path, "--verifytypes", "rocketmq_py", "--ignoreexternal", "--outputjson"
    )
    (installed,) = pyright.parent.parent.glob("lib/python*/site-packages/rocketmq_py")
    assert completed.stdout.startswith("{"), completed.stderr
    found = json.loads(completed.stdout)["typeCompleteness"]
    assert Path(found["packageRootDirectory"]) == installed
    # Airflow has an environment of its own, so the base classes of this integration are unknown here.
    exported = [
        symbol
        for symbol in found["symbols"]
        if symbol["isExported"] and not symbol["name"].startswith("rocketmq_py.integrations.airflow.")
    ]
    assert len(exported) > 8000
    assert [one["name"] for one in exported if one["isTypeAmbiguous"] or not one["isTypeKnown"]] == []
