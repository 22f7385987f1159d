"""Run random workloads on simulated clusters, and say which seeds show something wrong."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

from tests.simulation.plan import plan_of
from tests.simulation.planted import PLANTED
from tests.simulation.shrinking import findings_of, shrunk
from tests.simulation.workload import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="this one only, with its plan")
    parser.add_argument("--trace", action="store_true", help="with all its events")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="with a defect: is it found?")
    parser.add_argument("--tries", type=int, default=100, help="runs to shrink what fails; 0 for none")
    options = parser.parse_args()
    with PLANTED[options.plant]() if options.plant else contextlib.nullcontext():
        if options.seed is not None:
            return _one(options.seed, trace=options.trace)
        return _many(range(options.first, options.first + options.seeds), options.plant, options.tries)


def _one(seed: int, *, trace: bool) -> int:
    plan = plan_of(seed)
    print(plan)
    simulation = run(plan, trace=trace)
    print(*simulation.lines, *simulation.value.findings, sep="\n")
    return bool(simulation.value.findings)


def _many(seeds: range, planted: str | None, tries: int) -> int:
    """Run them all; with a planted defect until one finds it."""
    failed, count, accepted, lost, virtual = [], 0, 0, 0, 0.0
    began = time.process_time()
    for seed in seeds:
        plan, count = plan_of(seed), count + 1
        try:
            simulation = run(plan)
        except Exception as error:  # noqa: BLE001 - it is told of
            findings = [f"{type(error).__name__}: {error}"]
        else:
            findings, virtual = simulation.value.findings, virtual + simulation.seconds
            accepted, lost = accepted + simulation.value.accepted, lost + simulation.value.lost
        if findings:
            failed.append(seed)
            plant = f" --plant {planted}" if planted else ""
            print(f"seed {seed}; again: python -m tests.simulation --seed {seed} --trace{plant}")
            print(*[f"  {finding}" for finding in findings], sep="\n", flush=True)
            if tries:
                plan = shrunk(plan, tries=tries)
                print("in short:", *str(plan).splitlines(), *findings_of(plan), sep="\n  ", flush=True)
            if planted:
                break
    spent = time.process_time() - began
    print(
        f"{count} seeds, {len(failed)} failed, {accepted} messages, "
        f"{lost} lost by crashes without a flush, {virtual / 3600:.1f} hours in {spent:.0f} s of CPU"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
