"""The catalogues of translations: ``make translations`` updates them and prints the pages that lag behind.

A catalogue has the messages of one page: paragraphs, headings, items, and cells of tables. Messages that
consist of code have no translation, so catalogues leave them out. If the English text of a message changes,
its translation becomes *fuzzy*. The site shows the English text until a translator adapts the translation and
removes that flag.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from babel.messages import Catalog, Message
from babel.messages.pofile import read_po, write_po

from translated_pages import LANGUAGE, PAGES

DOCS = Path(__file__).resolve().parent.parent
CATALOGUES = DOCS / "locale" / LANGUAGE / "LC_MESSAGES"
TEMPLATES = DOCS.parent / "build" / "gettext"
_HEADER = f"""\
msgid ""
msgstr ""
"Language: {LANGUAGE}\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"""
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_MARKUP = (
    _CODE,
    re.compile(r"\]\([^)]+\)"),  # the targets of links
    re.compile(r"\{[\w:-]+\}(?=`)"),  # roles
    re.compile(r"%\(\w+\)[sd]|\{\w*\}(?!`)|\|\w+\|"),  # placeholders
)


def text_of(message: Message) -> str:
    """Return the English text of a message."""
    return str(message.id)


def translation_of(message: Message) -> str:
    """Return the translation of a message, which is empty if there is none."""
    return str(message.string or "")


def read(path: Path) -> Catalog:
    """Return the catalogue in a file, or an empty one if there is no file."""
    if not path.exists():
        return Catalog(locale=LANGUAGE)
    with path.open("rb") as file:
        return read_po(file, locale=LANGUAGE, abort_invalid=True)


def needs_translation(text: str) -> bool:
    """Return whether a message contains more than code, links, placeholders, numbers and signs."""
    for markup in _MARKUP:
        text = markup.sub("", text)
    return re.search(r"[^\W\d_]", text) is not None


def updated(catalogue: Catalog, template: Catalog) -> Catalog:
    """Return a catalogue with the messages of ``template``, and the translations that exist."""
    wanted = Catalog(locale=LANGUAGE)
    for message in template:
        if message.id and needs_translation(text_of(message)):
            wanted.add(message.id)
    catalogue.update(wanted)
    return catalogue


def lagging(catalogue: Catalog) -> list[str]:
    """Return the English texts that have no translation, or one of an older text."""
    return [
        text_of(message)
        for message in catalogue
        if message.id and (message.fuzzy or not translation_of(message))
    ]


def write(catalogue: Catalog, path: Path) -> None:
    """Write a catalogue, without dates, so that it changes only with its messages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(f"{_HEADER}\n".encode())
        write_po(file, catalogue, width=0, omit_header=True, ignore_obsolete=True)


def differences(message: Message) -> list[str]:
    """Return how code, link targets, roles and placeholders differ between a text and its translation."""
    found = []
    for markup in _MARKUP:
        in_text = sorted(match[0] for match in markup.finditer(text_of(message)))
        translated = sorted(match[0] for match in markup.finditer(translation_of(message)))
        if in_text != translated:
            found.append(f"{in_text} became {translated}")
    return found


def report(lag: dict[str, list[str]]) -> str:
    """Return the report of the messages to translate by page."""
    behind = {page: texts for page, texts in lag.items() if texts}
    if not behind:
        return f"All {len(lag)} translated pages are up to date."
    lines = []
    for page, texts in behind.items():
        lines.append(f"{page}: {len(texts)} messages to translate")
        lines += [f"    {text[:100]}" for text in texts]
    lines.append(
        f"{len(behind)} of {len(lag)} translated pages lag behind. Their catalogues are in {CATALOGUES}."
    )
    return "\n".join(lines)


def extract(folder: Path) -> None:
    """Write the messages of all English pages into ``folder``, as templates of catalogues."""
    command = ("-m", "sphinx", "-q", "-W", "--keep-going", "-b", "gettext", "-d", f"{folder}-doctrees")
    subprocess.run([sys.executable, *command, str(DOCS), str(folder)], check=True)  # noqa: S603


def main() -> None:
    """Update the catalogues from the English pages, and print the report."""
    extract(TEMPLATES)
    lag = {}
    for page in PAGES:
        path = CATALOGUES / f"{page}.po"
        catalogue = updated(read(path), read(TEMPLATES / f"{page}.pot"))
        write(catalogue, path)
        lag[page] = lagging(catalogue)
    print(report(lag))


if __name__ == "__main__":
    main()
