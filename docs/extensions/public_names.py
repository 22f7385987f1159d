"""References to public names, however code and docstrings write them.

Annotations and docstrings name classes as their module imports them: ``Message``, or
``rocketmq_py.message.sent.Message``. The reference documents the public name, ``rocketmq_py.Message``. Other
names stay plain text: those of other libraries, so that building needs no network, and internal types in
annotations. A docstring that refers to an internal name is an error.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removeprefix("~").removesuffix("()")
    domain = env.domains.python_domain
    last = target.rpartition(".")[2]
    module = node.get("py:module") or ""
    names = [name for name in domain.objects if name.rpartition(".")[2] == last]
    # Of the classes of the three APIs that share a name, prefer that of the page's package, then trio's.
    names.sort(key=lambda name: (not name.startswith(f"{module}."), name.count("."), name))
    if names and (target == last or target.startswith("rocketmq_py.")):
        return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], names[0], node, content)
    is_role = "refwarn" in node  # written in a docstring, unlike an annotation
    return None if is_role and target.startswith("rocketmq_py.") else content


def setup(app: Sphinx) -> dict[str, bool]:
    """Resolve the references that Sphinx itself cannot."""
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
