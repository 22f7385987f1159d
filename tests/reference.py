"""The public names, and the names that the pages of the reference document."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from rocketmq_py.errors import ConfigurationError

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGES = (
    "rocketmq_py",
    "rocketmq_py.admin",
    "rocketmq_py.aio",
    "rocketmq_py.allocation",
    "rocketmq_py.blocking",
    "rocketmq_py.broker",
    "rocketmq_py.codecs",
    "rocketmq_py.deduplication",
    "rocketmq_py.health",
    "rocketmq_py.hooks",
    "rocketmq_py.relay",
    "rocketmq_py.selectors",
    "rocketmq_py.spark",
    "rocketmq_py.statistics",
    "rocketmq_py.telemetry",
    "rocketmq_py.testing",
    "rocketmq_py.integrations.cloudevents",
    "rocketmq_py.integrations.data_frames",
    "rocketmq_py.integrations.faststream",
    "rocketmq_py.integrations.faststream.annotations",
    "rocketmq_py.integrations.faststream.opentelemetry",
    "rocketmq_py.integrations.faststream.prometheus",
    "rocketmq_py.integrations.kombu",
    "rocketmq_py.integrations.log_handler",
    "rocketmq_py.integrations.prometheus",
    "rocketmq_py.integrations.taskiq",
)
"""The packages whose ``__all__`` is public, except those of Airflow, which has an environment of its own."""
AIRFLOW = tuple(
    f"rocketmq_py.integrations.airflow.{name}"
    for name in ("hook", "operators", "queues", "sensors", "trigger")
)


def names_of(package: str) -> set[str]:
    """Return the public names of a package, read from its source if a library that it needs is missing."""
    try:
        return set(importlib.import_module(package).__all__)
    except (ImportError, ConfigurationError):
        path = ROOT / "src" / package.replace(".", "/")
        source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
        [listed] = re.findall(r"^__all__ = \[(.*?)\]", source, re.MULTILINE | re.DOTALL)
        return set(re.findall(r'"(\w+)"', listed))


def directives() -> set[str]:
    """Return the full names that the pages of the reference document one by one."""
    names = set()
    for page in (DOCS / "reference").glob("*.md"):
        module = ""
        for line in page.read_text().splitlines():
            if found := re.fullmatch(r"\.\. (\w+):: ([\w.]+)", line):
                directive, name = found.groups()
                if directive == "currentmodule":
                    module = name
                elif directive.startswith("auto"):
                    names.add(name if name.startswith("rocketmq_py.") else f"{module}.{name}")
    return names
