"""Run random workloads on simulated clusters and print the seeds that fail."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from itertools import repeat

import attrs

from tests.simulation.plan import Plan, brief_plan_of, plan_of
from tests.simulation.planted import PLANTED
from tests.simulation.shrinking import findings_of, shrunk
from tests.simulation.workload import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seed", type=int, help="run this seed only and print its plan")
    parser.add_argument("--trace", action="store_true", help="print all events")
    parser.add_argument("--brief", action="store_true", help="run short, small plans, as `make check` does")
    parser.add_argument(
        "--plant", choices=sorted(PLANTED), help="plant a defect, and stop at the first seed that finds it"
    )
    parser.add_argument(
        "--tries", type=int, default=100, help="maximum runs to shrink a failing plan; 0 for none"
    )
    parser.add_argument(
        "--jobs", type=int, default=_processors(), help="parallel processes; default: one per processor"
    )
    options = parser.parse_args()
    planned = brief_plan_of if options.brief else plan_of
    if options.seed is not None:
        with _planting(options.plant):
            return _run_one(planned(options.seed), trace=options.trace)
    seeds = range(options.first, options.first + options.seeds)
    return _run_many(seeds, planned, options.plant, options.tries, max(1, options.jobs))


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_one(plan: Plan, *, trace: bool) -> int:
    print(plan)
    simulation = run(plan, trace=trace)
    print(*simulation.lines, *simulation.value.findings, sep="\n")
    return bool(simulation.value.findings)


@attrs.frozen
class SeedResult:
    """The result of a seed. ``report`` has the lines to print, none if the seed passed."""

    report: list[str]
    accepted: int
    lost: int
    virtual: float
    processor: float


def _run_seed(seed: int, planned: Callable[[int], Plan], planted: str | None, tries: int) -> SeedResult:
    plan, report, accepted, lost, virtual = planned(seed), [], 0, 0, 0.0
    began = time.process_time()
    with _planting(planted):
        try:
            simulation = run(plan)
        except Exception as error:  # noqa: BLE001 - reported as a finding
            findings = [f"{type(error).__name__}: {error}"]
        else:
            findings, virtual = simulation.value.findings, simulation.seconds
            accepted, lost = simulation.value.accepted, simulation.value.lost
        if findings:
            more = " --brief" if planned is brief_plan_of else ""
            more += f" --plant {planted}" if planted else ""
            report.append(
                f"seed {seed} failed; run again: python -m tests.simulation --seed {seed} --trace{more}"
            )
            report += [f"  {finding}" for finding in findings]
            if tries:
                plan = shrunk(plan, tries=tries)
                report.append("smallest failing plan:")
                report += [f"  {line}" for line in (*str(plan).splitlines(), *findings_of(plan))]
    return SeedResult(report, accepted, lost, virtual, time.process_time() - began)


def _planting(planted: str | None) -> AbstractContextManager[object]:
    return PLANTED[planted]() if planted else nullcontext()


def _run_seeds(
    seeds: range, planned: Callable[[int], Plan], planted: str | None, tries: int, jobs: int
) -> Generator[SeedResult, None, None]:
    """Run seeds in ``jobs`` processes, and yield their results in order.

    The processes are forks, because others do not know the functions of ``__main__``, nor the defects that a
    test planted. Systems without forks run all seeds in this process.
    """
    if jobs == 1 or not hasattr(os, "fork"):
        yield from (_run_seed(seed, planned, planted, tries) for seed in seeds)
        return
    # The parent process handles interrupts.
    ignore_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    processes = ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), initializer=ignore_interrupts)
    try:
        yield from processes.map(_run_seed, seeds, repeat(planned), repeat(planted), repeat(tries))
    finally:
        processes.shutdown(cancel_futures=True)  # running seeds end within seconds


def _run_many(
    seeds: range, planned: Callable[[int], Plan], planted: str | None, tries: int, jobs: int
) -> int:
    """Run all seeds. With a planted defect, stop at the first seed that finds it."""
    results: list[SeedResult] = []
    failed, status = 0, 0
    with closing(_run_seeds(seeds, planned, planted, tries, jobs)) as running:
        try:
            for result in running:
                results.append(attrs.evolve(result, report=[]))
                if result.report:
                    print(*result.report, sep="\n", flush=True)
                    failed, status = failed + 1, 1
                    if planted:
                        break
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
    print(
        f"{len(results)} seeds, {failed} failed, {sum(result.accepted for result in results)} messages, "
        f"{sum(result.lost for result in results)} lost by crashes without a flush, "
        f"{sum(result.virtual for result in results) / 3600:.1f} hours "
        f"in {sum(result.processor for result in results):.0f} s of CPU, {jobs} at a time"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
