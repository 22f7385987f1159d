"""The outcome of a step from an address to a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

KEYS_ADVICE: Final = "Pass --access-key and --secret-key"


@attrs.frozen
class Step:
    """The outcome of a step: ``ok``, ``skipped`` or ``failed``. Failed ones have advice."""

    name: str
    state: str
    text: str
    advice: str = ""


class StepFailedError(Exception):
    """A step failed. The text says why, and ``advice`` what to do. ``step`` is the step that caused it."""

    def __init__(self, text: str, advice: str, *, step: str = "") -> None:
        super().__init__(text)
        self.text: str = " ".join(text.split())
        self.advice = advice
        self.step = step


class StepSkipped(Exception):  # noqa: N818 - it is no error
    """A step is not taken, for the reason in its text."""


def listed(failures: Mapping[str, str]) -> str:
    """Return addresses with the reasons why they failed."""
    return "; ".join([f"{address} ({reason})" for address, reason in failures.items()])
