"""A stream whose options are wrong.

Up to 4.3 Spark hides what a data source raises instead of a stream's reader behind an UnboundLocalError of
its own. So there is a reader, and it raises the error when it is first asked for anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.arriving import Arrives
from rocketmq_py.spark.limits import SupportsTriggerAvailableNow


class RefusedStream(Arrives, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the same error whatever it is asked for.

    Args:
        reason: the error's text.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ConfigurationError(self._reason)

    def read(self, partition: object) -> NoReturn:
        """Raise the error."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._refuse()

    if not TYPE_CHECKING:  # what the base class has already
        initialOffset = latestOffset = getDefaultReadLimit = _refuse  # noqa: N815
        reportLatestOffset = partitions = commit = _refuse  # noqa: N815
