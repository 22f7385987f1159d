"""Run the pipeline on an embedded broker: send orders, stop and kill the job, finish it, verify the results.

python -m examples.spark_pipeline [--directory DIRECTORY] [--plot FILE] [--orders N] [--seconds N]

It leaves no files behind except DIRECTORY and FILE. It exits with 0 if the results are complete and correct.
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
BATCHES, BATCHES_PER_RUN = 8, 2
"""The minimum number of batches of a day, and the number of batches before a run is stopped or killed."""
ATTEMPTS = 3
"""Maximum number of starts of a job that fails."""


def say(text: str) -> None:
    """Print a line and flush it, because the output may be a pipe."""
    print(text, flush=True)


@attrs.frozen
class Program:
    """One of the pipeline's programs, run in a process group of its own.

    Args:
        part: ``produce``, ``job`` or ``verify``.
        arguments: command line arguments.
        log: the file for stderr, where Spark reports errors.
    """

    part: str
    arguments: list[str]
    log: Path

    async def run(self, end: signal.Signals | None = None) -> int:
        """Run the program, forward its output, and return its exit code.

        Args:
            end: a signal to send to the job in the middle of a batch. SIGTERM stops it, SIGKILL kills it and
                its JVM.
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
                if end is not None and batches == BATCHES_PER_RUN:
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
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield line.decode()


class PipelineError(Exception):
    """A part of the pipeline failed."""


async def pipeline(directory: Path, orders: int, seconds: float, plot: Path | None) -> int:
    """Run the whole pipeline and return the exit code. Raises PipelineError if a part fails."""
    log = directory / "log.txt"

    async def job(*arguments: str, end: signal.Signals | None = None) -> None:
        program = Program(
            "job", [address, str(directory), f"--rate={max(100, orders // BATCHES)}", *arguments], log
        )
        for _ in range(ATTEMPTS):
            code = await program.run(end)
            if code == (-signal.SIGKILL if end is signal.SIGKILL else 0):
                return
            say(f"  The job failed with exit code {code}. Restarting it, as a supervisor would.")
        raise PipelineError(f"The job failed {ATTEMPTS} times. Last lines of {log}:\n{tail(log)}")

    async def produce() -> None:
        code = await Program("produce", [address, f"--orders={orders}", f"--seconds={seconds:g}"], log).run()
        if code != 0:
            raise PipelineError(f"Sending the orders failed. Last lines of {log}:\n{tail(log)}")

    async with EmbeddedBroker() as broker:
        address = broker.name_server_address
        say(f"Started an embedded broker. Name server: {address}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await job(end=signal.SIGTERM)
            await job(end=signal.SIGKILL)
        await job("--drain")
        picture = [] if plot is None else [f"--plot={plot}"]
        arguments = [address, str(directory), f"--orders={orders}", *picture]
        code = await Program("verify", arguments, log).run()
        if code != 0:
            say(f"\nLast lines of {log}:\n{tail(log)}")
        return code


def tail(file: Path, count: int = 20) -> str:
    """Return the last lines of a file."""
    return "\n".join(file.read_text(errors="replace").splitlines()[-count:])


def main() -> int:
    """Run the pipeline and return the exit code."""
    parser = argparse.ArgumentParser(prog="examples.spark_pipeline", description=__doc__.split("\n")[0])
    parser.add_argument("--directory", type=Path, help="keep the files in this new directory")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the totals: .png, .svg or .pdf")
    parser.add_argument("--orders", type=int, default=COUNT, metavar="N", help="orders per day (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=30, metavar="N", help="duration of the day (%(default)s)"
    )
    arguments = parser.parse_args()
    choose_java()  # fails before anything is started

    code = 1
    with tempfile.TemporaryDirectory(prefix="pipeline-") as temporary:
        directory = (arguments.directory or Path(temporary)).absolute()
        if directory.exists() and any(directory.iterdir()):
            parser.error(f"{directory} is not empty; its checkpoints would belong to another broker")
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
