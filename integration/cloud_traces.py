"""Comparing the trace records of two clients that sent and consumed the same messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_OWN: Mapping[str, tuple[int, ...]] = {
    "Pub": (1, 3, 5, 10, 12),
    "SubBefore": (1, 3, 4, 5),
    "SubAfter": (1, 2, 3),
}
"""The fields by kind of record that differ between two clients: times, calls, groups and message ids."""


def comparable(records: Sequence[list[str]], group: str) -> list[list[str]]:
    """Return a group's records without the fields that differ between two clients."""
    calls = {fields[4] for fields in records if fields[0] == "SubBefore" and fields[3] == group}
    return sorted(
        [field for index, field in enumerate(fields) if index not in _OWN[fields[0]]]
        for fields in records
        if calls & {fields[1], fields[4]} or (fields[0] == "Pub" and fields[3] == group)
    )
