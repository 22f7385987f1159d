"""The Chinese catalogues of the site, the report of pages that lag behind, and README.zh.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="needs the group docs")

from babel.messages import Catalog

import catalogues
import chinese_search
import translated_pages

ROOT = Path(__file__).resolve().parent.parent
TRANSLATED = sorted(catalogues.CATALOGUES.rglob("*.po"))


README, CHINESE_README = ROOT / "README.md", ROOT / "README.zh.md"


def catalogue(translations: dict[str, str]) -> Catalog:
    """Return a catalogue with these texts and translations."""
    made = Catalog(locale=translated_pages.LANGUAGE)
    for text, translation in translations.items():
        made.add(text, translation)
    return made


def test_each_translated_page_has_a_catalogue_and_no_other_page_has() -> None:
    found = {path.relative_to(catalogues.CATALOGUES).with_suffix("").as_posix() for path in TRANSLATED}
    assert found == {*translated_pages.PAGES, "sphinx"}  # sphinx.po has the words of the theme
    for page in translated_pages.PAGES:
        assert (catalogues.DOCS / f"{page}.md").exists()


@pytest.mark.parametrize("path", TRANSLATED, ids=lambda path: path.stem)
def test_translations_keep_code_links_roles_and_placeholders(path: Path) -> None:
    messages = [message for message in catalogues.read(path) if message.id]
    assert messages
    for message in messages:
        if catalogues.translation_of(message) and not message.fuzzy:
            assert catalogues.differences(message) == [], message.id


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("Call `send`.", "调用 `submit`。"),
        ("Call `send`.", "调用 send。"),
        ("Read [Start](/start.md).", "阅读[快速开始](/sending.md)。"),
        ("See {doc}`start`.", "参见 {ref}`start`。"),
        ("%(count)s messages", "消息"),
    ],
)
def test_a_translation_that_loses_markup_is_found(text: str, translation: str) -> None:
    [message] = [message for message in catalogue({text: translation}) if message.id]
    assert catalogues.differences(message)


def test_an_update_keeps_translations_and_marks_those_of_changed_texts(tmp_path: Path) -> None:
    path = tmp_path / "page.po"
    catalogues.write(
        catalogue(
            {
                "Send a message.": "发送一条消息。",
                "Close the producer now.": "关闭生产者。",
                "Gone.": "删除。",
            }
        ),
        path,
    )
    template = catalogue(
        {
            "Send a message.": "",
            "Close the producer soon.": "",
            "A new paragraph.": "",
            "[`send`](/sending.md), 5": "",
        }
    )
    catalogues.write(catalogues.updated(catalogues.read(path), template), path)
    updated = catalogues.read(path)
    assert {message.id: (message.string, message.fuzzy) for message in updated if message.id} == {
        "Send a message.": ("发送一条消息。", False),
        "Close the producer soon.": ("关闭生产者。", True),
        "A new paragraph.": ("", False),
    }
    assert catalogues.lagging(updated) == ["Close the producer soon.", "A new paragraph."]


def test_a_second_update_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "page.po"
    translated = catalogue({"Send a message.": "发送一条消息。", "Close the producer now.": "关闭生产者。"})
    template = catalogue({"Send a message.": "", "Close the producer soon.": "", "Close it.": ""})
    catalogues.write(catalogues.updated(translated, template), path)
    first = path.read_text(encoding="utf-8")
    catalogues.write(catalogues.updated(catalogues.read(path), template), path)
    assert path.read_text(encoding="utf-8") == first


def test_the_report_lists_the_pages_that_lag_behind() -> None:
    assert catalogues.report({"start": [], "index": []}) == "All 2 translated pages are up to date."
    report = catalogues.report({"start": [], "index": ["A new paragraph."]}).splitlines()
    assert report[:2] == ["index: 1 messages to translate", "    A new paragraph."]
    assert report[2].startswith("1 of 2 translated pages lag behind.")


def test_both_readmes_have_the_same_code_and_figures() -> None:
    readmes = [path.read_text(encoding="utf-8") for path in (README, CHINESE_README)]
    code, chinese_code = (re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL) for text in readmes)
    assert code == chinese_code
    figures, chinese_figures = (re.findall(r"(?<=\| )[\d.,]+(?= \|)", text) for text in readmes)
    assert len(figures) > 10
    assert figures == chinese_figures


def test_both_readmes_have_the_same_links_and_link_each_other() -> None:
    links, chinese_links = (
        sorted(re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8")))
        for path in (README, CHINESE_README)
    )
    assert "README.zh.md" in links
    links.remove("README.zh.md")
    chinese_links.remove("README.md")
    assert chinese_links == links


def test_search_splits_chinese_into_pairs_and_latin_into_words() -> None:
    words = chinese_search.SearchChinesePairs({}).split("进入死信队列, see send_batch")
    assert sorted(words) == sorted(["进入", "入死", "死信", "信队", "队列", "see", "send_batch"])
