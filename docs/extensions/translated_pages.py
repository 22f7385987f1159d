"""The pages that are translated into Chinese, and a note at the top of all others on the Chinese site.

Sphinx takes the translations from the catalogues in ``docs/locale/zh_CN/LC_MESSAGES``, one for each page.
``make translations`` updates them.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx

LANGUAGE = "zh_CN"
PAGES = (
    "index",
    "start",
    "guarantees",
    "troubleshooting",
    "concepts",
    "coming-from",
    "from-java",
    "sending",
    "consuming",
    "ordering",
    "retries",
    "transactions",
    "delays",
    "relay",
    "request-reply",
    "filters",
    "typed-bodies",
    "testing",
    "connecting",
    "managed-services",
    "production",
    "metrics-and-health",
    "deduplication",
    "asyncio-and-threads",
    "command-line",
    "lite-topics",
    "spark",
    "pipelines",
)
"""The translated pages, as Sphinx names them. To translate another one, add it here."""
UNTRANSLATED = "本页暂无中文版，以下为英文原文。"


def _on_resolved(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    if app.config.language != LANGUAGE or docname in PAGES:
        return
    for title in doctree.findall(nodes.title):
        section = title.parent
        note = nodes.note("", nodes.paragraph("", UNTRANSLATED))
        section.insert(section.index(title) + 1, note)
        return


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the note to the pages without a translation."""
    app.connect("doctree-resolved", _on_resolved)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
