"""Send a day of orders while the job runs, is stopped, runs, is killed, and runs to its end; then compare.

python -m examples.spark_pipeline [--directory DIRECTORY] [--plot FILE] [--orders N] [--seconds N]

It needs no broker and leaves nothing behind but what was asked for. It ends with 0 if nothing is missing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

import attrs
import trio

from examples.spark_pipeline.orders import COUNT
from integration.java_home import choose_java
from rocketmq_py.broker import EmbeddedBroker

FOLDER = Path(__file__).parent.parent.parent
BATCHES, BATCHES_A_RUN = 8, 2
"""How many batches a day makes at least, and after how many the job is stopped, and later killed."""
TRIES = 3
"""How often a job that fails is started at most."""


def say(text: str) -> None:
    """Print a line at once, also where the output is a pipe."""
    print(text, flush=True)


@attrs.frozen
class Program:
    """One of the pipeline's programs, in a process of its own, with all that it starts.

    Args:
        part: ``produce``, ``job`` or ``verify``.
        arguments: as at a shell.
        log: where stderr goes, which is where Spark says what is wrong.
    """

    part: str
    arguments: list[str]
    log: Path

    async def run(self, end: signal.Signals | None = None) -> int:
        """Run it, and show what it prints; return the exit code.

        Args:
            end: what the job gets in the middle: SIGTERM stops it, SIGKILL kills it and its Java.
        """
        module = f"examples.spark_pipeline.{self.part}"
        command = [sys.executable, "-m", module, *self.arguments]
        say(f"\n$ {shlex.join(['python', *command[1:]])}")
        with self.log.open("ab") as log:
            process = await trio.lowlevel.open_process(
                command, cwd=FOLDER, stdout=PIPE, stderr=log, start_new_session=True
            )
        try:
            assert process.stdout is not None
            batches = 0
            async for line in lines(process.stdout):
                say(f"  {line}")
                batches += line.startswith("topic batch")
                if end is not None and batches == BATCHES_A_RUN:
                    say(f"  ... in the middle of the next batch: {end.name}")
                    os.killpg(process.pid, end) if end is signal.SIGKILL else process.send_signal(end)
                    end = None
            return await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


async def lines(stream: trio.abc.ReceiveStream) -> AsyncGenerator[str]:
    """Read a stream line by line."""
    rest = b""
    async for chunk in stream:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode()


class PipelineError(Exception):
    """A part of the pipeline ended as it should not have."""


async def pipeline(directory: Path, orders: int, seconds: float, plot: Path | None) -> int:
    """Run all of it; return the exit code. Raises PipelineError if a part fails."""
    log = directory / "log.txt"

    async def job(*arguments: str, end: signal.Signals | None = None) -> None:
        program = Program(
            "job", [address, str(directory), f"--rate={max(100, orders // BATCHES)}", *arguments], log
        )
        for _ in range(TRIES):
            code = await program.run(end)
            if code == (-signal.SIGKILL if end is signal.SIGKILL else 0):
                return
            say(f"  It failed, with exit code {code}, and is started again as any supervisor would do.")
        raise PipelineError(f"The job failed {TRIES} times; the end of {log}:\n{tail(log)}")

    async def produce() -> None:
        code = await Program("produce", [address, f"--orders={orders}", f"--seconds={seconds:g}"], log).run()
        if code != 0:
            raise PipelineError(f"The orders were not sent; the end of {log}:\n{tail(log)}")

    async with EmbeddedBroker() as broker:
        address = broker.name_server_address
        say(f"An embedded broker: name server {address}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await job(end=signal.SIGTERM)
            await job(end=signal.SIGKILL)
        await job("--drain")
        picture = [] if plot is None else [f"--plot={plot}"]
        arguments = [address, str(directory), f"--orders={orders}", *picture]
        code = await Program("verify", arguments, log).run()
        if code != 0:
            say(f"\nThe end of {log}:\n{tail(log)}")
        return code


def tail(file: Path, count: int = 20) -> str:
    """Return the last lines of a file."""
    return "\n".join(file.read_text(errors="replace").splitlines()[-count:])


def main() -> int:
    """Run the pipeline; return the exit code."""
    parser = argparse.ArgumentParser(prog="examples.spark_pipeline", description=__doc__.split("\n")[0])
    parser.add_argument("--directory", type=Path, help="a new one, to keep what is written")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw totals: .png, .svg or .pdf")
    parser.add_argument("--orders", type=int, default=COUNT, metavar="N", help="of the day (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30, metavar="N", help="of the day (%(default)s)")
    arguments = parser.parse_args()
    choose_java()  # before anything is begun

    code = 1
    with tempfile.TemporaryDirectory(prefix="pipeline-") as temporary:
        directory = (arguments.directory or Path(temporary)).absolute()
        if directory.exists() and any(directory.iterdir()):
            parser.error(f"{directory} is not empty: its checkpoints belong to another broker")
        directory.mkdir(parents=True, exist_ok=True)
        plot = arguments.plot.absolute() if arguments.plot is not None else None
        try:
            code = trio.run(pipeline, directory, arguments.orders, arguments.seconds, plot)
        except* PipelineError as failures:
            for failure in failures.exceptions:
                say(f"\n{failure}")
    return code


if __name__ == "__main__":
    sys.exit(main())
