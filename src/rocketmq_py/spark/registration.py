"""Making the format known, and what that needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rocketmq_py.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = (4, 1)
"""The first Spark whose Python data sources write Arrow batches."""


def check_pyspark() -> tuple[int, int]:
    """Return the version of pyspark, the first two numbers.

    Raises ConfigurationError if there is none, or one that is too old.
    """
    try:
        from pyspark import __version__ as version
    except ModuleNotFoundError:
        raise ConfigurationError(
            "pyspark is not installed; the format rocketmq needs it: pip install rocketmq-py[spark]"
        ) from None
    found = re.match(r"(\d+)\.(\d+)", version)
    numbers = (int(found[1]), int(found[2])) if found else OLDEST
    if numbers < OLDEST:
        raise ConfigurationError(
            f"pyspark is {version}; the format rocketmq needs {OLDEST[0]}.{OLDEST[1]} or newer, on the "
            "driver and on the workers"
        )
    return numbers


def register(spark: SparkSession) -> None:
    """Make ``format("rocketmq")`` known to a session.

    Not needed where Spark finds it by itself: it looks once, with the Python of its workers, into every
    module named ``pyspark_...``.

    Args:
        spark: the session, a classic one or one of Spark Connect.

    Raises:
        ConfigurationError: pyspark is too old.
    """
    check_pyspark()
    from rocketmq_py.spark.data_source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
