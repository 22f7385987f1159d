"""Render terminal output of commands as SVG, for README.md and docs/admin.md.

    python examples/pictures.py [FOLDER]

It runs an embedded broker with some topics and groups, and the commands on a pseudoterminal. FOLDER is
``examples/pictures`` by default.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path

import trio
from rich.console import Console
from rich.text import Text

from rocketmq_py import Client, Message
from rocketmq_py.admin import MessageType
from rocketmq_py.broker import EmbeddedBroker

WIDTH, HEIGHT = 92, 24
COMMAND = [sys.executable, "-m", "rocketmq_py"]
PICTURES = {
    "topics.svg": ("topic", "list"),
    "group.svg": ("group", "describe", "billing"),
    "top.svg": ("top", "--once", "--interval", "2"),
}
TOPICS = {
    "Orders": (MessageType.NORMAL, 120),
    "Payments": (MessageType.TRANSACTION, 45),
    "Shipments": (MessageType.FIFO, 20),
}
"""The type of each topic, and its messages per second."""


def on_terminal(*arguments: str) -> str:
    """Run a command on a new pseudoterminal and return its output."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": str(HEIGHT)}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen([*COMMAND, *arguments], stdin=inside, stdout=inside, env=environment)
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
        raise SystemExit(f"rocketmq-py {' '.join(arguments)} ended with {process.returncode}")
    return printed.decode().replace("\r\n", "\n")


def picture(title: str, printed: str) -> str:
    """Return the SVG of a terminal that shows the output."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(printed))
    return console.export_svg(title=title, unique_id="rocketmq-py")


async def keep_busy(client: Client, topic: str, rate: int) -> None:
    """Send ``rate`` messages a second until cancelled."""
    async with client.producer("pictures") as producer:
        while True:
            await producer.send(Message(topic, b'{"order": 7, "total": 12.5}'))
            await trio.sleep(1 / rate)


async def main(folder: Path) -> None:
    """Render all pictures."""
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        access = ("-n", broker.name_server_address)
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
            for name, arguments in PICTURES.items():
                printed = await trio.to_thread.run_sync(partial(on_terminal, *arguments, *access))
                path = trio.Path(folder, name)
                await path.parent.mkdir(parents=True, exist_ok=True)
                await path.write_text(picture(f"rocketmq-py {' '.join(arguments)}", printed))
                print(path)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    default = Path(__file__).parent / "pictures"
    trio.run(main, Path(sys.argv[1]) if len(sys.argv) > 1 else default)
