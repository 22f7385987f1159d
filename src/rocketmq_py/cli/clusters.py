"""The clusters that have a name: ``config.toml`` in the folder where this system keeps settings."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from rocketmq_py.cli.console import complain

TEXTS = (
    "name_servers",
    "access_key",
    "secret_key",
    "security_token",
    "ca",
    "cert",
    "key",
    "namespace",
)
FLAGS = ("tls", "insecure")
SECRETS = ("secret_key", "security_token")


class ClustersError(Exception):
    """The file cannot be used; the text says why."""


def file_of_clusters() -> Path:
    """Return where the file is: ROCKETMQ_CONFIG, else where this system keeps settings."""
    if named := os.environ.get("ROCKETMQ_CONFIG"):
        return Path(named)
    from platformdirs import user_config_path

    return user_config_path("rocketmq-py") / "config.toml"


@attrs.frozen
class Clusters:
    """What the file says.

    Attributes:
        path: the file.
        current: the cluster that is meant when none is named.
        by_name: the settings of each.
    """

    path: Path
    current: str | None = None
    by_name: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    @classmethod
    def load(cls) -> Clusters:
        """Return what the file says; nothing if there is none.

        A file that others may read and that holds a secret is warned of, on stderr.

        Raises:
            ClustersError: it cannot be read, or says what it should not.
        """
        path = file_of_clusters()
        try:
            text = path.read_text()
        except FileNotFoundError:
            return cls(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            raise ClustersError(f"cannot read {path}: {reason}") from None
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ClustersError(f"{path} is no TOML: {error}") from None
        clusters = document.get("clusters", {})
        current = document.get("current")
        if not isinstance(clusters, dict) or not isinstance(current, str | None):
            raise ClustersError(f'{path} must hold current = "NAME" and tables [clusters.NAME]')
        for name, settings in clusters.items():
            _check(path, name, settings)
        loaded = cls(path, current, clusters)
        loaded._warn_of_readers()
        return loaded

    def settings_of(self, name: str) -> dict[str, Any]:
        """Return the settings of a cluster. Raises ClustersError if there is none of that name."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise ClustersError(f"{self.path} has no cluster {name!r}; it has {known}")
        return dict(self.by_name[name])

    def save(self) -> None:
        """Write the file, for its owner only. Raises ClustersError if it cannot be written."""
        lines = [] if self.current is None else [f"current = {json.dumps(self.current)}", ""]
        for name, settings in sorted(self.by_name.items()):
            lines.append(f"[clusters.{json.dumps(name)}]")
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
            lines.append("")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.path.with_name(f"{self.path.name}.new")
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write("\n".join(lines))
            new.replace(self.path)
        except OSError as error:
            raise ClustersError(f"cannot write {self.path}: {error.strerror or error}") from None

    def _warn_of_readers(self) -> None:
        holds_secret = any(
            name in settings and not str(settings[name]).startswith("@")
            for settings in self.by_name.values()
            for name in SECRETS
        )
        if holds_secret and os.name == "posix" and self.path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            complain(f"{self.path} holds a secret, and others may read it: chmod 600")


def _check(path: Path, name: str, settings: object) -> None:
    if not isinstance(settings, dict):
        raise ClustersError(f"{path}: clusters.{name} is no table")
    for key, value in settings.items():
        if key not in (*TEXTS, *FLAGS):
            raise ClustersError(f"{path}: cluster {name!r} has a setting {key!r}, which there is not")
        if not isinstance(value, bool if key in FLAGS else str):
            kind = "true or false" if key in FLAGS else "a text"
            raise ClustersError(f"{path}: {key} of cluster {name!r} must be {kind}")
