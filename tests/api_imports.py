"""The imports of the modules that :mod:`tests.generate_apis` generates."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable


class Imports:
    """The imports of a generated module.

    Args:
        module: the name of the module.
        client: the module of the class Client, which imports the others. They import it for types only.
    """

    def __init__(self, module: str, client: str) -> None:
        self._module = module
        self._client = client
        self._names: dict[str, set[str]] = defaultdict(set)
        self._names_client = False

    def add(self, module: str, *names: str) -> None:
        """Import names from a module."""
        if module != self._module:
            self._names[module].update(names)

    def add_annotation(self, annotation: str, module: str) -> None:
        """Import the names of an annotation of another module from where that has them."""
        for name in set(re.findall(r"[A-Za-z_]\w*", annotation)) & vars(sys.modules[module]).keys():
            if name == "Client":
                self._names_client = self._module != self._client
            elif name not in set().union(*self._names.values()):
                self.add(_origin(name, module), name)

    def text(self) -> str:
        """Return the import statements."""
        if self._names_client:
            self.add("typing", "TYPE_CHECKING")
        groups = ["from __future__ import annotations\n", "", ""]
        for module, names in sorted(self._names.items()):
            groups[2 if module.startswith("rocketmq_py") else 1] += _statement(module, names)
        if self._names_client:
            groups.append(f"if TYPE_CHECKING:\n    from {self._client} import Client\n")
        return "\n".join(groups)


def _statement(module: str, names: Iterable[str]) -> str:
    """Return an import, formatted as ruff does."""
    listed = sorted(names, key=lambda name: (not name.isupper(), name))
    statement = f"from {module} import {', '.join(listed)}\n"
    if len(statement) <= 111:
        return statement
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in listed) + ")\n"


def _origin(name: str, module: str) -> str:
    """Return the module from which another module imports a name, or that module itself."""
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            assert node.module is not None
            return node.module
    return module
