"""The rules between the rooms: imports point one way."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketmq_py
from tests.reference import AIRFLOW, PACKAGES, names_of

PACKAGE = Path(rocketmq_py.__file__).parent

# The imports that each room allows. A top-level module is a room of its own.
BOTTOM = {
    "address",
    "codes",
    "errors",
    "arguments",
    "callables",
    "lazy",
    "library_logger",
    "names",
    "properties",
    "property_names",
    "queues",
    "error_texts",
    "message",
    "position",
    "credentials",
    "codecs",
    "environment",
    "selectors",
    "shown_settings",
}
ALLOWED = {
    "codes": set[str](),
    "environment": set[str](),
    "lazy": set[str](),
    "library_logger": set[str](),
    "queues": set[str](),
    "error_texts": {"queues"},
    "errors": {"codes", "error_texts", "queues"},
    "address": {"errors", "error_texts"},
    "arguments": {"errors"},
    "callables": {"arguments", "errors"},
    "names": {"arguments", "errors"},
    "properties": set[str](),
    "property_names": set[str](),
    "codecs": {"arguments", "callables", "errors", "error_texts"},
    "message": {
        "address",
        "arguments",
        "codecs",
        "errors",
        "names",
        "properties",
        "property_names",
        "queues",
    },
    "position": {"arguments", "errors"},
    "credentials": {"arguments", "errors"},
    "selectors": {"arguments", "callables", "errors", "message"},
    "shown_settings": {"arguments"},
    "protocol": BOTTOM,
    "remoting": BOTTOM | {"protocol"},
    "client": BOTTOM | {"protocol", "remoting"},
    "producer": BOTTOM | {"protocol", "remoting", "client"},
    "allocation": BOTTOM | {"client"},
    "consumer": BOTTOM | {"protocol", "remoting", "client", "allocation"},
    "hooks": {"protocol", "remoting", "producer", "consumer"},
    "statistics": {"producer", "consumer"},
    "health": {"client", "producer", "consumer"},
    "notebooks": {"errors", "message"},
    "admin": BOTTOM | {"protocol", "remoting", "client", "producer", "consumer", "notebooks"},
    "broker": BOTTOM | {"protocol", "remoting"},
    "metrics": BOTTOM | {"client", "producer", "consumer", "handoff"},
    "telemetry": BOTTOM | {"client", "metrics", "producer", "consumer"},
    "shared_client": BOTTOM | {"client", "producer", "consumer", "admin"},
    "deduplication": BOTTOM | {"consumer"},
    "handoff": BOTTOM | {"remoting", "client", "producer", "consumer"},
    "blocking": BOTTOM
    | {"protocol", "remoting", "client", "producer", "consumer", "admin", "shared_client", "handoff"},
    "aio": BOTTOM
    | {"protocol", "remoting", "client", "producer", "consumer", "admin", "shared_client", "handoff"},
    "": BOTTOM
    | {"protocol", "remoting", "client", "producer", "consumer", "admin", "shared_client"}
    | {"aio", "allocation", "blocking", "broker", "codecs", "deduplication", "testing"}
    | {"health", "hooks", "statistics"},  # names only, loaded on first use
    "testing": BOTTOM | {"protocol", "remoting", "client", "consumer", "admin", "broker"},
    "pytest_plugin": {"testing"},
    "relay": BOTTOM | {"protocol", "remoting", "client", "producer", "consumer"},
    "spark": BOTTOM | {"protocol", "remoting", "client", "producer", "consumer", "blocking", "notebooks"},
    "integrations": BOTTOM
    | {
        "protocol",
        "remoting",
        "client",
        "producer",
        "consumer",
        "admin",
        "handoff",
        "blocking",
        "aio",
        "spark",
        "metrics",
        "notebooks",
        "",
    },
    "cli": BOTTOM
    | {"broker", "relay", "remoting", "client", "producer", "consumer", "admin", "shared_client", ""},
    "__main__": {"cli"},
}
INTEGRATIONS = sorted((PACKAGE / "integrations").glob("[!_]*"))
CONSUMER_ROOMS = ("settings", "group", "pull", "read", "lite_pull", "pop", "push", "lite")
"""The rooms of consumers. Each may import those before it."""
MODULES = frozenset(PACKAGE.rglob("*.py"))


def room_of(module: Path) -> str:
    first = module.relative_to(PACKAGE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


@functools.cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def statements(node: ast.AST, *, runtime: bool) -> Iterator[ast.stmt]:
    """Yield all statements in a node. ``runtime`` leaves out those under TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case) and not (
            runtime and isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        ):
            yield from statements(child, runtime=runtime)


@functools.cache
def imported_names(module: Path, *, runtime: bool = False) -> set[str]:
    """Return the full names that a module imports. ``runtime`` leaves out those under TYPE_CHECKING."""
    found: set[str] = set()
    for node in statements(parsed(module), runtime=runtime):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found.update(names)
    return found


def imported_rooms(module: Path) -> set[str]:
    rooms = set()
    for name in imported_names(module):
        parts = name.split(".")
        if parts[0] == "rocketmq_py":
            is_room = len(parts) > 1 and (
                (PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").is_file()
            )
            rooms.add(parts[1] if is_room else "")
    return rooms


def consumer_room(name: str) -> str | None:
    parts = name.removeprefix("rocketmq_py.consumer").split(".")
    return parts[1] if name.startswith("rocketmq_py.consumer.") and parts[1] in CONSUMER_ROOMS else None


def test_imports_point_one_way() -> None:
    wrong = {
        str(module.relative_to(PACKAGE)): more
        for module in MODULES
        if (more := imported_rooms(module) - {room_of(module)} - ALLOWED[room_of(module)])
    }
    assert not wrong


@pytest.mark.parametrize("name", [path.stem for path in INTEGRATIONS if path.suffix in ("", ".py")])
def test_an_integration_is_imported_by_no_other_module(name: str) -> None:
    full_name = f"rocketmq_py.integrations.{name}."
    importers = [
        str(module)
        for module in MODULES
        if module.relative_to(PACKAGE).parts[:2]
        not in (("integrations", name), ("integrations", f"{name}.py"))
        and any(f"{imported}.".startswith(full_name) for imported in imported_names(module))
    ]
    assert importers == []


def test_data_frames_do_not_need_pyspark() -> None:
    pytest.importorskip("pyarrow")
    loaded = loaded_by("import rocketmq_py.integrations.data_frames")
    assert "rocketmq_py.spark.sink_task" in loaded
    assert "pyspark" not in loaded


@pytest.mark.parametrize("room", CONSUMER_ROOMS)
def test_imports_between_the_consumers_rooms_point_one_way(room: str) -> None:
    folder = PACKAGE / "consumer" / room
    modules = sorted(folder.rglob("*.py")) or [folder.with_suffix(".py")]
    allowed = CONSUMER_ROOMS[: CONSUMER_ROOMS.index(room) + 1]
    for module in modules:
        imported = {found for name in imported_names(module) if (found := consumer_room(name))}
        assert imported <= set(allowed), module


def test_every_room_of_the_consumers_has_its_place() -> None:
    found = {path.stem for path in (PACKAGE / "consumer").iterdir() if not path.name.startswith("__")}
    assert found == set(CONSUMER_ROOMS)


def imported_modules(module: Path, *, runtime: bool) -> set[Path]:
    """Return the modules and packages of this library that a module imports."""
    found = set()
    for name in imported_names(module, runtime=runtime):
        parts = name.split(".")[1:] if name.startswith("rocketmq_py.") else []
        for place in (PACKAGE.joinpath(*parts), PACKAGE.joinpath(*parts[:-1])) if parts else ():
            files = {place.with_suffix(".py"), place / "__init__.py"} & MODULES - {PACKAGE / "__init__.py"}
            if files:
                found |= files
                break
    return found - {module}


TYPES_FORM_CYCLES = {"aio", "blocking", "handoff", "integrations"}
"""Rooms in which a class and the object that opens it name each other in annotations."""


def test_modules_import_each_other_without_cycles() -> None:
    graph = {
        module: imported_modules(module, runtime=room_of(module) in TYPES_FORM_CYCLES)
        for module in PACKAGE.rglob("*.py")
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, with the modules of a cycle


def test_protocol_does_no_input_or_output() -> None:
    for module in (PACKAGE / "protocol").rglob("*.py"):
        for node in ast.walk(parsed(module)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else [alias.name for alias in node.names]
                )
                forbidden = {"trio", "socket", "time", "random", "asyncio"}
                assert not forbidden & {name.split(".")[0] for name in names}, module


CONVERTS_NAMES = {
    # Where requests leave, and where answers and the requests of brokers come in.
    "client/broker_calls.py",
    "client/core.py",
    "client/heartbeats.py",
    "client/name_servers.py",
    # What does not go through these by its type: names in fields that are encoded in advance, in properties,
    # keys, files and hashes, and names in a report about namespaces.
    "client/tracing.py",
    "producer/request_builder.py",
    "producer/transaction_checker.py",
    "consumer/group/operator_requests.py",
    "consumer/group/local_offset_commits.py",
    "admin/connection/topics.py",
    "admin/order_config.py",
    "allocation.py",
}
"""The modules that convert names of topics and groups between the user's and those on the wire."""


def converts_names(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="wrap_topic" | "wrap_group" | "unwrap_topic" | "unwrap_group"):
            return True
        case ast.Attribute(value=ast.Attribute(attr=owner) | ast.Name(id=owner), attr="wrap" | "unwrap"):
            return owner.endswith("namespace")
        case _:
            return False


def test_few_modules_convert_names_to_those_of_a_namespace() -> None:
    found = {
        module.relative_to(PACKAGE).as_posix()
        for module in MODULES - {PACKAGE / "client" / "namespace.py"}
        if any(map(converts_names, ast.walk(ast.parse(module.read_text()))))
    }
    assert found == CONVERTS_NAMES


PRIVATE_ELSEWHERE = {
    # Declared by OutcomeReceiver. Users hold the receivers, so these methods are hidden from them.
    "_succeed": {"producer"},
    "_fail": {"producer"},
    # Of RocketMQError. They steer the retries of the rooms that send requests, and users catch these errors.
    "_invalidates_route": {"client", "producer", "consumer"},
    "_queue_gone": {"producer", "consumer"},
    "_not_reached": {"remoting", "client", "producer", "consumer", "relay", "integrations", "spark"},
    # Of messages. Functions in their place would cost a call for each message that is sent or received.
    "_is_bare": {"protocol", "producer"},
    "_encoded_properties": {"consumer", "admin", "broker", "spark"},
    "_born_address": {"protocol", "broker", "spark"},
    "_store_address": {"protocol", "spark"},
    # Of QueuedSend, for the same reason. Users hold the futures.
    "_message": {"handoff"},
    "_queue": {"handoff"},
    "_timeout": {"handoff"},
    # Of SendContext. Hooks get the contexts.
    "_requests": {"producer"},
    # Of the standard library, documented in spite of their names.
    "_replace": {"client", "broker"},
    "_current_frames": {"consumer", "handoff"},
    "_get_running_loop": {"deduplication"},
    # The trio objects that integrations and the Spark sink use below the public API.
    "_target": {"integrations", "spark"},
    "_call": {"integrations", "spark"},
    "_reject": {"integrations"},
    "_counters": {"integrations"},
    "_send_encoded": {"spark"},
}
"""The private names that rooms use although another module defines them, each with the reason."""


def names_defined_by(tree: ast.Module) -> set[str]:
    """Return the names of the functions, classes and attributes that a module defines."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                pass
    return found


def private_names_used_of_others(tree: ast.Module) -> set[str]:
    """Return the private attributes of other objects that a module uses and does not define itself."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if name.startswith("_") and not name.startswith("__"):
                found.add(name)
            case _:
                pass
    return found - names_defined_by(tree)


def test_private_names_are_used_where_they_are_defined() -> None:
    found: dict[str, set[str]] = {}
    for module in MODULES:
        for name in private_names_used_of_others(parsed(module)):
            # Integrations use the internals of FastStream, which their dependencies pin.
            if module.parent.name != "faststream":
                found.setdefault(name, set()).add(room_of(module))
    assert found == PRIVATE_ELSEWHERE


def test_every_public_name_exists_and_has_a_docstring() -> None:
    for name in names_of("rocketmq_py"):
        assert getattr(rocketmq_py, name).__doc__, f"{name} has no docstring"


def test_the_package_knows_its_version() -> None:
    assert rocketmq_py.__version__ == importlib.metadata.version("rocketmq-py")


def test_a_program_finds_few_public_names() -> None:
    assert len(names_of("rocketmq_py")) <= 45
    names = [name for package in (*PACKAGES, *AIRFLOW) for name in names_of(package)]
    assert len([name for name in names if not name.endswith("Error")]) <= 160


def test_public_packages_are_there_without_an_import_of_their_own() -> None:
    program = (
        "import rocketmq_py as r; "
        "print(r.codes.ResponseCode.__name__, r.blocking.Producer.__name__, r.errors.ClosedError.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "ResponseCode Producer ClosedError\n"


LAZY = (
    "rocketmq_py",
    "rocketmq_py.admin",
    "rocketmq_py.consumer",
    "rocketmq_py.producer",
)
"""Packages whose public names are imported on first use."""


@pytest.mark.parametrize("package", LAZY)
def test_lazy_names_are_those_that_type_checkers_see(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = [(str(node.module), alias) for node in imports for alias in node.names]
    assert all(alias.asname == alias.name for _, alias in seen)
    for home, alias in seen:
        assert getattr(module, alias.name) is getattr(importlib.import_module(home), alias.name)
    names = {alias.name for _, alias in seen}
    assert names == {name for name in dir(module) if not name.startswith("__")}
    assert {*module.__all__} == {alias.name for home, alias in seen if home != "rocketmq_py"}
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'NoSuchName'"):
        _ = module.NoSuchName


def loaded_by(program: str) -> set[str]:
    """Return the modules that a program has loaded at its end."""
    wrapped = f"import sys\n{program}\nprint('LOADED', *sys.modules)"
    result = subprocess.run([sys.executable, "-c", wrapped], check=True, capture_output=True, text=True)
    return set(result.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["topic", "list", "--help"], ["tail", "--help"]], ids=" ".join
)
def test_help_loads_no_client_and_nothing_heavy(arguments: list[str]) -> None:
    loaded = loaded_by(f"from rocketmq_py.cli import main; main({arguments}, standalone_mode=False)")
    assert loaded.isdisjoint({"trio", "rich", "msgspec", "pyarrow", "numpy", "pyspark", "rocketmq_py.client"})
    commands = {name for name in loaded if name.startswith("rocketmq_py.cli.")}
    assert arguments != ["--help"] or commands == {"rocketmq_py.cli.console", "rocketmq_py.cli.lazy_group"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "rooms"),
    [
        ("rocketmq_py.admin.topics", {"rocketmq_py.producer.producer", "rocketmq_py.consumer.push"}),
        ("rocketmq_py.cli.send_loop", {"rocketmq_py.consumer", "rocketmq_py.admin"}),
        (
            "rocketmq_py.cli.tail_loop",
            {"rocketmq_py.producer", "rocketmq_py.consumer.push", "rocketmq_py.admin"},
        ),
    ],
)
def test_command_loads_only_the_modules_it_uses(module: str, rooms: set[str]) -> None:
    loaded = loaded_by(f"import {module}")
    assert loaded.isdisjoint(rooms | {"rocketmq_py.consumer.pop", "rocketmq_py.consumer.lite_pull"})
