"""Draw the pictures of the documentation: ``python docs/drawings/draw.py`` writes them next to this file.

``architecture.txt`` lists the packages of the library in layers. ``producer/send_states.py`` has the states
of a send. The other pictures are described here. Each of those has a Chinese copy, ``*.zh_CN.svg``, which
Sphinx uses on the Chinese site, with the texts of ``zh_CN.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from rocketmq_py.producer.send_states import NEXT_STATES, SendState

FOLDER = Path(__file__).parent
BLUE, GREEN, ORANGE, GREY = "#dbeafe", "#dcfce7", "#ffedd5", "#f1f5f9"
LINE, TEXT, FAINT = "#475569", "#0f172a", "#64748b"
CHINESE: dict[str, str] = tomllib.loads((FOLDER / "zh_CN.toml").read_text(encoding="utf-8"))


class Drawing:
    """An SVG picture on a light background, which is readable on light and dark pages.

    Args:
        width: the width in pixels.
        height: the height in pixels.
        title: the text for readers who cannot see the picture.
        texts: translations of texts. Other texts stay as they are.
    """

    def __init__(self, width: int, height: int, title: str, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'font-family="system-ui, sans-serif" font-size="14">',
            f"<title>{escape(texts.get(title, title))}</title>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0 8 4 0 8z" fill="{LINE}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        ]

    def box(self, x: int, y: int, width: int, height: int, text: str, fill: str = GREY) -> None:
        """Add a box with a text in its middle."""
        self._lines.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" stroke="{LINE}"/>'
        )
        self.text(x + width // 2, y + height // 2 + 5, text)

    def text(self, x: int, y: int, text: str, color: str = TEXT, anchor: str = "middle") -> None:
        """Add a text, centered by default."""
        shown = escape(self._texts.get(text, text))
        self._lines.append(f'<text x="{x}" y="{y}" fill="{color}" text-anchor="{anchor}">{shown}</text>')

    def arrow(self, x: int, y: int, to_x: int, to_y: int) -> None:
        """Add an arrow."""
        self._lines.append(
            f'<path d="M{x} {y} {to_x} {to_y}" stroke="{LINE}" fill="none" marker-end="url(#arrow)"/>'
        )

    def __str__(self) -> str:
        return "\n".join([*self._lines, "</svg>", ""])


def queues(texts: Mapping[str, str]) -> Drawing:
    """Draw a topic with queues on two brokers."""
    drawing = Drawing(640, 230, "A producer sends to four queues of a topic on two brokers", texts)
    drawing.box(20, 90, 110, 50, "producer", BLUE)
    drawing.text(400, 26, "topic Orders", FAINT)
    for broker in range(2):
        top = 40 + broker * 95
        drawing.box(230, top, 340, 80, "", GREY)
        drawing.text(604, top + 45, f"broker-{'ab'[broker]}", FAINT)
        for queue in range(2):
            y = top + 10 + queue * 34
            drawing.box(320, y, 70, 26, f"queue {queue}", GREEN)
            for message in range(5 - queue - broker):
                drawing.box(400 + message * 30, y, 26, 26, str(message), ORANGE)
            drawing.arrow(130, 105 + broker * 15 + queue * 6, 316, y + 13)
    return drawing


def groups(texts: Mapping[str, str]) -> Drawing:
    """Draw two groups of a topic."""
    drawing = Drawing(
        640, 230, "A topic is delivered to two groups; the members of each share its queues", texts
    )
    drawing.text(90, 26, "topic Orders", FAINT)
    for queue in range(4):
        drawing.box(30, 40 + queue * 44, 120, 32, f"queue {queue}", GREEN)
    drawing.box(350, 20, 270, 120, "", GREY)
    drawing.text(540, 85, "group billing", FAINT)
    drawing.box(350, 155, 270, 60, "", GREY)
    drawing.text(540, 190, "group mailing", FAINT)
    for member in range(2):
        drawing.box(365, 32 + member * 54, 100, 40, f"member {member + 1}", BLUE)
    drawing.box(365, 165, 100, 40, "member 1", BLUE)
    for queue in range(4):
        y = 56 + queue * 44
        drawing.arrow(150, y - 4, 361, 42 + queue % 2 * 16 + queue // 2 * 54)
        drawing.arrow(150, y + 4, 361, 172 + queue * 8)
    return drawing


def offsets(texts: Mapping[str, str]) -> Drawing:
    """Draw the offsets of a queue."""
    drawing = Drawing(640, 180, "Messages of a queue: acknowledged, in progress, and waiting", texts)
    for offset in range(12):
        fill = BLUE if offset in (4, 6) else GREEN if offset < 7 else ORANGE
        drawing.box(20 + offset * 50, 60, 44, 40, str(offset), fill)
    drawing.text(242, 24, "committed offset: 4")
    drawing.arrow(242, 32, 242, 56)
    drawing.text(570, 24, "end: 12")
    drawing.arrow(615, 32, 615, 56)
    for x, fill, text in ((30, GREEN, "acknowledged"), (190, BLUE, "in progress"), (340, ORANGE, "waiting")):
        drawing.box(x, 130, 24, 24, "", fill)
        drawing.text(x + 34, 147, text, FAINT, "start")
    drawing.text(600, 147, "lag: 12 - 4 = 8", FAINT, "end")
    return drawing


def rebalancing(texts: Mapping[str, str]) -> Drawing:
    """Draw the assignment of queues before and after a member joins."""
    drawing = Drawing(
        640, 230, "One member has four queues; after a second member joins, each has two", texts
    )
    for side, (x, title) in enumerate(((20, "one member"), (350, "a second member joins"))):
        drawing.text(x + 135, 26, title, FAINT)
        for queue in range(4):
            drawing.box(x, 40 + queue * 44, 90, 32, f"queue {queue}", GREEN)
        for member in range(side + 1):
            y = 110 + (member * 88 - 44) * side
            drawing.box(x + 170, y, 100, 40, f"member {member + 1}", BLUE)
        for queue in range(4):
            target = 130 + (queue // 2 * 88 - 44) * side
            drawing.arrow(x + 90, 56 + queue * 44, x + 166, target + queue % 2 * 8 - 4)
    drawing.arrow(305, 120, 335, 120)
    return drawing


def into_table(texts: Mapping[str, str]) -> Drawing:
    """Draw a stream from a topic into a table."""
    drawing = Drawing(
        700, 200, "A batch of messages becomes rows; one commit adds the rows and the batch's number", texts
    )
    drawing.text(75, 30, "topic Orders", FAINT)
    for queue in range(3):
        drawing.box(20, 44 + queue * 44, 110, 32, f"queue {queue}", GREEN)
        drawing.arrow(130, 60 + queue * 44, 206, 96 + queue * 8)
    drawing.box(210, 80, 110, 48, "Spark", BLUE)
    drawing.box(210, 154, 110, 32, "checkpoint", GREY)
    drawing.arrow(265, 128, 265, 150)
    drawing.arrow(320, 104, 396, 104)
    drawing.box(400, 44, 280, 120, "", GREY)
    drawing.text(540, 30, "one commit of the table", FAINT)
    for day in range(3):
        drawing.box(415 + day * 85, 58, 80, 40, f"day {day + 1}", ORANGE)
    drawing.box(415, 112, 250, 38, "query id, batch number", GREEN)
    return drawing


def out_of_table(texts: Mapping[str, str]) -> Drawing:
    """Draw a stream from the changes of a table into a topic."""
    drawing = Drawing(700, 190, "Changes of a table become messages; those of a key go to one queue", texts)
    drawing.text(110, 30, "changes of a table", FAINT)
    for number, (text, fill) in enumerate(
        (("1  insert  book", ORANGE), ("2  insert  lamp", GREY), ("3  update  book", ORANGE))
    ):
        drawing.box(20, 44 + number * 44, 180, 32, text, fill)
        drawing.arrow(200, 60 + number * 44, 276, 96 + number * 8)
    drawing.box(280, 80, 110, 48, "Spark", BLUE)
    drawing.text(560, 30, "topic OrderChanges", FAINT)
    for queue, (keys, fill) in enumerate(((("1", "3"), ORANGE), (("2",), GREY))):
        y = 60 + queue * 54
        drawing.arrow(390, 100 + queue * 8, 466, y + 16)
        drawing.box(470, y, 80, 32, f"queue {queue}", GREEN)
        for place, key in enumerate(keys):
            drawing.box(560 + place * 38, y, 32, 32, key, fill)
    return drawing


def change_data(texts: Mapping[str, str]) -> Drawing:
    """Draw the way of changes from a database to a table."""
    drawing = Drawing(760, 190, "Changes of a database are merged into a table", texts)
    drawing.box(15, 70, 100, 50, "database", BLUE)
    drawing.arrow(115, 95, 151, 95)
    drawing.text(275, 30, "messages in a queue", FAINT)
    for place, text in enumerate(("1: Ann", "1: Eve", "2: Bob", "1: ✕")):
        drawing.box(155 + place * 60, 75, 56, 40, text, ORANGE)
        drawing.text(183 + place * 60, 135, str(place), FAINT)
    drawing.arrow(395, 95, 431, 95)
    drawing.text(485, 30, "last change of each key", FAINT)
    drawing.box(435, 55, 100, 34, "2: Bob", ORANGE)
    drawing.box(435, 101, 100, 34, "1: ✕", ORANGE)
    drawing.arrow(535, 95, 591, 95)
    drawing.text(563, 85, "MERGE", FAINT)
    drawing.text(665, 30, "table", FAINT)
    drawing.box(595, 55, 150, 34, "2: Bob, offset 2", GREEN)
    drawing.box(595, 101, 150, 34, "1: deleted, offset 3", GREY)
    drawing.text(380, 172, "An older change of a key does not replace a newer one", FAINT)
    return drawing


def backfill(texts: Mapping[str, str]) -> Drawing:
    """Draw a queue that a batch job and a stream read up to and from the same offset."""
    drawing = Drawing(640, 210, "A batch job reads up to an offset, and a stream from there", texts)
    for offset in range(10):
        drawing.box(60 + offset * 52, 70, 46, 40, str(offset), ORANGE if offset < 6 else GREEN)
    drawing.text(370, 24, "boundary: 6")
    drawing.arrow(370, 32, 370, 64)
    drawing.box(140, 150, 150, 40, "batch job", BLUE)
    drawing.box(410, 150, 150, 40, "stream", BLUE)
    drawing.arrow(215, 112, 215, 146)
    drawing.arrow(485, 112, 485, 146)
    return drawing


def bodies(texts: Mapping[str, str]) -> Drawing:
    """Draw a stream that writes orders to one table, and other bodies to another one."""
    drawing = Drawing(640, 190, "One stream writes orders to a table, and other bodies to another one", texts)
    for place, (text, fill) in enumerate((("JSON", ORANGE), ("Avro", ORANGE), ("?", GREY))):
        drawing.box(20 + place * 64, 75, 58, 40, text, fill)
    drawing.arrow(206, 95, 246, 95)
    drawing.box(250, 65, 110, 60, "stream", BLUE)
    drawing.arrow(360, 85, 426, 50)
    drawing.arrow(360, 105, 426, 140)
    drawing.box(430, 25, 195, 50, "orders", GREEN)
    drawing.box(430, 115, 195, 50, "position, body, reason", GREY)
    return drawing


def layers() -> list[list[str]]:
    """Return the packages of the library by layer, the highest first, as ``architecture.txt`` lists them."""
    lines = (FOLDER / "architecture.txt").read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def architecture(texts: Mapping[str, str]) -> Drawing:
    """Draw the layers of the library."""
    rows = layers()
    drawing = Drawing(820, 20 + 52 * len(rows), "The packages of the library in layers", texts)
    for index, row in enumerate(rows):
        y = 14 + index * 52
        width = (796 - 8 * (len(row) - 1)) // len(row)
        for place, package in enumerate(row):
            drawing.box(
                12 + place * (width + 8), y, width, 40, package, (BLUE, GREEN, ORANGE, GREY)[index % 4]
            )
    return drawing


STATE_BOXES = {
    SendState.COMPRESSING: (10, 110, 175, 40, GREY),
    SendState.READY: (230, 110, 80, 40, BLUE),
    SendState.WAITING_FOR_ROUTE: (190, 20, 160, 40, GREY),
    SendState.WAITING_FOR_CONNECTION: (370, 30, 180, 40, GREY),
    SendState.WRITTEN: (610, 110, 90, 40, ORANGE),
    SendState.BACKING_OFF: (400, 220, 120, 40, GREY),
    SendState.ANSWERED: (770, 165, 90, 40, ORANGE),
    SendState.DONE: (770, 255, 90, 40, GREEN),
}
"""The left and upper edges, the sizes and the colors of the states of a send."""
WITH_OUTCOME = (SendState.WRITTEN, SendState.BACKING_OFF, SendState.ANSWERED)
"""The states from which a send that is not cancelled gets to DONE."""


def send_states(texts: Mapping[str, str]) -> Drawing:
    """Draw the states of a send. The ways of cancelled sends to DONE are left out."""
    drawing = Drawing(880, 310, "The states of a send", texts)
    for state, following in NEXT_STATES.items():
        for after in sorted(following):
            if after is not SendState.DONE or state in WITH_OUTCOME:
                drawing.arrow(*_between(STATE_BOXES[state][:4], STATE_BOXES[after][:4]))
    for state, (x, y, width, height, fill) in STATE_BOXES.items():
        drawing.box(x, y, width, height, state.value, fill)
    return drawing


def _between(box: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return the ends of an arrow between two boxes, a little to the right of the line of their centers."""
    (x, y), (to_x, to_y) = ((left + width / 2, top + height / 2) for left, top, width, height in (box, other))
    dx, dy = to_x - x, to_y - y
    length = (dx**2 + dy**2) ** 0.5
    x, y, to_x, to_y = (
        x - 6 * dy / length,
        y + 6 * dx / length,
        to_x - 6 * dy / length,
        to_y + 6 * dx / length,
    )

    def edge(of: tuple[int, ...], sign: int, at_x: float, at_y: float) -> tuple[int, int]:
        """Return the point at which the line through a point inside a box leaves it."""
        left, top, width, height = of
        steps = []
        if dx:
            steps.append(((left + width if sign * dx > 0 else left) - at_x) / (sign * dx))
        if dy:
            steps.append(((top + height if sign * dy > 0 else top) - at_y) / (sign * dy))
        step = min(steps) + 2 / length
        return round(at_x + sign * dx * step), round(at_y + sign * dy * step)

    return (*edge(box, 1, x, y), *edge(other, -1, to_x, to_y))


TRANSLATED = (
    queues,
    groups,
    offsets,
    rebalancing,
    into_table,
    out_of_table,
    change_data,
    backfill,
    bodies,
)
"""The pictures that have a Chinese copy."""


def drawings() -> Iterator[tuple[Path, str]]:
    """Return the path and the content of each picture."""
    for draw in (*TRANSLATED, architecture, send_states):
        yield FOLDER / f"{draw.__name__}.svg", str(draw({}))
    for draw in TRANSLATED:
        yield FOLDER / f"{draw.__name__}.zh_CN.svg", str(draw(CHINESE))


if __name__ == "__main__":
    for path, content in drawings():
        path.write_text(content, encoding="utf-8")
