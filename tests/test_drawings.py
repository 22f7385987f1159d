"""The pictures of docs/ are up to date, and the drawing of the architecture agrees with the imports."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import draw
from tests.test_architecture import MODULES, imported_rooms, room_of

ROOMS = {room_of(module) for module in MODULES} - {""}
POSITIONS = {
    room: (row, place) for row, layer in enumerate(draw.layers()) for place, room in enumerate(layer)
}
PICTURES = dict(draw.drawings())


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_pictures_are_those_that_the_script_draws(path: Path) -> None:
    content = PICTURES[path]
    assert path.read_text(encoding="utf-8") == content, "run `python docs/drawings/draw.py`"
    ElementTree.fromstring(content)


def test_chinese_pictures_have_no_english_text() -> None:
    english, chinese = set(), set()
    for path, content in PICTURES.items():
        texts = set(re.findall(r"<t(?:ext|itle)[^>]*>([^<]+)</", content))
        if path.name.endswith(".zh_CN.svg"):
            chinese |= texts
        elif path.stem != "architecture":
            english |= texts
    assert chinese - set(draw.CHINESE.values()) <= {"broker-a", "broker-b", *map(str, range(12))}
    assert english >= set(draw.CHINESE)


def test_architecture_lists_every_room_once() -> None:
    listed = [room for layer in draw.layers() for room in layer]
    assert sorted(listed) == sorted(ROOMS)


def test_rooms_import_only_from_layers_below() -> None:
    upward = {
        (room_of(module), imported)
        for module in MODULES
        if room_of(module)
        for imported in imported_rooms(module) - {room_of(module), ""}
        if POSITIONS[imported] <= POSITIONS[room_of(module)]
    }
    assert upward == set()
