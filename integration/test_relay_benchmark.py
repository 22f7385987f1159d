"""The benchmark of the relay: it runs, and it reports measured figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.benchmarks.relay import Figures, Load, parse, run, table


def test_figures_match_the_messages() -> None:
    figures = Figures(way="w", late_ms=[-1, *range(199)], burst=1234.4, broker_bytes=400)
    assert (figures.p50_ms, figures.p99_ms, figures.early) == (99, 197, 1)
    line = table(Load(100, 2, 1, 200), [figures]).splitlines()[-1]
    assert line == "| w | 99 | 197 | 1 | 1234 | 400 | - | - |"


@pytest.mark.parametrize("words", [("--rate", "0"), ("--waiting", "0"), ("--rate", "1", "--seconds", "1")])
def test_invalid_arguments_are_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert "error: " in capsys.readouterr().err


@pytest.mark.usefixtures("java_and_maven")
def test_it_measures_the_relay_and_the_timer(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    words = ("--rate", "200", "--seconds", "2", "--waiting", "1000", "--json", str(file))
    relay, timer = run(parse(words))
    assert [len(row.late_ms) for row in (relay, timer)] == [400, 400]
    assert relay.early == 0
    assert relay.burst > 0
    assert relay.store_bytes is not None
    assert relay.store_bytes > 200
    assert [row["way"] for row in json.loads(file.read_text())] == ["relay on 4.9.7", "timer of 5.5.0"]
