"""``examples/operating.sh`` on brokers without automatic topics, with access control and TLS."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.access import ADMIN, SETTINGS_OF_5
from integration.certificates import make_certificates
from integration.clusters.cluster import Cluster
from integration.clusters.plugin import SETTINGS
from integration.clusters.provider import VERSIONS
from integration.test_acl import USER
from tests.cli.command import ENVIRONMENT

SCRIPT = Path(__file__).parent.parent / "examples" / "operating.sh"
ACCOUNTS_OF_4 = f"""
accounts:
  - accessKey: {ADMIN.access_key}
    secretKey: {ADMIN.secret_key}
    admin: true
  - accessKey: {USER.access_key}
    secretKey: {USER.secret_key}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - Orders=PUB|SUB
    groupPerms:
      - billing=SUB
"""
GUARDED = {**SETTINGS, "autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false"}
PATIENCE = 1200
"""Seconds. An idle machine needs a twentieth of that."""


@pytest.mark.parametrize("version", VERSIONS)
def test_operating(version: str, own_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    if version.startswith("4."):
        settings = {**GUARDED, "aclEnable": "true"}
        files = {**certificates.files, "conf/plain_acl.yml": ACCOUNTS_OF_4}
    else:
        settings = {**GUARDED, **SETTINGS_OF_5}
        files = dict(certificates.files)
    cluster = own_cluster(version, settings=settings, files=files, jvm=certificates.jvm)
    secrets: dict[str, str] = {}
    for name, credentials in (("OPERATOR", ADMIN), ("SHOP", USER)):
        secret = tmp_path / name
        secret.write_text(credentials.secret_key)
        secrets |= {name: credentials.access_key, f"{name}_SECRET": str(secret)}
    commands = tmp_path / "bin"
    commands.mkdir()
    command = commands / "rocketmq-py"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketmq_py "$@"\n')
    command.chmod(0o755)
    output = tmp_path / "output"
    with output.open("w") as file:
        ended = subprocess.run(
            ["/bin/sh", str(SCRIPT)],
            env={
                **ENVIRONMENT,
                **secrets,
                "NAMESRV": cluster.name_servers,
                "CA": str(certificates.ca_file),
                "CERT": str(certificates.own),
                "ROCKETMQ_CONFIG": str(tmp_path / "config.toml"),
                "PATH": f"{commands}:{os.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )
    printed = output.read_text()
    print(printed)
    assert ended.returncode == 0
    assert printed.endswith("\n## Done\n")
    assert "Traceback" not in printed
    for secret_key in (ADMIN.secret_key, USER.secret_key):
        assert secret_key not in printed
