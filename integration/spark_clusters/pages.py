"""The web pages of a cluster and its jobs: masters, workers, drivers and the history server."""

from __future__ import annotations

import html
import re
import urllib.error
import urllib.request
from urllib.parse import urljoin

SKIPPED = re.compile(r"/static/|/kill|\.(css|js|svg|png|ico)\b|/logs$|/metrics/")
"""Styles, scripts, pages that end something, and archives to download."""
_LINK = re.compile(r"""href=["']([^"'#]+)|"(/api/v1/[^"]+)""")


def crawl(*starts: str) -> dict[str, str]:
    """Return the texts of pages by their URL: the given ones, and those of the same servers that they link.

    Error pages are included, because their texts may show settings.
    """
    servers = tuple("/".join(start.split("/")[:3]) + "/" for start in starts)
    texts: dict[str, str] = {}
    waiting = list(starts)
    while waiting:
        url = waiting.pop()
        if url in texts:
            continue
        texts[url] = _text(url)
        links = [urljoin(url, html.unescape(first or second)) for first, second in _LINK.findall(texts[url])]
        waiting += [link for link in links if link.startswith(servers) and not SKIPPED.search(link)]
    return texts


def api_pages(server: str, application: str) -> list[str]:
    """Return the URLs of the REST API of a driver, or of the history server, about an application."""
    base = f"{server}/api/v1/applications/{application}"
    kinds = (
        "environment",
        "jobs",
        "stages?details=true",
        "allexecutors",
        "storage/rdd",
        "streaming/statistics",
    )
    queries = "sql?details=true&planDescription=true&length=1000"
    return [f"{server}/api/v1/applications", base, *[f"{base}/{kind}" for kind in (*kinds, queries)]]


def _text(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            body: bytes = answer.read()
            return body.decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.read().decode(errors="replace")
