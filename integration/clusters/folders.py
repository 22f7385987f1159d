"""Temporary folders that do not outlive their run for long, even if it is killed."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path

_PREFIX = "rocketmq-integration-"
_LOCK = "owned"


class OwnedFolder:
    """A temporary folder, locked as long as this interpreter lives.

    :meth:`remove` removes it; when nobody could call that, the next folder that is made anywhere does.

    Attributes:
        path: where it is.
    """

    def __init__(self) -> None:
        remove_abandoned_folders()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Locked under another name first: who looks for abandoned folders never sees this one unlocked.
        unlocked = self.path / "new"
        self._lock = unlocked.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Remove it with all that is in it; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def remove_abandoned_folders() -> None:
    """Remove the folders of runs that were killed: nobody holds their lock."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
