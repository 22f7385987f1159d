"""The file of named clusters: changes by ``config set`` and ``config use``, locking and replacement."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rocketmq_py.cli import cluster_file, main
from rocketmq_py.cli.clusters import Clusters, ClustersError
from tests.cli.command import run_cli
from tests.cli.conftest import Invoke

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the file, in a folder of its own. The file does not exist yet."""
    file = tmp_path / "settings" / "config.toml"
    file.parent.mkdir()
    monkeypatch.setenv("ROCKETMQ_CONFIG", str(file))
    return file


def run_config(*arguments: str, answer: str | None = None) -> None:
    ended = CliRunner().invoke(main, ["config", *arguments], input=answer)
    assert (ended.exit_code, ended.stdout) == (0, ""), ended.stderr


def content(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=TEXT, value=TEXT)
@example(name="prod", value="a\x7fb")
@example(name="\U0001f600", value="b")
@example(name='a.b"\n', value="\0\r\n\t\x85\u2028\\\"'")
def test_every_name_and_value_reads_back(file: Path, name: str, value: str) -> None:
    file.unlink(missing_ok=True)
    cluster_file.set_cluster(name, {"tls_ca_file": value, "tls": True})
    cluster_file.use_cluster(name)
    clusters = Clusters.load()
    assert (clusters.current, clusters.by_name) == (name, {name: {"tls_ca_file": value, "tls": True}})


def test_set_keeps_comments_and_other_clusters(file: Path) -> None:
    text = (
        "# our clusters\n\n"
        '[clusters.prod]  # the real one\naddress = "a:1"  # two soon\ntls = true\n\n'
        "[clusters.test]\naddress = 'b:1'\n"
    )
    file.write_text(text)
    run_config("set", "prod", "address=c:1", "tls=")
    assert file.read_text() == text.replace('"a:1"', '"c:1"').replace("tls = true\n", "")
    run_config("use", "test")
    run_config("set", "new", "insecure=true")
    assert content(file) == {
        "current": "test",
        "clusters": {
            "prod": {"address": "c:1"},
            "test": {"address": "b:1"},
            "new": {"insecure": True},
        },
    }
    assert file.read_text().startswith("# our clusters\n")


@pytest.mark.parametrize(
    "text",
    [
        "clusters.a.tls_ca_file = 'x'\nclusters.b.tls_ca_file = 'y'\n",
        "clusters = {a = {tls_ca_file = 'x'}, b = {tls_ca_file = 'y'}}\n",
        "[clusters.a]\ntls_ca_file = 'x'\n[other]\n[clusters.b]\ntls_ca_file = 'y'\n",
        "[clusters]\na.tls_ca_file = 'x'\r\nb = {tls_ca_file = 'y'}\r\n",
    ],
)
def test_set_changes_a_file_of_any_form(file: Path, text: str) -> None:
    file.write_bytes(text.encode())
    run_config("set", "a", "tls_ca_file=z", "namespace=n")
    run_config("set", "c", "tls_ca_file=w")
    run_config("use", "b")
    z, w = (str(Path(name).absolute()) for name in "zw")
    expected = {"a": {"tls_ca_file": z, "namespace": "n"}, "b": {"tls_ca_file": "y"}, "c": {"tls_ca_file": w}}
    assert content(file)["clusters"] == expected
    assert content(file)["current"] == "b"


def test_files_are_stored_with_absolute_paths(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("hunter2")
    names = ("tls_ca_file", "tls_certificate_file", "tls_key_file")
    for name in names:
        (tmp_path / name).touch()
    run_config("set", "prod", *[f"{name}={name}" for name in names], "secret_key=@secret", "proxy=@./secret")
    assert content(file)["clusters"]["prod"] == {
        **{name: str(tmp_path / name) for name in names},
        "secret_key": f"@{tmp_path / 'secret'}",
        "proxy": f"@{tmp_path / 'secret'}",
    }
    run_config("set", "prod", "tls_ca_file=", "secret_key=secret", "proxy=socks5://h:1")
    settings = content(file)["clusters"]["prod"]
    assert "tls_ca_file" not in settings
    assert (settings["secret_key"], settings["proxy"]) == ("secret", "socks5://h:1")


@pytest.mark.parametrize("leftover", ["file", "link"])
def test_a_leftover_file_never_gets_the_secrets(file: Path, tmp_path: Path, leftover: str) -> None:
    new, target = file.with_name("config.toml.new"), tmp_path / "target"
    target.write_text("before")
    if leftover == "link":
        new.symlink_to(target)
    else:
        new.write_text("before")
    run_config("set", "prod", "secret_key=very-secret")
    assert content(file) == {"clusters": {"prod": {"secret_key": "very-secret"}}}
    assert not file.is_symlink()
    assert mode(file) == 0o600
    assert (new.read_text(), target.read_text()) == ("before", "before")


def test_set_makes_a_readable_file_private(file: Path) -> None:
    file.write_text("[clusters.prod]\nsecret_key = 'very-secret'\n")
    file.chmod(0o644)
    run_config("set", "prod", "access_key=alice")
    assert mode(file) == 0o600


def test_a_lock_that_is_a_link_is_refused(file: Path, tmp_path: Path) -> None:
    file.with_name("config.toml.lock").symlink_to(tmp_path / "target")
    ended = CliRunner().invoke(main, ["config", "set", "prod", "tls_ca_file=x"])
    assert (ended.exit_code, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"rocketmq-py: cannot lock {file}.lock: ")
    assert not file.exists()
    assert not (tmp_path / "target").exists()


async def test_many_sets_at_once_all_count(file: Path) -> None:
    env = {"ROCKETMQ_CONFIG": str(file)}

    async def set_one(name: str) -> None:
        ended = await run_cli("config", "set", name, f"namespace={name}", env=env)
        assert (ended.code, ended.err) == (0, "")

    names = [f"c{number}" for number in range(10)]
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(set_one, name)
    assert content(file) == {"clusters": {name: {"namespace": name} for name in names}}


def test_secrets_are_asked_for_before_the_lock_is_taken(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prompt(*_: object, **__: object) -> str:
        run_config("set", "meanwhile", "namespace=x")  # would wait forever for a lock that this command holds
        return "very-secret"

    monkeypatch.setattr("click.prompt", prompt)
    run_config("set", "prod", "secret_key=-")
    assert content(file)["clusters"] == {
        "meanwhile": {"namespace": "x"},
        "prod": {"secret_key": "very-secret"},
    }


def test_a_file_that_reads_back_differently_is_not_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_config("set", "prod", "tls_ca_file=x")
    before = file.read_bytes()
    monkeypatch.setattr("tomlkit.dumps", lambda _: "[clusters.prod]\ntls_ca_file = 'other'\n")
    with pytest.raises(ClustersError, match="does not read back"):
        cluster_file.set_cluster("prod", {"tls_ca_file": "y"})
    assert file.read_bytes() == before
    assert {path.name for path in file.parent.iterdir()} == {"config.toml", "config.toml.lock"}


def test_a_write_that_fails_leaves_everything_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_config("set", "prod", "tls_ca_file=x")
    before = file.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(ClustersError, match=r"cannot write .*: No space left on device"):
        cluster_file.set_cluster("prod", {"tls_ca_file": "y"})
    assert file.read_bytes() == before
    assert {path.name for path in file.parent.iterdir()} == {"config.toml", "config.toml.lock"}


@pytest.mark.parametrize("arguments", [("prod", "tls_ca_file=\udcff"), ("\udcff", "tls_ca_file=x")])
def test_an_argument_that_is_not_utf_8_writes_nothing(
    invoke: Invoke, file: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, str]
) -> None:
    monkeypatch.setenv("ROCKETMQ_CONFIG", str(file))
    ended = invoke("config", "set", *arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert "is not UTF-8" in line
    assert not list(file.parent.iterdir())
