"""Credentials, namespaces and named clusters at the command line."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rocketmq_py import Client
from rocketmq_py.address import split_address
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli import main
from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.client import core_of
from tests.cli.command import run_cli
from tests.remoting.socks_server import socks_server

SECRET = "very-secret"
PROXY = f"socks5://alice:{SECRET}@10.0.0.1:1080"


@pytest.fixture
async def guarded() -> AsyncIterator[str]:
    """The name server of a broker that accepts only signed requests."""
    async with EmbeddedBroker(access_keys={"alice": SECRET}) as broker:
        yield broker.name_server_address


def access_with(*arguments: str, env: Mapping[str, str] = {}) -> Access:
    """Return the access that a command receives for a command line and environment variables."""
    received: list[Access] = []

    @click.command
    @access_options
    def command(access: Access) -> None:
        received.append(access)

    ended = CliRunner().invoke(command, arguments, env=env)
    assert (ended.exit_code, ended.stderr) == (0, "")
    return received[0]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"ROCKETMQ_CONFIG": str(tmp_path / "config.toml")}


async def test_every_command_signs_its_requests(guarded: str, env: dict[str, str], tmp_path: Path) -> None:
    secret_file = tmp_path / "secret"
    secret_file.write_text(f"{SECRET}\n")
    access = ["-n", guarded, "--access-key", "alice", "--secret-key", f"@{secret_file}"]
    for arguments in (
        ["topic", "create", "T", "--queues", "1"],
        ["send", "-t", "T", "hello"],
        ["topic", "describe", "T"],
    ):
        ended = await run_cli(*arguments, *access, env=env)
        assert ended.code == 0, ended.err
    tailed = await run_cli("tail", "-t", "T", "-o", "earliest", "-e", *access, env=env)
    assert (tailed.code, tailed.out) == (0, b"hello\n")
    in_environment = {**env, "ROCKETMQ_ACCESS_KEY": "alice", "ROCKETMQ_SECRET_KEY": SECRET}
    ended = await run_cli("topic", "describe", "T", "-n", guarded, env=in_environment)
    assert ended.code == 0, ended.err


async def test_a_proxy_from_the_environment_is_used(
    address: str, env: dict[str, str], tmp_path: Path
) -> None:
    async with socks_server(("alice", SECRET)) as proxy:
        env = {**env, "ROCKETMQ_PROXY": proxy.url_with_credentials}
        ended = await run_cli("topic", "create", "T", "-n", address, env=env)
        assert ended.code == 0, ended.err
        assert split_address(address) in proxy.targets
        wrong = {**env, "ROCKETMQ_PROXY": f"socks5://alice:{SECRET}er@127.0.0.1:{proxy.port}"}
        refused = await run_cli("topic", "describe", "T", "-n", address, env=wrong)
        assert (refused.code, refused.out) == (1, b"")
        assert "authentication failure" in refused.err
        assert SECRET not in refused.err


async def test_an_invalid_proxy_is_refused_without_its_password(address: str, env: dict[str, str]) -> None:
    env = {**env, "ROCKETMQ_PROXY": f"http://alice:{SECRET}@127.0.0.1:1080"}
    ended = await run_cli("topic", "list", "-n", address, env=env)
    assert ended.code in (1, 2)
    assert "proxy is not a URL of the form socks5://user:password@host:port" in ended.err
    assert SECRET not in ended.err


@pytest.mark.parametrize(
    ("proxy", "shown", "is_secret"),
    [
        ("socks5://h:1", "proxy = socks5://h:1", False),
        (PROXY, "proxy = (not shown)", True),
        ("@/etc/proxy", "proxy = @/etc/proxy", False),
    ],
)
def test_config_shows_a_proxy_without_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str, shown: str, is_secret: bool
) -> None:
    file = tmp_path / "config.toml"
    monkeypatch.setenv("ROCKETMQ_CONFIG", str(file))
    assert CliRunner().invoke(main, ["config", "set", "prod", f"proxy={proxy}"]).exit_code == 0
    file.chmod(0o644)
    result = CliRunner().invoke(main, ["config", "show", "prod"])
    assert result.stdout.splitlines() == [shown]
    assert ("contains a secret" in result.stderr) == is_secret


def test_secrets_of_a_named_cluster_may_be_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    for name in ("secret", "token", "proxy"):
        (tmp_path / name).write_text(f"the-{name}\n")
    file.write_text(
        f"[clusters.prod]\naccess_key = 'alice'\nsecret_key = '@{tmp_path}/secret'\n"
        f"security_token = '@{tmp_path}/token'\nproxy = '@{tmp_path}/proxy'\n"
    )
    monkeypatch.setenv("ROCKETMQ_CONFIG", str(file))
    access = access_with("-C", "prod")
    assert (access.secret_key, access.security_token, access.proxy) == (
        "the-secret",
        "the-token",
        "the-proxy",
    )


@pytest.mark.parametrize("command", [["topic", "create", "T"], ["send", "-t", "T", "x"]], ids=str)
async def test_a_denied_request_is_reported_without_the_secret(
    guarded: str, env: dict[str, str], command: list[str]
) -> None:
    ended = await run_cli(
        *command, "-n", guarded, env={**env, "ROCKETMQ_ACCESS_KEY": "alice", "ROCKETMQ_SECRET_KEY": "wrong"}
    )
    assert (ended.code, ended.out) == (1, b"")
    assert "denies access" in ended.err
    assert "wrong" not in ended.err


async def test_named_clusters_are_set_used_and_shown(guarded: str, env: dict[str, str]) -> None:
    settings = [f"address={guarded}", "access_key=alice", f"secret_key={SECRET}", "namespace=tenant"]
    assert (await run_cli("config", "set", "prod", *settings, env=env)).code == 0
    file = Path(env["ROCKETMQ_CONFIG"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    created = await run_cli("topic", "create", "T", "-C", "prod", env=env)
    assert (created.code, created.err) == (0, "")
    assert (await run_cli("config", "use", "prod", env=env)).code == 0
    described = await run_cli("topic", "describe", "T", "--json", env=env)
    assert json.loads(described.out)["topic"] == "T"
    outside = await run_cli("topic", "describe", "tenant%T", "-C", "prod", "--namespace", "other", env=env)
    assert outside.code == 1
    shown = await run_cli("config", "show", env=env)
    assert shown.out.decode().splitlines() == [
        f"address = {guarded}",
        "access_key = alice",
        "secret_key = (not shown)",
        "namespace = tenant",
    ]
    listed = await run_cli("config", "list", env=env)
    assert listed.out.decode().splitlines() == [f"# {file}", f"* prod  {guarded}"]

    file.chmod(0o644)
    warned = await run_cli("topic", "describe", "T", env=env)
    assert warned.code == 0
    assert (
        warned.err
        == f"rocketmq-py: {file} contains a secret and is readable by other users; run chmod 600 on it\n"
    )
    assert (await run_cli("config", "set", "prod", f"secret_key=@{file}.secret", env=env)).code == 0
    file.chmod(0o644)
    assert "contains a secret" not in (await run_cli("config", "list", env=env)).err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("current = [", "is not valid TOML"),
        ("current = 1", 'must contain current = "NAME"'),
        ("[clusters.a]\nname_server = 'x'", "has an unknown setting 'name_server'"),
        ("[clusters.a]\ntls = 'yes'", "tls of cluster 'a' must be true or false"),
        ("[clusters.a]\ntls_ca_file = 1", "tls_ca_file of cluster 'a' must be a string"),
        ("clusters = 1", 'must contain current = "NAME"'),
        ("current = 'b'\n[clusters.a]\n", "has no cluster 'b'; it has a"),
    ],
)
def test_an_invalid_file_of_clusters_is_an_error_of_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    monkeypatch.setenv("ROCKETMQ_CONFIG", str(file))
    for command, code in (("topic list", 1), ("config show", 1), ("check health", 3)):
        result = CliRunner().invoke(main, command.split())
        assert (result.exit_code, result.stdout) == (code, "")
        assert error in result.stderr


def test_an_unknown_cluster_has_the_same_exit_code_in_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_CONFIG", str(tmp_path / "config.toml"))
    for command in ("topic list -C nope", "config show nope", "config use nope"):
        result = CliRunner().invoke(main, command.split())
        assert (result.exit_code, result.stdout) == (1, "")
        assert "has no cluster 'nope'" in result.stderr


def test_config_rejects_invalid_settings_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_CONFIG", str(tmp_path / "config.toml"))
    for arguments, error in (
        (["set", "a", "nothing=1"], "setting 'nothing' does not exist"),
        (["set", "a", "tls=yes"], "tls is true or false"),
        (["use", "a"], "has no cluster 'a'; it has none"),
        (["show"], "there is no default cluster"),
    ):
        result = CliRunner().invoke(main, ["config", *arguments])
        assert result.exit_code in (1, 2)
        assert error in result.stderr


def test_reprs_contain_no_secret() -> None:
    access = Access(access_key="alice", secret_key=SECRET, security_token="token", proxy=PROXY)
    assert SECRET not in repr(access)
    assert "token=" not in repr(access).replace("security_token", "")
    assert SECRET not in repr(access.client_options())


def test_tls_options_enable_tls() -> None:
    assert "tls" not in Access().client_options()
    assert Access(insecure=True).client_options()["tls"].verify is False  # type: ignore[union-attr]
    assert Access(tls=True).client_options()["tls"].verify is True  # type: ignore[union-attr]


SOURCES = ("options", "environment", "configuration")


@pytest.mark.parametrize("source", SOURCES)
def test_options_environment_and_configuration_set_all_of_the_access(tmp_path: Path, source: str) -> None:
    file = tmp_path / "a.pem"
    file.write_text("a certificate")
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    proxy = tmp_path / "proxy"
    proxy.write_text(f"{PROXY}\n")
    texts: dict[str, Any] = {
        "access_key": "alice", "secret_key": f"@{secret}", "security_token": "a-token",
        "tls_ca_file": str(file), "tls_certificate_file": str(file), "tls_key_file": str(file),
        "proxy": f"@{proxy}", "namespace": "tenant", "namespace_v2": "rmq-cn-1",
    }  # fmt: skip
    names = {"tls_ca_file": "tls_ca", "tls_certificate_file": "tls_cert", "tls_key_file": "tls_key"}
    options = {names.get(name, name): text for name, text in texts.items()}
    addresses, flags = "a:1;b:2", ("tls", "insecure")
    arguments: list[str] = []
    env = {"ROCKETMQ_CONFIG": str(tmp_path / "config.toml")}
    if source == "options":
        arguments = ["-n", addresses, *(f"--{flag}" for flag in flags)]
        arguments += [
            word for name, text in options.items() for word in (f"--{name.replace('_', '-')}", text)
        ]
    elif source == "environment":
        env |= {f"ROCKETMQ_{name.upper()}": text for name, text in options.items()}
        env |= {"NAMESRV_ADDR": addresses, **{f"ROCKETMQ_{flag.upper()}": "1" for flag in flags}}
    else:
        settings = [f"{name}={text}" for name, text in texts.items()]
        settings += [f"address={addresses}", *(f"{flag}=true" for flag in flags)]
        set_up = CliRunner().invoke(main, ["config", "set", "prod", *settings], env=env)
        assert (set_up.exit_code, set_up.stderr) == (0, "")
        arguments = ["-C", "prod"]
    assert access_with(*arguments, env=env) == Access(
        **{**texts, "secret_key": SECRET, "proxy": PROXY}, address=addresses, tls=True, insecure=True
    )


@pytest.mark.parametrize(
    ("arguments", "address", "namespace"),
    [
        (["-C", "test"], "test:1", "of-environment"),
        (["-C", "test", "-n", "option:1", "--namespace", "of-option"], "option:1", "of-option"),
        ([], "environment:1", "of-environment"),
    ],
    ids=str,
)
def test_a_cluster_of_the_command_line_takes_precedence_over_the_environment(
    tmp_path: Path, arguments: list[str], address: str, namespace: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("current = 'test'\n[clusters.test]\naddress = 'test:1'\n")
    env = {
        "ROCKETMQ_CONFIG": str(file),
        "NAMESRV_ADDR": "environment:1",
        "ROCKETMQ_NAMESPACE": "of-environment",
    }
    access = access_with(*arguments, env=env)
    assert (access.address, access.namespace) == (address, namespace)


ENDPOINT = "http://MQ_INST_1_Ab.example.com:8080"


@pytest.mark.parametrize(
    ("arguments", "namespace", "namespace_v2"),
    [
        (["-n", ENDPOINT], "MQ_INST_1_Ab", ""),
        (["-C", "prod"], "MQ_INST_1_Ab", ""),
        (["-C", "none"], "", ""),
        (["-n", ENDPOINT, "--namespace", ""], "", ""),
        (["-n", ENDPOINT, "--namespace", "own", "--namespace-v2", "rmq-cn-1"], "own", "rmq-cn-1"),
        (["-C", "second"], "", "rmq-cn-2"),
    ],
    ids=str,
)
def test_the_namespaces_of_an_endpoint(
    tmp_path: Path, arguments: list[str], namespace: str, namespace_v2: str
) -> None:
    file = tmp_path / "config.toml"
    env = {"ROCKETMQ_CONFIG": str(file)}
    settings = {
        "prod": [f"address={ENDPOINT}/"],
        "second": ["address=https://rmq-cn-2.example.com:8080", "namespace_v2=rmq-cn-2"],
    }
    for name, values in settings.items():
        assert CliRunner().invoke(main, ["config", "set", name, *values], env=env).exit_code == 0
    file.write_text(f"{file.read_text()}\n[clusters.none]\naddress = '{ENDPOINT}'\nnamespace = ''\n")
    access = access_with(*arguments, env=env)
    client = Client(access.address, **access.client_options())
    assert (core_of(client).namespace.name, client.settings.namespace_v2) == (namespace, namespace_v2)


@pytest.mark.parametrize("name", ["MQREST", "mqrest"])
def test_an_endpoint_of_the_http_product_is_a_usage_error(name: str) -> None:
    ended = CliRunner().invoke(main, ["topic", "list", "-n", f"http://1.{name}.cn-x.example.com"])
    assert ended.exit_code == 2
    assert "use the TCP endpoint" in " ".join(ended.stderr.split())


@pytest.mark.parametrize(
    "address", ["a", "http://1.mqrest.cn-x.example.com:80", "http://a:1/b;c:1;http://d:1/e"]
)
def test_a_cluster_with_an_invalid_address_is_not_stored(tmp_path: Path, address: str) -> None:
    file = tmp_path / "config.toml"
    ended = CliRunner().invoke(
        main, ["config", "set", "prod", f"address={address}"], env={"ROCKETMQ_CONFIG": str(file)}
    )
    assert ended.exit_code == 2
    assert "address: " in ended.stderr
    assert not file.exists()


def test_a_private_key_without_its_certificate_is_a_usage_error(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "a.pem"
    file.write_text("a private key")
    ended = CliRunner().invoke(main, ["topic", "list", "--tls-key", str(file)], env=env)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == "rocketmq-py: --tls-cert is missing: a private key needs its certificate\n"
