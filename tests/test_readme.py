"""The README as package indexes render it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(([^)]+)\)")
PREFIXES = (
    "https://github.com/rocketmq-py/rocketmq-py/blob/main/",
    "https://raw.githubusercontent.com/rocketmq-py/rocketmq-py/main/",
)


@pytest.fixture(scope="module")
def published() -> str:
    """The README in the metadata of the distribution."""
    pytest.importorskip("hatch_fancy_pypi_readme", reason="builds need it")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata", "readme"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return built.stdout


def test_published_links_are_absolute(published: str) -> None:
    links = LINK.findall(published)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "http://", "#"))] == []


def test_links_into_the_repository_lead_to_files(published: str) -> None:
    own = [link for link in LINK.findall(published) if link.startswith(PREFIXES)]
    assert len(own) > 10
    for link in own:
        path = link.split("/main/", 1)[1].split("#")[0]
        assert (ROOT / path).exists(), link


def test_pictures_are_raw_files(published: str) -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", published)
    assert pictures
    assert all(picture.startswith(PREFIXES[1]) for picture in pictures)


def test_pictures_for_dark_and_light_pages_are_raw_files(published: str) -> None:
    addresses = re.findall(r'(?:src|srcset)="([^"]+)"', published)
    assert len(addresses) == 2
    for address in addresses:
        assert address.startswith(PREFIXES[1])
        assert (ROOT / address.removeprefix(PREFIXES[1])).exists(), address
