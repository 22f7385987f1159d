"""Run random workloads on simulated clusters, and say which seeds show something wrong."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.workload import plan_of, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="this one only, with its plan")
    parser.add_argument("--trace", action="store_true", help="with all its events")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else [options.seed]
    failed, virtual, began = [], 0.0, time.process_time()
    for seed in seeds:
        plan = plan_of(seed)
        if options.seed is not None:
            print(plan)
        try:
            simulation = run(plan, trace=options.trace)
            findings, lines, virtual = simulation.value, simulation.lines, virtual + simulation.seconds
        except Exception as error:
            findings, lines = [f"{type(error).__name__}: {error}"], ()
            if options.seed is not None:
                raise
        print(*lines, sep="\n", end="\n" if lines else "")
        if findings:
            failed.append(seed)
            print(f"seed {seed}; again: python -m tests.simulation --seed {seed} --trace")
            print(*[f"  {finding}" for finding in findings], sep="\n", flush=True)
    spent = time.process_time() - began
    print(f"{len(seeds)} seeds, {len(failed)} failed, {virtual / 3600:.1f} hours in {spent:.0f} s of CPU")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
