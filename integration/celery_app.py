"""A Celery application on RocketMQ, for the tests of its workers. Tasks write lines to the file OUTPUT."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Reject

import rocketmq_py.integrations.kombu  # noqa: F401  # registers rocketmq://

app = Celery("tests", broker=os.environ.get("BROKER_URL"))
app.conf.update(json.loads(os.environ.get("CELERY_SETTINGS", "{}")))


def write(line: str) -> None:
    with open(os.environ["OUTPUT"], "a") as output:
        output.write(f"{line}\n")


@app.task  # type: ignore[untyped-decorator]
def note(line: Any) -> Any:
    write(f"{line}")
    return line


@app.task  # type: ignore[untyped-decorator]
def count_down(number: int) -> None:
    """Send the next task from within a task: worker processes send, too."""
    write(f"down {number}")
    if number:
        count_down.delay(number - 1)


@app.task(bind=True)  # type: ignore[untyped-decorator]
def rejected_once(self: Any) -> None:
    write(f"rejected {self.request.delivery_info['redelivered']}")
    if not self.request.delivery_info["redelivered"]:
        raise Reject("not yet", requeue=True)


@app.task(bind=True, max_retries=1)  # type: ignore[untyped-decorator]
def retried(self: Any) -> None:
    write(f"retried {self.request.retries}")
    if not self.request.retries:
        raise self.retry(countdown=2)


@app.task  # type: ignore[untyped-decorator]
def quick(number: int) -> None:
    time.sleep(0.05)
    write(f"{number}")


@app.task  # type: ignore[untyped-decorator]
def slow() -> None:
    write("slow begins")
    time.sleep(3)
    write("slow ends")


@app.task  # type: ignore[untyped-decorator]
def killed() -> None:
    """Block on the first run, so that the worker can be killed. The output shows each run."""
    is_first = "killed" not in Path(os.environ["OUTPUT"]).read_text()
    write(f"killed {os.getpid()}")
    if is_first:
        time.sleep(600)
