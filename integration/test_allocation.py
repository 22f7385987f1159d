"""Java's allocation strategies still assign queues as tests/data/allocations.jsonl records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.java.peer import CLIENT_OF_SERVER, run_java

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "data" / "allocations.jsonl"


@pytest.mark.usefixtures("java_and_maven")
@pytest.mark.parametrize("version", sorted(CLIENT_OF_SERVER.values()))
def test_the_golden_allocations_match_java(version: str) -> None:
    golden = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    assert run_java(version, "Allocate", "--cases", str(len(golden))) == golden
