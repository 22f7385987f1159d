"""Changes to the file of named clusters.

A change reads the file, edits it and replaces it while holding a lock, so that concurrent commands do not
lose changes. Comments and the order of a hand-edited file stay, if its clusters are tables. The new content
goes to a fresh file that only its owner may read. That replaces the old file once it has been read back. A
change that fails leaves the old file in place.
"""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from rocketmq_py.cli.clusters import Clusters, ClustersError, file_of_clusters, read_file

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        """Lock a file until it is closed. Raises OSError after 10 s."""
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        """Lock a file until it is closed."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)


Settings = Mapping[str, str | bool | None]
"""New values of a cluster's settings. None removes a setting."""


def set_cluster(name: str, settings: Settings) -> None:
    """Change settings of a cluster, which is created if it does not exist. Other settings stay.

    Raises:
        ClustersError: the file cannot be read or written.
    """

    def edit(document: Any, clusters: Clusters) -> Clusters:
        table = document.setdefault("clusters", tomlkit.table(is_super_table=True))
        is_inline = isinstance(table, InlineTable)
        cluster = table.setdefault(name, tomlkit.inline_table() if is_inline else tomlkit.table())
        changed = dict(clusters.by_name.get(name, {}))
        for key, value in settings.items():
            if value is None:
                cluster.pop(key, None)
                changed.pop(key, None)
            else:
                cluster[key] = changed[key] = value
        return attrs.evolve(clusters, by_name={**clusters.by_name, name: changed})

    _change(edit)


def use_cluster(name: str) -> None:
    """Make a cluster the default.

    Raises:
        ClustersError: the cluster does not exist, or the file cannot be read or written.
    """

    def edit(document: Any, clusters: Clusters) -> Clusters:
        clusters.settings_of(name)
        document["current"] = name
        return attrs.evolve(clusters, current=name)

    _change(edit)


def _change(edit: Callable[[Any, Clusters], Clusters]) -> None:
    """Edit the file under the lock. ``edit`` changes the document and returns the expected clusters."""
    path = file_of_clusters()
    with _locked(path):
        text = read_file(path)
        clusters = Clusters.parse(path, text)
        try:
            document = tomlkit.parse(text)
            expected = edit(document, clusters)
            changed = tomlkit.dumps(document)
            if not _reads_as(changed, expected):
                # tomlkit cannot add a table next to dotted keys: write all values anew, without comments.
                named = {} if expected.current is None else {"current": expected.current}
                changed = tomlkit.dumps(tomllib.loads(text) | named | {"clusters": expected.by_name})
        except TOMLKitError as error:
            raise ClustersError(f"cannot edit {path}: {error}") from None
        _replace(path, changed, expected)


def _reads_as(text: str, expected: Clusters) -> bool:
    try:
        return Clusters.parse(expected.path, text) == expected
    except ClustersError:
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of the file, an empty file with the suffix ``.lock`` that stays."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise ClustersError(f"cannot lock {lock}: {error.strerror or error}") from None
    try:
        try:
            _lock(descriptor)
        except OSError as error:
            raise ClustersError(f"cannot lock {lock}: {error.strerror or error}") from None
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str, expected: Clusters) -> None:
    """Replace the file by ``text``, if that reads back as ``expected``."""
    try:
        # A fresh file, mode 0600: no other user can have prepared it, or can read it.
        descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
        new = Path(name)
        try:
            with open(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            if not _reads_as(read_file(new), expected):
                raise ClustersError(f"cannot write {path}: the new content does not read back")
            new.replace(path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
    except OSError as error:
        raise ClustersError(f"cannot write {path}: {error.strerror or error}") from None
