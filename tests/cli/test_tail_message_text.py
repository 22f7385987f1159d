"""File names and environment variables that ``tail`` makes of unusual topics, tags and keys."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rocketmq_py import Client, Message
from tests.cli.conftest import Invoke

LONG_KEY = "k" * 300


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """Lower the limit of open files to the returned number."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 128
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def send(address: str, *keys: str, tag: str = "") -> None:
    """Send a message per key to one queue; its body is its number."""
    async with Client(address) as client:
        async with client.admin() as admin:
            await admin.topics.create("Orders", queues=1)
        async with client.producer("senders") as producer:
            for number, key in enumerate(keys):
                await producer.send(Message("Orders", b"%d" % number, tags=tag, keys=key))


def tail(address: str, *arguments: str) -> tuple[str, ...]:
    return ("tail", "-t", "Orders", "-o", "earliest", "-e", "-n", address, *arguments)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_commands_get_nul_characters_escaped(invoke: Invoke, threaded_broker: str, tmp_path: Path) -> None:
    trio.run(lambda: send(threaded_broker, "a\0b", "c\0d", "plain%00", tag="red\0"))
    printed = tmp_path / "printed"
    command = f'echo "$(cat) $ROCKETMQ_MESSAGE_TAGS $ROCKETMQ_MESSAGE_KEYS" >> {printed}'
    ended = invoke(*tail(threaded_broker, "-x", command))
    assert ended.code == 0
    assert printed.read_text() == "0 red%00 a%00b\n1 red%00 c%00d\n2 red%00 plain%00\n"
    tags, keys = ended.err.splitlines()
    assert "ROCKETMQ_MESSAGE_TAGS has %XX instead of characters" in tags
    assert "ROCKETMQ_MESSAGE_KEYS has %XX instead of characters" in keys


def test_long_keys_shorten_file_names(invoke: Invoke, threaded_broker: str, tmp_path: Path) -> None:
    other = LONG_KEY + "x"
    trio.run(lambda: send(threaded_broker, LONG_KEY, other, "short", LONG_KEY))
    ended = invoke(*tail(threaded_broker, "--to", str(tmp_path / "{key}.txt")))
    assert ended.code == 0
    (line,) = ended.err.splitlines()
    assert "the file name is shortened to 255 bytes" in line
    found = contents(tmp_path)
    assert found.pop("short.txt") == "2\n"
    assert sorted(found.values()) == ["0\n3\n", "1\n"]
    assert all(len(name) == 255 and name.endswith(".txt") for name in found)


def test_files_of_keys_are_visible_and_stay_in_their_folder(
    invoke: Invoke, threaded_broker: str, tmp_path: Path
) -> None:
    trio.run(lambda: send(threaded_broker, ".bashrc", "-rf", "..", "a/b", "a%2Fb", "100%"))
    ended = invoke(*tail(threaded_broker, "--to", str(tmp_path / "{key}")))
    assert ended.code == 0
    assert contents(tmp_path) == {
        "%2Ebashrc": "0\n",
        "%2Drf": "1\n",
        "%2E.": "2\n",
        "a%2Fb": "3\n",
        "a%252Fb": "4\n",
        "100%": "5\n",
    }
    (line,) = ended.err.splitlines()
    assert "the file name has %XX instead of characters" in line


def test_more_keys_than_open_files(
    invoke: Invoke, threaded_broker: str, tmp_path: Path, few_descriptors: int
) -> None:
    keys = [f"key-{number}" for number in range(3 * few_descriptors)]
    trio.run(lambda: send(threaded_broker, *keys, *keys))
    ended = invoke(*tail(threaded_broker, "--to", str(tmp_path / "{key}")))
    assert (ended.code, ended.err) == (0, "")
    assert contents(tmp_path) == {key: f"{number}\n{number + len(keys)}\n" for number, key in enumerate(keys)}


def test_a_group_writes_more_keys_than_open_files(
    invoke: Invoke, threaded_broker: str, tmp_path: Path, few_descriptors: int
) -> None:
    keys = [f"key-{number % 100}" for number in range(300)]
    trio.run(lambda: send(threaded_broker, *keys))
    ended = invoke(
        *("tail", "-t", "Orders", "-G", "writers", "-o", "earliest", "-c", "300", "-n", threaded_broker),
        *("--to", str(tmp_path / "{key}")),
    )
    assert (ended.code, ended.err) == (0, "")
    found = {name: sorted(map(int, text.split())) for name, text in contents(tmp_path).items()}
    assert found == {f"key-{number}": [number, number + 100, number + 200] for number in range(100)}


def test_a_template_with_too_much_text_is_a_usage_error(invoke: Invoke) -> None:
    ended = invoke("tail", "-t", "Orders", "--to", "{key}" + "x" * 250)
    assert ended.code == 2
    assert "the text around the placeholders has 250 bytes" in ended.err
