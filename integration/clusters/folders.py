"""Temporary folders that are removed even if their run was killed."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path

_PREFIX = "rocketmq-integration-"
_LOCK = "owned"


class OwnedFolder:
    """A temporary folder, locked while this interpreter lives.

    :meth:`remove` removes it. If the run was killed, the next OwnedFolder of any run removes it.

    Attributes:
        path: the folder's path.
    """

    def __init__(self) -> None:
        remove_abandoned_folders()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Locked under another name first, so that cleanup in other runs never sees it unlocked.
        unlocked = self.path / "new"
        self._lock = unlocked.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Remove the folder and its contents. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def remove_abandoned_folders() -> None:
    """Remove the folders of killed runs, whose locks are free."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
