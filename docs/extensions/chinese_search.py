"""The search of the Chinese site: pairs of characters in place of words, so that it needs no dictionary."""

from __future__ import annotations

import re

from sphinx.application import Sphinx
from sphinx.search.zh import SearchChinese

_HAN = re.compile(r"[\u4e00-\u9fff]+")
_JAVASCRIPT = r"""
var splitQuery = (query) =>
  (query.match(/[\u4e00-\u9fff]+|(?:(?![\u4e00-\u9fff])[\p{Letter}\p{Number}_])+/gu) ?? []).flatMap((term) =>
    /[\u4e00-\u9fff]{2}/.test(term)
      ? Array.from({ length: term.length - 1 }, (_, start) => term.slice(start, start + 2))
      : [term],
  );
"""


class SearchChinesePairs(SearchChinese):
    """Splits Chinese text, and on the search page the query, into pairs of adjacent characters.

    A page matches if it has all pairs of the query. Latin words are searched like on the English site.
    """

    # Sphinx derives the name of the script's stemmer from this name, and Chinese uses the English stemmer.
    language_name = "English"
    js_splitter_code = _JAVASCRIPT

    def split(self, input: str) -> list[str]:  # noqa: A002  (the name in the base class)
        """Return the words of a text for the index."""
        words = super().split(_HAN.sub(" ", input))
        for run in _HAN.findall(input):
            words += [run[start : start + 2] for start in range(len(run) - 1)]
        return words


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace Sphinx's search for Chinese, which finds nothing without the package jieba."""
    app.add_search_language(SearchChinesePairs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
