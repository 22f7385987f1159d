"""Each page of the documentation in headless Chromium."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from integration.chromium import find_chromium
from integration.environments import ROOT
from integration.site_pages import check_pages, paths_of

BAD = """<!doctype html><html><body><div style="width: 600px">wide</div>
<script src="missing.js"></script><script>console.error("broken")</script>
<script src="http://127.0.0.2:9/other.js"></script></body></html>"""
GOOD = "<!doctype html><html><head><link rel=icon href=data:,></head><body>text</body></html>"


@pytest.fixture(scope="module")
def chromium() -> str:
    path = find_chromium()
    if path is None:
        pytest.skip("there is no Chromium on the PATH")
    return path


def test_problems_of_a_page_are_found(chromium: str, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(BAD)
    (tmp_path / "good.html").write_text(GOOD)
    problems = check_pages(tmp_path, chromium, ["good.html", "bad.html"])
    assert {problem.split(" ")[0] for problem in problems} == {"bad.html"}
    assert "bad.html (dark): console: ['broken']" in problems
    for text in ("wider than the window", "status 404", "request to another host", "failed request"):
        assert any(text in problem for problem in problems), text
    assert not any("wider" in problem for problem in problems if "laptop" in problem)


def test_every_page_loads_without_problems(chromium: str, tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="needs the group docs")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-q", "-d", tmp_path / "doctrees", ROOT / "docs", site]
    subprocess.run([str(part) for part in command], check=True)
    paths = paths_of(site)
    assert len(paths) > 40
    assert check_pages(site, chromium, paths) == []
