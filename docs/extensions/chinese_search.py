"""The search of the Chinese site, which needs no dictionary of Chinese words."""

from __future__ import annotations

import re

from sphinx.application import Sphinx
from sphinx.search.zh import SearchChinese

_HAN = re.compile(r"[\u4e00-\u9fff]+")


class SearchChinesePairs(SearchChinese):
    """Splits Chinese text into runs of characters and their pairs.

    The search page looks for terms of three characters and more inside of indexed words, so the runs answer
    them. It compares shorter terms with whole words, so each pair of characters is a word, too.
    """

    def split(self, input: str) -> list[str]:  # noqa: A002  (the name in the base class)
        """Return the words of a text for the index."""
        words = super().split(_HAN.sub(" ", input))
        for run in _HAN.findall(input):
            words.append(run)
            words += [run[start : start + 2] for start in range(len(run) - 1)]
        return words


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace Sphinx's search for Chinese, which finds nothing without the package jieba."""
    app.add_search_language(SearchChinesePairs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
