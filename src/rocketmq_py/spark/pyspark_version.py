"""The check of the installed pyspark. It imports nothing that an older pyspark lacks."""

from __future__ import annotations

import re

from rocketmq_py.errors import ConfigurationError

OLDEST_SPARK = (4, 1)
"""The first version whose Python data sources can write Arrow batches."""


def check_pyspark() -> tuple[int, int]:
    """Return the major and minor version of pyspark.

    Raises ConfigurationError if pyspark is missing or too old.
    """
    try:
        from pyspark import __version__ as version
    except ModuleNotFoundError:
        raise ConfigurationError(
            "the format rocketmq needs pyspark, which is not installed; install rocketmq-py[spark]"
        ) from None
    match = re.match(r"(\d+)\.(\d+)", version)
    numbers = (int(match[1]), int(match[2])) if match else OLDEST_SPARK
    if numbers < OLDEST_SPARK:
        raise ConfigurationError(
            f"the format rocketmq needs pyspark {OLDEST_SPARK[0]}.{OLDEST_SPARK[1]} or newer, and pyspark "
            f"{version} is installed; upgrade it on the driver and on all workers"
        )
    return numbers
