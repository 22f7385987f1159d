"""The documentation's site: Sphinx with MyST and furo. ``make docs`` builds it, and warnings are errors."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "rocketmq-py"
author = "The rocketmq-py authors"
project_copyright = author
release = version = importlib.metadata.version("rocketmq-py")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "chinese_search",
    "public_names",
    "repository_links",
    "translated_pages",
]
exclude_patterns = ["extensions", "locale", "static", "templates"]
templates_path = ["templates"]
nitpicky = True

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

autodoc_default_options = {"members": True, "inherited-members": "object, BaseException, Enum, int, str"}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
napoleon_use_param = False
napoleon_use_rtype = False

locale_dirs = ["locale"]
gettext_compact = False  # a catalogue for each page
gettext_location = False  # lines of sources change more often than messages

html_theme = "furo"
html_title = f"rocketmq-py {release}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css", "chinese.css"]
html_favicon = "static/icon.svg"
pygments_dark_style = "github-dark"  # furo's default underlines the names of modules like links
html_show_sphinx = False
html_theme_options = {
    "source_repository": "https://github.com/rocketmq-py/rocketmq-py/",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/languages.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
