"""Every text parameter of every command rejects values that are not UTF-8, before any request."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from rocketmq_py.cli import main
from tests.cli.conftest import Invoke
from tests.cli.test_terminal import all_commands

COMMANDS = dict(all_commands())
RAW = {
    *(("reply", "body"), ("request", "body"), ("send", "body")),
    *(("request", "render"), ("tail", "render"), ("tail", "pattern")),
    *(("reply", "command"), ("tail", "command"), ("tail", "file_name")),
}
"""Parameters that accept any bytes: bodies, formats, patterns, shell commands and file names."""
FILES = (click.Path, click.File)


def text_parameters() -> Iterator[tuple[str, click.Parameter]]:
    """Return each text parameter, with its command's words."""
    for words, command in COMMANDS.items():
        for parameter in command.params:
            is_flag = getattr(parameter, "is_flag", False)
            if not is_flag and not isinstance(parameter.type, FILES) and (words, parameter.name) not in RAW:
                yield words, parameter


def process(words: str, parameter: click.Parameter) -> None:
    value = ("\udcff",) if parameter.multiple or parameter.nargs == -1 else "\udcff"
    parameter.process_value(click.Context(COMMANDS[words], info_name=words), value)


def test_a_value_that_is_not_utf_8_is_rejected_by_each_text_parameter() -> None:
    checked = 0
    for words, parameter in text_parameters():
        with pytest.raises(click.BadParameter) as refused:
            process(words, parameter)
        if isinstance(parameter.type, click.types.StringParamType):
            assert refused.value.message == "it is not UTF-8", (words, parameter.name)
        assert refused.value.exit_code == 2, (words, parameter.name)
        checked += 1
    assert checked > 500


def test_parameters_for_bytes_accept_them() -> None:
    for words, name in RAW:
        (parameter,) = [parameter for parameter in COMMANDS[words].params if parameter.name == name]
        process(words, parameter)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "\udcff"],
        ["topic", "list", "--namespace", "\udcff"],
        ["send", "-t", "T", "-k", "\udcff", "x"],
        ["group", "describe", "\udcff"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_the_error_is_one_line_with_exit_code_2(invoke: Invoke, arguments: list[str]) -> None:
    ended = invoke(*arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith("rocketmq-py: Invalid value for ")
    assert line.endswith("it is not UTF-8")


def test_a_value_of_the_environment_is_rejected(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "\udcff")
    ended = invoke("topic", "list")
    assert (ended.code, ended.out) == (2, b"")
    assert "ROCKETMQ_ACCESS_KEY" in ended.err
    assert "it is not UTF-8" in ended.err


def test_all_commands_are_covered() -> None:
    assert {words.split()[0] for words in COMMANDS} == set(main.list_commands(click.Context(main)))
