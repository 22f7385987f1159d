"""Load each page of the documentation in headless Chromium, and report errors.

    python -m integration.site_pages [--screenshots FOLDER] [PAGE ...]

It serves the site that ``make docs`` has built on loopback, and loads each page in light and dark, at the
width of a phone, then of a laptop. PAGE is a path below the site, such as ``start.html``. An error is a
message on the console, a request that fails, a request to another host, or a page that scrolls sideways.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from integration.chromium import Page, find_chromium, open_page
from integration.environments import ROOT
from integration.file_server import serve_files

WIDTHS = {"phone": 390, "laptop": 1280}
THEMES = ("light", "dark")
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def problem_of(event: dict[str, Any], site: str) -> str | None:
    """Return the problem that an event of the browser tells, or None."""
    method, parameters = event["method"], event["params"]
    if method == "Runtime.exceptionThrown":
        return f"exception: {parameters['exceptionDetails']['text']}"
    if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
        return f"console: {[one.get('value') for one in parameters['args']]}"
    if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
        return f"log: {parameters['entry']['text']}"
    if method == "Network.loadingFailed":
        return f"failed request: {parameters['errorText']}"
    if method == "Network.responseReceived" and parameters["response"]["status"] >= 400:
        return f"status {parameters['response']['status']}: {parameters['response']['url']}"
    if method == "Network.requestWillBeSent":
        url = parameters["request"]["url"]
        if urlsplit(url).scheme != "data" and not url.startswith(site):
            return f"request to another host: {url}"
    return None


def load(page: Page, url: str, theme: str) -> None:
    """Load a page, and wait until it is complete."""
    page.events.clear()
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    loader = page.call("Page.navigate", url=url)["loaderId"]
    page.wait_for(
        lambda event: (
            event["method"] == "Page.lifecycleEvent"
            and (event["params"]["name"], event["params"]["loaderId"]) == ("load", loader)
        )
    )


def show_at(page: Page, width: int) -> int:
    """Show the page at a width, and return by how many pixels it is wider than the window."""
    page.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
    )
    page.evaluate(PAINTED)
    return int(page.evaluate(TOO_WIDE))


def paths_of(site: Path) -> list[str]:
    """Return the paths of all pages below the site's folder."""
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))


def check_pages(folder: Path, chromium: str, paths: list[str], screenshots: Path | None = None) -> list[str]:
    """Load pages of a built site, and return their problems.

    Args:
        folder: the site.
        chromium: the path of the browser.
        paths: the pages.
        screenshots: a folder for a picture of each page at each width in each theme.
    """
    problems = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        serve_files(folder) as server,
        open_page(chromium, Path(profile)) as page,
    ):
        page.call("Page.setLifecycleEventsEnabled", enabled=True)
        for path, theme in itertools.product(paths, THEMES):
            load(page, server.url + path, theme)
            for device, width in WIDTHS.items():
                if (pixels := show_at(page, width)) > 0:
                    problems.append(f"{path} ({theme}, {device}): {pixels} pixels wider than the window")
                if screenshots is not None:
                    data = page.call("Page.captureScreenshot")["data"]
                    name = f"{path.removesuffix('.html').replace('/', '-')}-{device}-{theme}.png"
                    screenshots.mkdir(parents=True, exist_ok=True)
                    (screenshots / name).write_bytes(base64.b64decode(data))
            found = (problem_of(event, server.url) for event in page.events)
            problems += [f"{path} ({theme}): {problem}" for problem in found if problem]
    return problems


def main(arguments: list[str]) -> int:
    """Check the pages. Return 1 if one has a problem, or without Chromium."""
    parser = argparse.ArgumentParser(prog="python -m integration.site_pages", allow_abbrev=False)
    parser.add_argument("--screenshots", type=Path, metavar="FOLDER", help="write a picture of each page")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="the pages; all by default")
    options = parser.parse_args(arguments)
    chromium = find_chromium()
    if chromium is None:
        print("there is no Chromium on the PATH", file=sys.stderr)
        return 1
    site = ROOT / "build" / "site"
    paths = options.pages or paths_of(site)
    problems = check_pages(site, chromium, paths, options.screenshots)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(paths)} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
