"""Virtual environments under ``build``, with this package installed in editable mode."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


def environment(name: str, python: str, install: Sequence[str], *, not_pinned: Collection[str] = ()) -> Path:
    """Return the Python of the environment ``build/name``. Create it if it is missing or its
    requirements changed.

    Args:
        name: a path below ``build``.
        python: the interpreter that creates the environment.
        install: the arguments for ``pip install``.
        not_pinned: packages to which this project's constraints do not apply.

    Raises:
        subprocess.CalledProcessError: pip could not install the packages; its output names the cause.
    """
    home = ROOT / "build" / name
    own = home / "bin" / "python"
    done = home / "installed"
    settings = [(ROOT / file).read_text() for file in ("pyproject.toml", "constraints.txt")]
    wanted = "\n".join([python, *install, *settings])
    if done.is_file() and done.read_text() == wanted:
        return own
    subprocess.run([python, "-m", "venv", "--clear", home], check=True)
    # Modules are compiled when they are first imported. Most never are.
    pip = [str(own), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*pip, "pip>=25.1"], check=True)
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = home / "constraints.txt"
    constraints.write_text("\n".join([line for line in lines if line.split("==")[0] not in not_pinned]))
    subprocess.run([*pip, "-c", str(constraints), *install], cwd=ROOT, check=True)
    done.write_text(wanted)
    return own
