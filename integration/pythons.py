"""Run the tests and the type checks on every Python that this package supports.

    python -m integration.pythons [--tests-only] [--others] [--newest] PYTEST_ARGUMENT ...

Each version has its own environment under build/pythons. A version is looked up as ``python3.12``
on the PATH, then among pyenv's. A missing version is reported prominently but is no failure, since
the project does not control which Pythons a machine has.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from integration.environments import ROOT, environment

_CLASSIFIER = "Programming Language :: Python :: 3."


class NoPythonError(Exception):
    """No Python of this version was found. The message names the places searched."""


def supported_versions() -> list[str]:
    """Return the versions listed in pyproject.toml: ``["3.11", ...]``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [
        classifier.removeprefix("Programming Language :: Python :: ")
        for classifier in project["classifiers"]
        if classifier.startswith(_CLASSIFIER)
    ]


def running_version() -> str:
    """Return the version of this interpreter: ``"3.11"``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def find_python(version: str, *, pyenv: Path | None = None) -> str:
    """Return the path of a working Python of this version.

    Args:
        version: ``"3.12"``.
        pyenv: the root folder of pyenv; by default PYENV_ROOT, or ``~/.pyenv``.

    Raises:
        NoPythonError: no Python of this version works.
    """
    if version == running_version():
        return sys.executable
    pyenv = pyenv or Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = shutil.which(f"python{version}")
    # A Python on the PATH may be pyenv's shim, which fails unless that version is selected.
    tries = [on_path] if on_path else []
    tries += [str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)]
    reasons = [] if on_path else [f"python{version} is not on the PATH"]
    for path in tries:
        if reason := _why_not(path, version):
            reasons.append(f"{path}: {reason}")
        else:
            return path
    raise NoPythonError(f"{'; '.join(reasons)}; pyenv has none that runs in {pyenv / 'versions'}")


def _why_not(path: str, version: str) -> str | None:
    """Return the reason why the path is not a Python of this version, or None if it is one."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"it ends with {done.returncode}"])[-1]
    return None if done.stdout.strip() == version else f"it is {done.stdout.strip()}"


def check(version: str, python: str, pytest_arguments: list[str], *, types: bool) -> bool:
    """Run the type checks and tests on one version. Return whether all passed."""
    own = environment(f"pythons/{version}", python, ["--group", "tests", "--editable", "."])
    commands = [[str(own), "-m", "pytest", *pytest_arguments]]
    if types:
        commands.insert(0, [sys.executable, "-m", "mypy", "--python-version", version])
    ended = [subprocess.run(command, cwd=ROOT, check=False) for command in commands]
    return not any(each.returncode for each in ended)


def main(arguments: list[str]) -> int:
    """Check each version. Return the number of failures."""
    parser = argparse.ArgumentParser(prog="python -m integration.pythons", allow_abbrev=False)
    parser.add_argument("--tests-only", action="store_true", help="leave out the types")
    parser.add_argument("--others", action="store_true", help="leave out the version that this runs on")
    parser.add_argument("--newest", action="store_true", help="only the newest version that the machine has")
    options, pytest_arguments = parser.parse_known_args(arguments)
    failed, absent = [], []
    for version in supported_versions()[:: -1 if options.newest else 1]:
        if options.others and version == running_version():
            continue
        try:
            python = find_python(version)
        except NoPythonError as error:
            absent.append(f"Python {version} is NOT CHECKED: {error}")
            continue
        print(f"Python {version}: {python}", flush=True)
        try:
            passed = check(version, python, pytest_arguments, types=not options.tests_only)
        except subprocess.CalledProcessError as error:
            print(f"no environment for Python {version}: {error}", file=sys.stderr)
            passed = False
        if not passed:
            failed.append(version)
        if options.newest:
            break
    for line in absent:
        print(f"*** {line}", file=sys.stderr)
    if failed:
        print(f"failed on Python {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
