"""Check a manifest against the schema of its custom resource, and print the mistakes.

    python manifest_check.py DEFINITION MANIFEST

DEFINITION is the file with the CustomResourceDefinition. Fields that the schema does not have are mistakes,
too: Kubernetes drops them silently. Needs ``jsonschema`` and ``pyyaml``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import yaml  # type: ignore[import-untyped]


def close(schema: Any) -> None:
    """Forbid fields that an object of the schema does not declare."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            close(part)
    elif isinstance(schema, list):
        for part in schema:
            close(part)


def mistakes(definition: Any, manifest: Any) -> list[str]:
    """Return a line for each mistake."""
    group, _, version = manifest["apiVersion"].partition("/")
    spec = definition["spec"]
    if (spec["group"], spec["names"]["kind"]) != (group, manifest["kind"]):
        return [f"the definition is of {spec['names']['kind']} in {spec['group']}"]
    [schema] = [each["schema"]["openAPIV3Schema"] for each in spec["versions"] if each["name"] == version]
    close(schema)
    schema["properties"]["metadata"] = {"type": "object"}
    found = jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    return [f"{error.json_path}: {error.message[:300]}" for error in found]


def main(definition: str, manifest: str) -> int:
    """Print the mistakes, and return their number."""
    found = mistakes(*[yaml.safe_load(Path(file).read_text()) for file in (definition, manifest)])
    for mistake in found:
        print(mistake)
    return len(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
