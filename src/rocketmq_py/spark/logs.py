"""What this format logs, made visible in Spark's own Python processes."""

from __future__ import annotations

import logging
import os
import sys

LEVEL = "ROCKETMQ_LOG_LEVEL"
"""The environment variable that says from which level on: INFO, a line a batch, if it is not set."""


def show_log() -> None:
    """Send the log to this process's stderr, which Spark puts with its own, unless logging is set up here.

    The processes that Spark starts beside the driver, and its workers, set up none.
    """
    logger = logging.getLogger("rocketmq_py")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    level = logging.getLevelName(os.environ.get(LEVEL, "INFO").upper())
    logger.setLevel(level if isinstance(level, int) else logging.INFO)
