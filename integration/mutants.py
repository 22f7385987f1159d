"""Change one place of the code at a time, and see whether a test fails. A mutant that survives shows a gap.

    python -m integration.mutants [--count 300] [--seed 45] [--only PLACE ...] [--jobs 2] [--json FILE]

The mutants are drawn at random from src/rocketmq_py without the Spark format. The same seed draws the same
mutants from the same code. One run of `make unit` with coverage tells which tests reach a place. The fastest
of them run first, then all tests of their files, then everything that `make unit` runs. Each job works in a
copy of the repository in a temporary folder.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import attrs

from integration.covering_tests import CoveringTests, recording
from integration.environments import ROOT

PACKAGE = Path("src/rocketmq_py")
LONGEST = 1200
"""Seconds after which a run of tests counts as failed."""
LONGEST_TEST = 120
"""Seconds after which a test counts as failed: a mutant may wait for ever."""
COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
SEVERAL = ("-n", "3", "--dist", "worksteal")
"""Options for three processes. Their start takes as long as a hundred tests."""
ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Mod: "*"}


@attrs.frozen
class Mutant:
    """One changed place.

    Attributes:
        file: path of the module below the root of the repository.
        node: the code that is replaced.
        kind: how it is changed.
        text: the new code.
    """

    file: Path
    node: ast.expr | ast.stmt = attrs.field(repr=False, eq=False)
    kind: str
    text: str

    @property
    def place(self) -> str:
        """The text that ``--only`` takes."""
        return f"{self.file}:{self.node.lineno}:{self.node.col_offset}:{self.kind}"

    def apply(self, source: str) -> str:
        """Return the changed module."""
        lines = source.encode().splitlines(keepends=True)
        begin, end = self.node.lineno - 1, (self.node.end_lineno or 0) - 1
        tail = lines[end][self.node.end_col_offset :]
        head = lines[begin][: self.node.col_offset]
        return b"".join([*lines[:begin], head, self.text.encode(), tail, *lines[end + 1 :]]).decode()


def mutants_of(file: Path, source: str) -> Iterator[Mutant]:
    """Yield each mutant of a module. Annotations, and code that only type checkers see, have none."""
    tree = ast.parse(source)
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        for kind, place, text in _changes(node):
            yield Mutant(file, place, kind, text)
        waiting += [
            child
            for name, value in ast.iter_fields(node)
            if name not in ("annotation", "returns", "decorator_list")
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST)
        ]


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield kinds of changes, the replaced code and the new code. Parentheses keep the precedence."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
            text = f"({ast.unparse(left)} {COMPARISONS[type(operator)]} {ast.unparse(right)})"
            yield "comparison", node, text
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield "and-or", node, f"({word.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", node, f"bool({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
            text = f"(({ast.unparse(left)}) {ARITHMETIC[type(operator)]} ({ast.unparse(right)}))"
            yield "arithmetic", node, text
        case ast.Constant(value=bool() as value):
            yield "constant", node, str(not value)
        case ast.Constant(value=int() as value):
            yield "constant", node, str(value + 1)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(
            test, ast.Constant | ast.Compare
        ):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            yield "call", node, "pass"
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return", node, "return None"
        case ast.Raise():
            yield "raise", node, "pass"


def draw(count: int, seed: int) -> list[Mutant]:
    """Return mutants of all modules, each with the same chance."""
    files = [
        file.relative_to(ROOT)
        for file in sorted((ROOT / PACKAGE).rglob("*.py"))
        if "spark" not in file.relative_to(ROOT / PACKAGE).parts
    ]
    found = [mutant for file in files for mutant in mutants_of(file, (ROOT / file).read_text())]
    return random.Random(seed).sample(sorted(found, key=lambda mutant: mutant.place), count)


def stages(mutant: Mutant, covering: CoveringTests) -> Iterator[list[str]]:
    """Yield the arguments of each run of pytest.

    First the fastest tests that reach the place, then all tests of their files, then everything.
    """
    tests = covering.of(mutant.file, mutant.node.lineno, mutant.node.end_lineno or mutant.node.lineno)
    if tests:
        yield list(covering.fastest(tests))
        yield [*sorted({test.partition("::")[0] for test in tests}), *SEVERAL]
    yield ["tests", *SEVERAL]


def _ignored() -> list[str]:
    """Return the tests that `make unit` leaves out, as options of pytest."""
    shown = ["make", "--dry-run", "--always-make", "--no-print-directory", "unit"]
    done = subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True)
    return [word for word in done.stdout.split() if word.startswith("--ignore=")]


def killed_by(mutant: Mutant, copy: Path, covering: CoveringTests, ignored: Sequence[str]) -> str | None:
    """Return the test that failed, or the end of the output if none is named. None if all tests pass."""
    changed = copy / mutant.file
    original = changed.read_text()
    try:
        _write(changed, mutant.apply(original))
        for arguments in stages(mutant, covering):
            if failed := _failure(copy, [*arguments, *ignored]):
                return failed
        return None
    finally:
        _write(changed, original)


def _write(file: Path, text: str) -> None:
    """Write a module with a new time. Python compares times with those of cached bytecode in seconds."""
    before = int(file.stat().st_mtime)
    file.write_text(text)
    os.utime(file, (before + 1, before + 1))


def _failure(copy: Path, arguments: Sequence[str]) -> str | None:
    """Run tests until one fails that fails again alone, and return its name. None if there is none."""
    passed: list[str] = []
    while failed := _first_failure(copy, [*arguments, *passed]):
        if _fails_alone(copy, failed):
            return failed
        passed.append(f"--deselect={failed.partition(' - ')[0].partition(' ')[2]}")
    return None


def _first_failure(copy: Path, arguments: Sequence[str]) -> str | None:
    """Run tests until one fails. Return its name, or the end of the output. None if all passed."""
    failed = _failures(copy, ["-x", *arguments])
    return failed[0] if failed else None


def _failures(copy: Path, arguments: Sequence[str]) -> list[str]:
    """Run tests. Return the names of those that failed, or the end of the output if none is named."""
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-m"]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "EXAMPLES": "10"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command += ["not other_api and not long", *arguments]
    command += ["-o", f"faulthandler_timeout={LONGEST_TEST}", "-o", "faulthandler_exit_on_timeout=true"]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return ["time of all tests"]
    if done.returncode in (0, 5):  # 5: no test was selected
        return []
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if not failed and "Timeout (" in done.stderr:  # of faulthandler
        return ["time of a test"]
    if not failed and "not found: " in done.stderr:  # the mutant has changed a test's name: the others decide
        return []
    return failed or [(done.stdout + done.stderr)[-300:]]


def _fails_alone(copy: Path, failed: str) -> bool:
    """Return False for a test that passes alone: on a busy machine, it may have failed for lack of time."""
    outcome, _, test = failed.partition(" - ")[0].partition(" ")
    return outcome not in ("FAILED", "ERROR") or bool(_failures(copy, [test]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each mutant, the survivors, and the score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=45)
    parser.add_argument("--only", nargs="*", help="places of mutants, as a run prints them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args(arguments)
    if options.only:
        files = sorted({Path(place.split(":")[0]) for place in options.only})
        every = [mutant for file in files for mutant in mutants_of(file, (ROOT / file).read_text())]
        mutants = [mutant for mutant in every if mutant.place in options.only]
    else:
        mutants = draw(options.count, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        results = _run(mutants, options.jobs, Path(folder))
    survivors = [result for result in results if result["killed by"] is None]
    for survivor in survivors:
        print(f"survived: {survivor['place']}: {survivor['text']}")
    kinds = Counter(result["place"].rsplit(":", 1)[1] for result in survivors)
    print(
        f"{len(results) - len(survivors)} of {len(results)} mutants killed; survivors by kind: {dict(kinds)}"
    )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def _run(mutants: Sequence[Mutant], jobs: int, folder: Path) -> list[dict[str, Any]]:
    """Try mutants in ``jobs`` copies of the repository, whose tests must pass without a change."""
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        copies.put(_copy(folder / str(number)))
    ignored = _ignored()
    for failed in _failures(folder / "0", ["tests", *SEVERAL, *ignored, *recording(folder)]):
        if _fails_alone(folder / "0", failed):
            raise SystemExit(f"without a change of the code, a test fails: {failed}")
    covering = CoveringTests.read(folder, folder / "0")

    def judge(mutant: Mutant) -> dict[str, Any]:
        copy = copies.get()
        try:
            failed = killed_by(mutant, copy, covering, ignored)
        finally:
            copies.put(copy)
        print(f"{'survived' if failed is None else 'killed'}: {mutant.place}: {failed}", flush=True)
        return {"place": mutant.place, "text": mutant.text, "killed by": failed}

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(judge, mutants))


def _copy(folder: Path) -> Path:
    """Copy the files that git tracks to a folder, for one job, and return the folder."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in done.stdout.splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


if __name__ == "__main__":
    main()
