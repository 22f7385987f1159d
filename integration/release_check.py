"""Do everything that a release needs except the upload.

    python -m integration.release_check [--tag v0.1.0]

Builds the wheel and the source distribution in build/release/dist, checks their metadata and the README as
package indexes render it, installs them in empty environments on each Python that the machine has, and runs
``integration/smoke.py`` there. On the oldest Python it also tries the lowest allowed dependencies, the source
distribution, and an installation from a local package index. With a tag, it compares the version with the
tag, CITATION.cff and CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from integration.environments import ROOT
from integration.file_server import serve_files
from integration.pythons import NoPythonError, find_python, supported_versions

HOME = ROOT / "build" / "release"
DIST = HOME / "dist"


class ReleaseError(Exception):
    """The project is not ready for a release. The text says why."""


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def lowest(requirements: list[str]) -> list[str]:
    """Return requirements for exactly the lowest version that each allows: ``trio>=0.29`` is ``trio==0.29``.

    Raises:
        ReleaseError: a requirement has no lower bound.
    """
    pinned = []
    for requirement in requirements:
        found = re.fullmatch(r"([\w.-]+)>=([\w.]+)", requirement)
        if found is None:
            raise ReleaseError(f"requirement {requirement!r} is not of the form name>=version")
        pinned.append(f"{found[1]}=={found[2]}")
    return pinned


def check_version(tag: str, version: str, citation: str, changelog: str) -> None:
    """Check that all places name the version of the tag.

    Args:
        tag: ``v0.1.0``.
        version: the version in pyproject.toml.
        citation: the text of CITATION.cff.
        changelog: the text of CHANGELOG.md.

    Raises:
        ReleaseError: one of them differs.
    """
    if tag != f"v{version}":
        raise ReleaseError(f"the tag is {tag} and the version in pyproject.toml is {version}")
    if f"\nversion: {version}\n" not in citation:
        raise ReleaseError(f"CITATION.cff does not have version {version}")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'")


def check_wheel(wheel: Path) -> None:
    """Check that a wheel contains the packages with their type marks, and nothing else of the repository.

    Raises:
        ReleaseError: a file is missing, or does not belong there.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    folders = {name.split("/")[0] for name in names}
    unexpected = {
        folder
        for folder in folders
        if folder not in ("rocketmq_py", "pyspark_rocketmq") and not folder.endswith(".dist-info")
    }
    missing = {"rocketmq_py/py.typed", "pyspark_rocketmq/py.typed"} - set(names)
    if unexpected or missing:
        raise ReleaseError(f"{wheel.name}: unexpected {sorted(unexpected)}, missing {sorted(missing)}")


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def build() -> tuple[Path, Path]:
    """Build the distributions anew. Return the wheel and the source distribution."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "hatchling", "build", "-d", DIST)
    [wheel], [source] = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    _run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    check_wheel(wheel)
    return wheel, source


def new_environment(name: str, python: str) -> Path:
    """Create an empty environment, and return its folder of scripts."""
    print(f"{name}: {python}", flush=True)
    _run(python, "-m", "venv", "--clear", HOME / name)
    return HOME / name / ("Scripts" if sys.platform == "win32" else "bin")


def install(scripts: Path, *arguments: str | Path) -> None:
    """Install packages with pip."""
    _run(scripts / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def check_installed(scripts: Path) -> None:
    """Run the smoke program and the command line outside of the checkout.

    Raises:
        ReleaseError: the command line has another version.
    """
    own, home = scripts / "python", scripts.parent
    _run(own, "-m", "pip", "check", "--disable-pip-version-check")
    program = shutil.copy(ROOT / "integration" / "smoke.py", home / "smoke.py")
    subprocess.run([str(own), "-W", "error", "-I", str(program)], cwd=home, check=True)
    command = [str(scripts / "rocketmq-py"), "--version"]
    printed = subprocess.run(command, cwd=home, check=True, stdout=subprocess.PIPE, text=True).stdout
    if project()["version"] not in printed.split():
        raise ReleaseError(f"rocketmq-py --version prints {printed!r}, not {project()['version']}")


def try_out(name: str, python: str, *requirements: str | Path) -> None:
    """Install requirements in an empty environment, and check the installation."""
    scripts = new_environment(name, python)
    install(scripts, *requirements)
    check_installed(scripts)


def write_index(folder: Path, *distributions: Path) -> None:
    """Write a package index with the distributions, as static files that pip reads (PEP 503)."""
    shutil.rmtree(folder, ignore_errors=True)
    packages = folder / "simple" / "rocketmq-py"
    packages.mkdir(parents=True)
    links = []
    for path in distributions:
        shutil.copy(path, packages)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        links.append(f'<a href="{path.name}#sha256={digest}">{path.name}</a><br>')
    (packages / "index.html").write_text("\n".join(["<!doctype html>", *links, ""]))


def try_index(name: str, python: str, wheel: Path, source: Path) -> None:
    """Publish to a local index, and install the package from there as users do.

    Its dependencies come from the index that pip is configured for.

    Raises:
        ReleaseError: pip did not download the wheel from the local index.
    """
    index = HOME / "index"
    write_index(index, wheel, source)
    scripts = new_environment(name, python)
    install(scripts, *project()["dependencies"])
    with serve_files(index) as server:
        options = ("--no-deps", "--no-cache-dir", "--index-url", f"{server.url}simple/")
        install(scripts, *options, f"rocketmq-py=={project()['version']}")
    if f"/simple/rocketmq-py/{wheel.name}" not in server.requested:
        raise ReleaseError(f"pip did not download {wheel.name} from the local index: {server.requested}")
    check_installed(scripts)


def main(arguments: list[str]) -> int:
    """Check everything. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m integration.release_check", allow_abbrev=False)
    parser.add_argument("--tag", help="the tag of the release, such as v0.1.0")
    options = parser.parse_args(arguments)
    try:
        if options.tag:
            citation, changelog = (ROOT / name for name in ("CITATION.cff", "CHANGELOG.md"))
            check_version(options.tag, project()["version"], citation.read_text(), changelog.read_text())
        wheel, source = build()
        for number, version in enumerate(supported_versions()):
            try:
                python = find_python(version)
            except NoPythonError as error:
                print(f"*** Python {version} is NOT CHECKED: {error}", file=sys.stderr)
                continue
            try_out(version, python, wheel)
            if number == 0:
                try_out(f"{version}-lowest", python, wheel, *lowest(project()["dependencies"]))
                try_out(f"{version}-source", python, source)
                try_index(f"{version}-index", python, wheel, source)
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(f"not ready for a release: {error}", file=sys.stderr)
        return 1
    print(f"ready: {', '.join(path.name for path in sorted(DIST.iterdir()))} in {DIST.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
