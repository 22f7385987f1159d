"""The site that ``make docs`` builds: navigation, reference, and no files of other hosts."""

from __future__ import annotations

import fcntl
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rocketmq_py
from integration.chromium import find_chromium
from integration.site_pages import check_pages, paths_of
from tests.reference import DOCS, PACKAGES, directives, names_of

pytest.importorskip("sphinx", reason="needs the group docs")

from translated_pages import LANGUAGE, PAGES, UNTRANSLATED

ALIASES = {
    "rocketmq_py.Admin",  # documented in rocketmq_py.admin
    "rocketmq_py.Delivery",  # documented in rocketmq_py.errors
    "rocketmq_py.RocketMQError",
}
"""Names that are also public in another package, whose page documents them."""


def test_index_lists_every_page_once() -> None:
    index = (DOCS / "index.md").read_text()
    entries = [
        line
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", index, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if line and not line.startswith(":")
    ]
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"} | {"reference/index"}
    assert sorted(entries) == sorted(pages)


def test_reference_lists_every_page_of_its_folder() -> None:
    index = (DOCS / "reference" / "index.md").read_text().splitlines()
    pages = {path.stem for path in (DOCS / "reference").glob("*.md")} - {"index"}
    assert pages <= set(index)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_an_entry_in_the_reference(package: str) -> None:
    public = {f"{package}.{name}" for name in names_of(package)}
    assert public - directives() - ALIASES == set()


def test_page_on_stability_and_docstring_name_the_same_public_packages() -> None:
    page = (DOCS / "api-stability.md").read_text()
    section = page.split("## The public API")[1].split("- the pytest fixtures")[0]
    named = set(re.findall(r"`(rocketmq_py\.\w+)`", section))
    assert set(re.findall(r"``(rocketmq_py\.\w+)``", rocketmq_py.__doc__ or "")) == named
    with_reference = {".".join(package.split(".")[:2]) for package in PACKAGES} - {"rocketmq_py"}
    assert named == with_reference | {"rocketmq_py.codes", "rocketmq_py.errors"}


def test_documented_names_that_are_not_modules_exist() -> None:
    for name in sorted(directives()):
        package, _, last = name.rpartition(".")
        if package in PACKAGES and "integrations" not in package:
            assert hasattr(importlib.import_module(package), last), name


def build(html: Path, *options: str) -> None:
    """Build the site, and fail on warnings."""
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", *options, str(DOCS), str(html)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The built site, with the Chinese one in its folder ``zh``. All processes of a run share it."""
    pytest.importorskip("sphinx", reason="needs the group docs")
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "site"
    with (folder.parent / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            shutil.rmtree(folder, ignore_errors=True)
            build(folder / "html", "-d", str(folder / "doctrees"))
            # Sphinx writes compiled catalogues next to the others.
            catalogues = shutil.copytree(DOCS / "locale", folder / "locale")
            options = (
                "-d",
                str(folder / "doctrees-zh"),
                f"-Dlanguage={LANGUAGE}",
                f"-Dlocale_dirs={catalogues}",
            )
            build(folder / "html" / "zh", *options)
            (folder / "built").touch()
    return folder / "html"


def assert_nothing_loaded_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(list(DOCS.glob("*.md")))
    loaded = re.compile(r'<(?:script|img|iframe|source)[^>]* src="([^"]*)"|<link [^>]*href="([^"]*)"')
    for page in pages:
        for source, link in loaded.findall(page.read_text()):
            assert not re.match(r"(https?:)?//", source or link), (page.name, source or link)
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", style.read_text()), style
    assert (site / "searchindex.js").exists()


@pytest.mark.long
def test_site_builds_without_warnings_and_loads_nothing_from_other_hosts(site: Path) -> None:
    assert_nothing_loaded_from_other_hosts(site)


@pytest.mark.long
def test_every_page_loads_in_chromium_without_problems(site: Path) -> None:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no Chromium on the PATH")
    paths = paths_of(site)
    assert len(paths) > 40
    assert check_pages(site, chromium, [path for path in paths if not path.startswith("zh/")]) == []


@pytest.mark.long
def test_chinese_site_builds_without_warnings_and_loads_nothing_from_other_hosts(site: Path) -> None:
    assert_nothing_loaded_from_other_hosts(site / "zh")


@pytest.mark.long
def test_chinese_pages_are_translated_or_say_that_they_are_not(site: Path) -> None:
    for page in DOCS.glob("*.md"):
        text = (site / "zh" / f"{page.stem}.html").read_text()
        assert '<html class="no-js" lang="zh-CN"' in text
        assert (UNTRANSLATED in text) == (page.stem not in PAGES), page.name
        assert f'href="./../{page.stem}.html">English</a>' in text
        assert f'href="./zh/{page.stem}.html">中文</a>' in (site / f"{page.stem}.html").read_text()
    title = re.search(r"<h1>(.*?)<a", (site / "zh" / "start.html").read_text(encoding="utf-8"))
    assert title
    assert title[1] == "快速开始"


@pytest.mark.long
def test_search_of_the_chinese_site_has_its_words_and_scripts(site: Path) -> None:
    index = (site / "zh" / "searchindex.js").read_text(encoding="utf-8")
    for word in ("死信", "位点", "重平"):
        assert f"{json.dumps(word)}:" in index
    scripts = (site / "zh" / "_static" / "language_data.js").read_text(encoding="utf-8")
    stemmers = re.findall(r"^window\.Stemmer = (\w+);$", scripts, re.MULTILINE)
    assert [f"var {stemmer}=" in scripts for stemmer in stemmers] == [True]
    assert "var splitQuery = " in scripts


@pytest.mark.long
def test_links_between_pages_lead_to_existing_anchors(site: Path) -> None:
    pages = {page: page.read_text() for page in site.rglob("*.html")}
    anchors = {page: set(re.findall(r' id="([^"]+)"', text)) for page, text in pages.items()}
    for page, text in pages.items():
        for href in re.findall(r'<a [^>]*href="([^"]+)"', text):
            path, _, anchor = href.partition("#")
            if re.match(r"[a-z]+:", href):
                continue
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), (page.name, href)
            if anchor and target in anchors:
                assert anchor in anchors[target], (page.name, href)
