"""Run random workloads on simulated clusters, and say which seeds show something wrong."""

from __future__ import annotations

import argparse
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
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="this one only, with its plan")
    parser.add_argument("--trace", action="store_true", help="with all its events")
    parser.add_argument("--brief", action="store_true", help="of each the beginning, as `make check` has it")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="with a defect: is it found?")
    parser.add_argument("--tries", type=int, default=100, help="runs to shrink what fails; 0 for none")
    parser.add_argument("--jobs", type=int, default=_processors(), help="at the same time; all processors")
    options = parser.parse_args()
    planned = brief_plan_of if options.brief else plan_of
    if options.seed is not None:
        with _planting(options.plant):
            return _one(planned(options.seed), trace=options.trace)
    seeds = range(options.first, options.first + options.seeds)
    return _many(seeds, planned, options.plant, options.tries, max(1, options.jobs))


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one(plan: Plan, *, trace: bool) -> int:
    print(plan)
    simulation = run(plan, trace=trace)
    print(*simulation.lines, *simulation.value.findings, sep="\n")
    return bool(simulation.value.findings)


@attrs.frozen
class Seen:
    """What a seed came to; ``told`` are the lines to print, none if nothing is wrong."""

    told: list[str]
    accepted: int
    lost: int
    virtual: float
    processor: float


def _look_at(seed: int, planned: Callable[[int], Plan], planted: str | None, tries: int) -> Seen:
    plan, told, accepted, lost, virtual = planned(seed), [], 0, 0, 0.0
    began = time.process_time()
    with _planting(planted):
        try:
            simulation = run(plan)
        except Exception as error:  # noqa: BLE001 - it is told of
            findings = [f"{type(error).__name__}: {error}"]
        else:
            findings, virtual = simulation.value.findings, simulation.seconds
            accepted, lost = simulation.value.accepted, simulation.value.lost
        if findings:
            more = " --brief" if planned is brief_plan_of else ""
            more += f" --plant {planted}" if planted else ""
            told.append(f"seed {seed}; again: python -m tests.simulation --seed {seed} --trace{more}")
            told += [f"  {finding}" for finding in findings]
            if tries:
                plan = shrunk(plan, tries=tries)
                told.append("in short:")
                told += [f"  {line}" for line in (*str(plan).splitlines(), *findings_of(plan))]
    return Seen(told, accepted, lost, virtual, time.process_time() - began)


def _planting(planted: str | None) -> AbstractContextManager[object]:
    return PLANTED[planted]() if planted else nullcontext()


def _all_seen(
    seeds: range, planned: Callable[[int], Plan], planted: str | None, tries: int, jobs: int
) -> Generator[Seen, None, None]:
    """Run them in so many processes, and tell of them in their order."""
    if jobs == 1:
        yield from (_look_at(seed, planned, planted, tries) for seed in seeds)
        return
    ignore_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)  # they are the parent's affair
    processes = ProcessPoolExecutor(jobs, initializer=ignore_interrupts)
    try:
        yield from processes.map(_look_at, seeds, repeat(planned), repeat(planted), repeat(tries))
    finally:
        processes.shutdown(cancel_futures=True)  # those that run end within seconds


def _many(seeds: range, planned: Callable[[int], Plan], planted: str | None, tries: int, jobs: int) -> int:
    """Run them all; with a planted defect until one finds it."""
    all_seen: list[Seen] = []
    failed, status = 0, 0
    with closing(_all_seen(seeds, planned, planted, tries, jobs)) as running:
        try:
            for seen in running:
                all_seen.append(attrs.evolve(seen, told=[]))
                if seen.told:
                    print(*seen.told, sep="\n", flush=True)
                    failed, status = failed + 1, 1
                    if planted:
                        break
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
    print(
        f"{len(all_seen)} seeds, {failed} failed, {sum(seen.accepted for seen in all_seen)} messages, "
        f"{sum(seen.lost for seen in all_seen)} lost by crashes without a flush, "
        f"{sum(seen.virtual for seen in all_seen) / 3600:.1f} hours "
        f"in {sum(seen.processor for seen in all_seen):.0f} s of CPU, {jobs} at a time"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
