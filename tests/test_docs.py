"""The code and the links of README.md, of the pages in docs/ and of the connector's page.

``tests/integrations/test_readme.py`` runs the code of the page of the integrations.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import rocketmq_py
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.testing import TestBroker
from tests.programs import run

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, *DOCS, ROOT / "src/rocketmq_py/spark/README.md"]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n((?:(?!```).*\n)*)```\n\n```text\n((?:(?!```).*\n)*)```$", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)]+)\)")
PROGRAMS = PROGRAM.findall(README.read_text())


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def python_blocks() -> dict[str, str]:
    """Return the Python blocks of all pages by page and line."""
    blocks = {}
    for page in PAGES:
        text = page.read_text()
        for block in FENCED.finditer(text):
            if block[1] == "python":
                line = text.count("\n", 0, block.start()) + 1
                blocks[f"{name(page)}:{line}"] = block[2]
    return blocks


BLOCKS = python_blocks()
CLASSES: dict[str, tuple[type, ...]] = {
    "admin": (rocketmq_py.Admin,),
    "broker": (EmbeddedBroker, TestBroker),
    "client": (rocketmq_py.Client,),
    "consumer": (
        rocketmq_py.PushConsumer,
        rocketmq_py.LitePullConsumer,
        rocketmq_py.PopConsumer,
        rocketmq_py.LiteConsumer,
    ),
    "producer": (rocketmq_py.Producer, rocketmq_py.BatchingProducer, rocketmq_py.TransactionProducer),
    "reader": (rocketmq_py.Reader,),
    "rocketmq_broker": (TestBroker,),
}
"""The classes of the objects that the blocks call by these names, unless a block assigns the name."""


def text_outside_code(page: Path) -> str:
    return FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text_outside_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("code", BLOCKS.values(), ids=BLOCKS)
def test_python_blocks_compile_and_import_existing_names(code: str) -> None:
    compile(code, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("rocketmq_py"):
                    importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rocketmq_py"):
            module = importlib.import_module(str(node.module))
            public = getattr(module, "__all__", dir(module))
            assert {alias.name for alias in node.names} <= set(public)


@pytest.mark.parametrize("code", BLOCKS.values(), ids=BLOCKS)
def test_python_blocks_use_existing_attributes(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            variable = node.value.id
            if variable in CLASSES and f"{variable} = " not in code:
                assert any(hasattr(each, node.attr) for each in CLASSES[variable]), f"{variable}.{node.attr}"


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "src/rocketmq_py/integrations/README.md", ROOT / "CONTRIBUTING.md"], ids=name
)
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    for link in LINK.findall(text_outside_code(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_the_readme_links_every_page_of_the_documentation() -> None:
    links = LINK.findall(README.read_text())
    assert [name(page) for page in DOCS if name(page) not in links] == []


@pytest.mark.parametrize(("code", "output"), PROGRAMS, ids=["asyncio", "threads", "trio"])
async def test_programs_of_the_readme_print_the_output_shown(code: str, output: str) -> None:
    async with EmbeddedBroker() as broker:
        assert "127.0.0.1:9876" in code
        program = code.replace("127.0.0.1:9876", broker.name_server_address)
        assert await run("-c", program) == output.splitlines()
