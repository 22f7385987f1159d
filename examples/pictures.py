"""Render terminal output of commands as SVG, for README.md, docs/index.md and docs/admin.md.

    python examples/pictures.py [FOLDER]

It runs an embedded broker with some topics and groups, and the commands on a pseudoterminal. FOLDER is
``examples/pictures`` by default. The pictures use a font of the reader's system, so they load nothing.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import trio
from rich.color import Color, parse_rgb_hex
from rich.console import Console
from rich.segment import Segment
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from rocketmq_py import Client, Message
from rocketmq_py.admin import MessageType
from rocketmq_py.broker import EmbeddedBroker

WIDTH, HEIGHT = 92, 24
PICTURES = {
    "topics.svg": "rocketmq-py topic list",
    "group.svg": "rocketmq-py group describe billing",
    "top.svg": "rocketmq-py top --once --interval 2",
}
TOPICS = {
    "Orders": (MessageType.NORMAL, 120),
    "Payments": (MessageType.TRANSACTION, 45),
    "Shipments": (MessageType.FIFO, 20),
}
"""The type of each topic, and its messages per second."""
SESSION = (
    """rocketmq-py send -v -t Orders --tags paid -k order-7 '{"item": "lamp", "total": 12.5}'""",
    "seq 1 5000 | rocketmq-py send -t Orders",
    "rocketmq-py tail -t Orders -o earliest -e --tags paid -f '%b/%p@%o  %k  %s\\n'",
    "rocketmq-py tail -t Orders -G billing -o earliest -c 3",
    "rocketmq-py group describe billing",
)
"""The commands of the picture ``session``, which run one after the other on a broker with an empty topic."""

CHARACTER, LINE, MARGIN = 8.4, 20, 16
"""The size of a character and the margin, in pixels."""


def theme(*colors: str) -> TerminalTheme:
    """Return a theme from hexadecimal colors: the background, the text, then black to white of ANSI."""
    background, text, *rest = (parse_rgb_hex(color) for color in colors)
    ansi: list[tuple[int, int, int]] = [*rest]
    return TerminalTheme(background, text, ansi)


DARK = theme(
    *("0d1117", "e6edf3"),
    *("6e7681", "ff7b72", "3fb950", "d29922", "58a6ff", "bc8cff", "39c5cf", "e6edf3"),
)
LIGHT = theme(
    *("f6f8fa", "1f2328"),
    *("1f2328", "cf222e", "116329", "7d4e00", "0969da", "8250df", "1b7c83", "6e7781"),
)
FRAME = "#8c959f"
PROMPT = "\x1b[32m$ \x1b[39;1m"
STYLE = """
text {
    font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    font-size: 14px;
}
@media (prefers-reduced-motion: no-preference) { .step { animation: appear 1ms backwards } }
@keyframes appear { from { visibility: hidden } }
"""


def on_terminal(line: str, address: str) -> str:
    """Run a line of shell on a new pseudoterminal, and return its output.

    Args:
        line: commands. ``rocketmq-py`` is that of this Python's environment.
        address: the name server.
    """
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    size = {"COLUMNS": str(WIDTH), "LINES": str(HEIGHT)}
    environment = {**os.environ, **size, "TERM": "xterm-256color", "PATH": path, "NAMESRV_ADDR": address}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        ["sh", "-c", line], stdin=inside, stdout=inside, stderr=inside, env=environment
    )
    os.close(inside)
    printed = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux reports EIO, not end of file, after the command has closed the terminal
            piece = b""
        if not piece:
            break
        printed += piece
    os.close(terminal)
    if process.wait():
        raise SystemExit(f"{line} ended with {process.returncode}: {printed.decode()}")
    return printed.decode().replace("\r\n", "\n")


def lines_of(printed: str) -> list[list[Segment]]:
    """Return the lines of a terminal's output, each as segments of one style."""
    with open(os.devnull, "w") as nowhere:
        console = Console(width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
        return console.render_lines(Text.from_ansi(printed), pad=False)


def text_elements(line: list[Segment], y: int, colors: TerminalTheme) -> Iterator[str]:
    """Return the words of a line as SVG. Each group of words has the exact width of its characters."""
    column = 0
    for segment in line:
        style = segment.style
        color = (style and style.color) or Color.default()
        fill = color.get_truecolor(colors).hex
        weight = ' font-weight="bold"' if style and style.bold else ""
        for words in re.finditer(r"\S+(?: \S+)*", segment.text):
            x = MARGIN + (column + words.start()) * CHARACTER
            length = len(words[0]) * CHARACTER
            yield (
                f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}" fill="{fill}"{weight}>'
                f"{escape(words[0])}</text>"
            )
        column += len(segment.text)


def picture(title: str, steps: list[tuple[float, str]], colors: TerminalTheme) -> str:
    """Return the SVG of a terminal.

    Args:
        title: the text for readers who cannot see the picture.
        steps: outputs, each with the seconds after which it appears.
        colors: the theme.
    """
    elements, y = [], MARGIN + LINE
    for seconds, printed in steps:
        elements.append(f'<g class="step" style="animation-delay: {seconds:.1f}s">' if seconds else "<g>")
        for line in lines_of(printed.removesuffix("\n")):
            y += LINE
            elements += text_elements(line, y, colors)
        elements.append("</g>")
    width, height = round(WIDTH * CHARACTER + 2 * MARGIN), y + MARGIN
    fill = colors.background_color.hex
    frame = f'width="{width - 1}" height="{height - 1}" rx="8" fill="{fill}" stroke="{FRAME}"'
    dots = (f'<circle cx="{MARGIN + 6 + 20 * each}" cy="20" r="6" fill="{FRAME}"/>' for each in range(3))
    box = f'viewBox="0 0 {width} {height}" width="{width}"'
    heading = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect x="0.5" y="0.5" {frame}/>',
    ]
    return "\n".join([*heading, *dots, *elements, "</svg>", ""])


async def run_session() -> list[tuple[float, str]]:
    """Run the session, and return each command and output with the time at which the picture shows it."""
    steps: list[tuple[float, str]] = []
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        async with client.admin() as admin:
            await admin.topics.create("Orders", queues=4)
        for number, line in enumerate(SESSION):
            printed = await trio.to_thread.run_sync(on_terminal, line, broker.name_server_address)
            gap = "\n" if number + 1 < len(SESSION) else ""
            steps.append((number * 2, f"{PROMPT}{line}\x1b[0m"))
            steps.append((number * 2 + 0.6, printed + gap))
    return steps


async def write(folder: Path, name: str, content: str) -> None:
    """Write a picture, and print its path."""
    path = trio.Path(folder, name)
    await path.parent.mkdir(parents=True, exist_ok=True)
    await path.write_text(content)
    print(path)


async def keep_busy(client: Client, topic: str, rate: int) -> None:
    """Send ``rate`` messages a second until cancelled."""
    async with client.producer("pictures") as producer:
        while True:
            await producer.send(Message(topic, b'{"order": 7, "total": 12.5}'))
            await trio.sleep(1 / rate)


async def main(folder: Path) -> None:
    """Render all pictures."""
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        async with client.admin() as admin:
            for topic, (kind, _) in TOPICS.items():
                await admin.topics.create(topic, queues=4, message_type=kind)
        async with client.reader() as reader, client.producer("pictures") as producer:
            for group, topics in (("billing", ["Orders", "Payments"]), ("shipping", ["Orders", "Shipments"])):
                for topic in topics:
                    await reader.commit(group, dict.fromkeys(await reader.offsets(topic), 0))
            for topic, (_, rate) in TOPICS.items():
                for _ in range(rate):
                    await producer.send(Message(topic, b"x"))
        async with client.push_consumer("billing") as consumer, trio.open_nursery() as nursery:
            consumer.subscribe("Payments")
            nursery.start_soon(consumer.run, lambda message: None)
            for topic, (_, rate) in TOPICS.items():
                nursery.start_soon(keep_busy, client, topic, rate)
            for name, line in PICTURES.items():
                printed = await trio.to_thread.run_sync(on_terminal, line, broker.name_server_address)
                await write(folder, name, picture(line, [(0, f"{PROMPT}{line}\x1b[0m\n{printed}")], DARK))
            nursery.cancel_scope.cancel()
    session = await run_session()
    for name, colors in (("session-light.svg", LIGHT), ("session-dark.svg", DARK)):
        await write(folder, name, picture("Commands of rocketmq-py and their output", session, colors))


if __name__ == "__main__":
    default = Path(__file__).parent / "pictures"
    trio.run(main, Path(sys.argv[1]) if len(sys.argv) > 1 else default)
