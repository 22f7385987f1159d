"""The code and the links of README.md, of the pages in docs/ and of the connector's page.

``tests/integrations/test_readme.py`` runs the code of the page of the integrations.
"""

from __future__ import annotations

import ast
import importlib
import re
import typing
from pathlib import Path

import pytest

import rocketmq_py
from rocketmq_py import Admin
from rocketmq_py.admin.operations import Operations
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.testing import TestBroker
from tests import generate_java_names
from tests.programs import run

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, *DOCS, ROOT / "src/rocketmq_py/spark/README.md"]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n((?:(?!```).*\n)*)```\n\n```text\n((?:(?!```).*\n)*)```$", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)]+)\)")


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


def programs() -> dict[str, tuple[str, str]]:
    """Return the programs of all pages that show their output, with this output, by page and line."""
    found = {}
    for page in PAGES:
        text = page.read_text()
        for program in PROGRAM.finditer(text):
            line = text.count("\n", 0, program.start()) + 1
            found[f"{name(page)}:{line}"] = (program[1], program[2])
    return found


BLOCKS = python_blocks()
PROGRAMS = programs()
CLASSES: dict[str, tuple[type, ...]] = {
    "admin": (rocketmq_py.Admin,),
    "broker": (EmbeddedBroker, TestBroker),
    "client": (rocketmq_py.Client,),
    "consumer": (
        rocketmq_py.PushConsumer,
        rocketmq_py.LitePullConsumer,
        rocketmq_py.PopConsumer,
        rocketmq_py.LiteTopicConsumer,
    ),
    "producer": (rocketmq_py.Producer, rocketmq_py.TransactionProducer),
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


def test_python_blocks_compile_and_import_existing_names() -> None:
    for place, code in BLOCKS.items():
        compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.startswith("rocketmq_py"):
                        importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rocketmq_py"):
                module = importlib.import_module(str(node.module))
                public = getattr(module, "__all__", dir(module))
                assert {alias.name for alias in node.names} <= set(public), place


def test_python_blocks_use_existing_attributes() -> None:
    for place, code in BLOCKS.items():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                variable = node.value.id
                if variable in CLASSES and not re.search(rf"\b(for )?{variable} (=|in) ", code):
                    found = any(hasattr(each, node.attr) for each in CLASSES[variable])
                    assert found, f"{place}: {variable}.{node.attr}"


@pytest.mark.parametrize(
    "page",
    [
        *PAGES,
        ROOT / "src/rocketmq_py/integrations/README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "README.zh.md",
    ],
    ids=name,
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


def test_the_readme_links_the_documentation() -> None:
    assert "docs/index.md" in LINK.findall(README.read_text())


@pytest.mark.long
@pytest.mark.parametrize(("code", "output"), PROGRAMS.values(), ids=PROGRAMS)
async def test_programs_print_the_output_shown(code: str, output: str) -> None:
    async with EmbeddedBroker() as broker:
        assert "127.0.0.1:9876" in code
        program = code.replace("127.0.0.1:9876", broker.name_server_address)
        assert await run("-c", program) == output.splitlines()


GUARANTEES = ROOT / "docs" / "guarantees.md"
NAMED_TESTS = re.findall(r"`((?:tests|integration)/[\w/]+\.py)::(\w+)`", GUARANTEES.read_text())


def test_tests_that_guarantees_name_exist() -> None:
    for path, test in NAMED_TESTS:
        functions = {
            node.name
            for node in ast.parse((ROOT / path).read_text()).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert test in functions, f"{path}::{test}"


def test_every_guarantee_names_its_test() -> None:
    rows = [line for line in GUARANTEES.read_text().splitlines() if line.startswith("| ")]
    guarantees = [row for row in rows if not row.startswith(("| case ", "| ---"))]
    assert len(guarantees) == len(NAMED_TESTS)


def result_of(method: object) -> type:
    """Return the class of a method's result, or of its items."""
    result = typing.get_type_hints(method)["return"]
    for kind in (result, *getattr(result, "__orig_bases__", ())):
        for item in typing.get_args(kind):
            assert isinstance(item, type)
            return item
    assert isinstance(result, type)
    return result


def test_the_table_of_admin_has_all_methods_and_existing_attributes() -> None:
    text = (ROOT / "docs" / "admin.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*)\|$", text, re.MULTILINE)
    listed = {part: set(re.findall(r"`(\w+)`", methods)) for part, methods, _ in rows}
    unopened = Admin("127.0.0.1:9876")
    members = {name: getattr(unopened, name) for name in dir(unopened) if not name.startswith("_")}
    parts = {name: member for name, member in members.items() if isinstance(member, Operations)}
    assert listed == {
        name: {method for method in dir(part) if not method.startswith("_")} for name, part in parts.items()
    }
    for part, _, results in rows:
        for method, attributes in re.findall(r"`(\w+)`: ((?:`\w+` ?)+)", results):
            result = result_of(getattr(parts[part], method))
            for attribute in re.findall(r"`(\w+)`", attributes):
                assert hasattr(result, attribute), f"{part}.{method}: {attribute}"


def test_names_of_java_are_those_of_the_docstrings() -> None:
    page = generate_java_names.PAGE.read_text()
    assert page == generate_java_names.page_with_table(page), "run `make apis`"
