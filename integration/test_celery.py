"""Celery's own workers and commands on RocketMQ, each in its own process, as users start them."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import rocketmq_py
from rocketmq_py.testing import TestBroker, run_broker

pytest.importorskip("celery")

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
_counter = itertools.count()
POOLS = ("prefork", "threads", "solo")
SETTINGS: dict[str, Any] = {
    "task_acks_late": True,
    "worker_prefetch_multiplier": 1,
    "task_ignore_result": True,
    "broker_connection_retry_on_startup": True,
}
OPTIONS: dict[str, Any] = {
    "wait_time_seconds": 0.2,
    "connection_loss_timeout": 1.0,
    "visibility_timeout": 5.0,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cluster_name" in metafunc.fixturenames:
        names: str = metafunc.config.getoption("--clusters", default="embedded")
        metafunc.parametrize("cluster_name", names.split(","))


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    """An embedded broker, for tests of its failures."""
    with run_broker() as broker:
        yield broker


@pytest.fixture
def scene(cluster_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    """An application on a cluster, with topics of its own."""
    if cluster_name == "embedded":
        address = request.getfixturevalue("broker").name_server_address
    else:
        address = request.getfixturevalue("real_cluster")(cluster_name).name_servers
    return Scene(f"rocketmq://{address}", tmp_path)


class Scene:
    """A Celery application, its workers, and the output of its tasks."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"
        self.output.touch()
        path = os.pathsep.join([str(Path(rocketmq_py.__file__).parents[1]), str(ROOT)])
        self.env = {
            **os.environ, "PYTHONPATH": path, "BROKER_URL": url, "OUTPUT": str(self.output),
        }  # fmt: skip
        self.set()

    def set(self, **settings: Any) -> None:
        """Change Celery settings in addition to those of all tests."""
        options = {**OPTIONS, "topic_prefix": f"celery-{os.getpid()}-{next(_counter)}-"}
        settings = {**SETTINGS, "broker_transport_options": options, **settings}
        self.env["CELERY_SETTINGS"] = json.dumps(settings)

    def celery(self, *arguments: str, good: bool = True) -> str:
        """Run a Celery command and return its output."""
        ended = subprocess.run(
            [sys.executable, "-m", "celery", "-A", "integration.celery_app", *arguments],
            env=self.env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert (ended.returncode == 0) is good, ended.stdout + ended.stderr
        return ended.stdout

    def call(self, code: str) -> str:
        """Run a program that imports the tasks and return its output."""
        program = f"from integration.celery_app import *\n{code}"
        return subprocess.run(
            [sys.executable, "-c", program],
            env=self.env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE,
        ).stdout  # fmt: skip

    @contextmanager
    def worker(self, *arguments: str, name: str = "one", pool: str = "prefork") -> Iterator[Worker]:
        """Run a worker until it is ready. Stop it cleanly afterwards unless it was killed."""
        worker = Worker(self, name, pool, arguments)
        try:
            worker.wait_for_log("ready")
            yield worker
            worker.stop()
        finally:
            worker.kill()

    def lines(self) -> list[str]:
        return self.output.read_text().splitlines()

    def wait_for(self, *wanted: str) -> None:
        """Wait until tasks have written these lines."""
        wait_until(lambda: set(wanted) <= set(self.lines()), self.lines, self.lines)

    def wait_for_count(self, count: int) -> None:
        """Wait until tasks have written ``count`` different lines."""
        wait_until(lambda: len(set(self.lines())) >= count, self.lines, self.lines)


class Worker:
    """A worker's process group, and its log."""

    def __init__(self, scene: Scene, name: str, pool: str, arguments: tuple[str, ...]) -> None:
        self._log = scene.folder / f"{name}-{pool}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "dev", "-m", "celery", "-A", "integration.celery_app", "worker",
                 "--hostname", name, "--pool", pool, "--concurrency", "2", "--loglevel", "INFO", *arguments],
                env=scene.env, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_for_log(self, pattern: str) -> None:
        wait_until(lambda: re.search(pattern, self.log), lambda: self.log)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE)
            assert self._process.returncode == 0, self.log

    def wait_for_end(self) -> None:
        self._process.wait(PATIENCE)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)


def wait_until(
    condition: Callable[[], object], seen: Callable[[], object], progress: Callable[[], object] = lambda: None
) -> None:
    """Poll a condition that other processes fulfil. Fails after PATIENCE seconds without progress."""
    deadline, last = time.monotonic() + PATIENCE, progress()
    while not condition():
        if (now := progress()) != last:  # slow on a busy machine, but not stuck
            deadline, last = time.monotonic() + PATIENCE, now
        assert time.monotonic() < deadline, seen()
        time.sleep(0.05)


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_runs_tasks(scene: Scene, pool: str) -> None:
    scene.call("for number in range(20): note.delay(number)")
    with scene.worker(pool=pool) as worker:
        scene.call("count_down.delay(3), rejected_once.delay(), retried.delay()")
        scene.call("note.apply_async(['late'], countdown=3), note.apply_async(['never'], countdown=600)")
        downs = [f"down {number}" for number in range(4)]
        scene.wait_for(*map(str, range(20)), *downs, "rejected True", "retried 1", "late")
        to_it = ("--destination", "celery@one", "--timeout", "10")
        assert "pong" in scene.celery("inspect", "ping", *to_it)
        assert "celery" in scene.celery("inspect", "active_queues", *to_it)
        assert "OK" in scene.celery("control", "add_consumer", "more", *to_it)
        scene.call("note.apply_async(['of another queue'], queue='more')")
        scene.wait_for("of another queue")
    lines = scene.lines()
    # Delivery is at least once: a busy machine may exceed the short visibility timeout.
    assert {*lines} == {
        *map(str, range(20)), *downs, "rejected False", "rejected True", "retried 0", "retried 1", "late",
        "of another queue",
    }  # fmt: skip
    assert "CRITICAL" not in worker.log
    assert "UserWarning" not in worker.log
    assert "dead letter" not in worker.log


def test_several_workers_share_tasks_and_all_answer(scene: Scene) -> None:
    with scene.worker(name="one"), scene.worker(name="two"), scene.worker(name="three", pool="threads"):
        scene.call("for number in range(60): note.delay(number)")
        scene.wait_for(*map(str, range(60)))
        assert scene.celery("inspect", "ping", "--timeout", "5").count("pong") == 3
    assert {*scene.lines()} == {*map(str, range(60))}


@pytest.mark.parametrize("pool", POOLS)
def test_a_killed_worker_loses_no_task(scene: Scene, pool: str) -> None:
    scene.call("killed.delay()")
    with scene.worker(pool=pool) as worker:
        wait_until(scene.lines, lambda: worker.log)
        worker.kill()
    with scene.worker(name="two", pool=pool) as worker:
        wait_until(lambda: len(scene.lines()) >= 2, lambda: worker.log)


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_that_stops_waits_for_its_running_task(scene: Scene, pool: str) -> None:
    scene.call("slow.delay()")
    with scene.worker(pool=pool) as worker:
        scene.wait_for("slow begins")
        worker.stop()
    assert scene.lines() == ["slow begins", "slow ends"]


def test_many_kills_lose_no_task(scene: Scene) -> None:
    scene.call("for number in range(200): quick.delay(number)")
    for kill in range(1, 4):
        with scene.worker(name=f"killed{kill}") as worker:
            scene.wait_for_count(40 * kill)
            worker.kill()
    with scene.worker(name="last"):
        scene.wait_for(*map(str, range(200)))


def test_a_killed_process_of_a_pool_loses_no_task(scene: Scene) -> None:
    scene.set(task_reject_on_worker_lost=True)
    scene.call("killed.delay()")
    with scene.worker() as worker:
        wait_until(scene.lines, lambda: worker.log)
        os.kill(int(scene.lines()[0].split()[1]), signal.SIGKILL)
        wait_until(lambda: len(scene.lines()) >= 2, lambda: worker.log)


def test_processes_are_forked_while_the_worker_consumes(scene: Scene) -> None:
    with scene.worker("--max-tasks-per-child", "1"):
        scene.call("count_down.delay(10)")
        scene.wait_for("down 0")
    # A queue that moves from one process to the next may deliver a task twice on brokers 4.x.
    assert {*scene.lines()} == {f"down {number}" for number in range(11)}


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_reconnects_after_an_outage(broker: TestBroker, tmp_path: Path, pool: str) -> None:
    scene = Scene(f"rocketmq://{broker.name_server_address}", tmp_path)
    with scene.worker(pool=pool) as worker:
        scene.call("note.delay('before')")
        scene.wait_for("before")
        broker.crash()
        worker.wait_for_log("Connection to broker lost")
        broker.restart()
        scene.call("note.delay('after')")
        scene.wait_for("after")
        assert "pong" in scene.celery("inspect", "ping", "--destination", "celery@one", "--timeout", "10")


def test_a_worker_fails_over_to_the_next_url(broker: TestBroker, tmp_path: Path) -> None:
    scene = Scene(f"rocketmq://127.0.0.1:1;rocketmq://{broker.name_server_address}", tmp_path)
    with scene.worker():
        scene.call("note.delay('there')")
        scene.wait_for("there")


def test_commands(scene: Scene) -> None:
    scene.call("for number in range(7): note.delay(number)")
    assert "7 messages" in scene.celery("purge", "--force")
    with scene.worker() as worker:
        scene.call("note.delay('kept')")
        scene.wait_for("kept")
        assert "1 node online" in scene.celery("status", "--timeout", "10")
        scene.celery("control", "shutdown", good=False)  # the command exits without an answer
        worker.wait_for_end()
    assert scene.lines() == ["kept"]


EVENTS = """
with app.connection_for_read() as connection:
    found = []
    receiver = app.events.Receiver(connection, handlers={"*": lambda event: found.append(event["type"])})
    consumer = receiver.itercapture(timeout=30, wakeup=False)
    while "task-succeeded" not in found:
        if len(found) == 1:
            note.delay("seen")
        next(consumer)
print(*found)
"""


def test_events_reach_monitors(scene: Scene) -> None:
    with scene.worker("--events"):
        found = scene.call(EVENTS).split()
    assert {"worker-heartbeat", "task-received", "task-started", "task-succeeded"} <= set(found)
