"""Links of Markdown pages as the site needs them.

The pages are read on GitHub too, so they link files of the repository by relative paths. On the site, a link
to a file that a page includes leads to this page, and a link to any other file outside of ``docs/`` leads to
GitHub.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

REPOSITORY = "https://github.com/rocketmq-py/rocketmq-py"
INCLUDED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "src/rocketmq_py/integrations/README.md": "integrations.md",
    "src/rocketmq_py/spark/README.md": "spark.md",
}
"""The files of the repository that are pages of the site, with the page that includes each."""
_DOCS = Path(__file__).resolve().parent.parent
_ROOT = _DOCS.parent
_FENCE = re.compile(r"^(`{3,}).*?^\1`*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)(\[[^\]]*\])\((?!https?://|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")


def site_links(text: str, folder: Path) -> str:
    """Return Markdown with its relative links changed for the site.

    Args:
        text: the Markdown. Fenced code stays as it is.
        folder: the folder of the file that it was read from.
    """

    def replaced(link: re.Match[str]) -> str:
        label, path, anchor = link[1], link[2], link[3] or ""
        target = (folder / path).resolve()
        if not target.is_relative_to(_ROOT):
            return link[0]
        in_repository = target.relative_to(_ROOT).as_posix()
        if page := INCLUDED.get(in_repository):
            return f"{label}(/{page}{anchor})"
        if target.is_relative_to(_DOCS):
            return f"{label}(/{target.relative_to(_DOCS).as_posix()}{anchor})"
        kind = "tree" if target.is_dir() else "blob"
        return f"{label}({REPOSITORY}/{kind}/main/{in_repository}{anchor})"

    pieces, end = [], 0
    for fence in _FENCE.finditer(text):
        pieces += [_LINK.sub(replaced, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*pieces, _LINK.sub(replaced, text[end:])])


def _on_source(app: Sphinx, docname: str, source: list[str]) -> None:
    path = Path(app.env.doc2path(docname))
    if path.suffix == ".md":
        source[0] = site_links(source[0], path.parent)


def _on_include(app: Sphinx, path: Path, parent_docname: str, source: list[str]) -> None:
    if path.suffix == ".md":
        source[0] = site_links(source[0], (_DOCS / path).resolve().parent)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the changes of links to the reading of pages."""
    app.connect("source-read", _on_source)
    app.connect("include-read", _on_include)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
