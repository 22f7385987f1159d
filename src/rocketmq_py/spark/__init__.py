"""The Spark data source ``rocketmq``: reads topics and appends to them, in batch jobs and streaming queries.

With ``rocketmq-py[spark]`` installed for the driver and the workers, Spark finds the format by its name::

    orders = spark.readStream.format("rocketmq").option("nameServer", "...").option("topic", "orders").load()

Newcomers start at ``data_source.RocketMQDataSource``, which creates the classes of ``source`` (planning in
``stream_planner`` and ``batch_plan``, reading in ``source_task``) and of ``sink`` (encoding in ``sink_task``,
sending in ``piece_sender``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_py.spark.pyspark_version import check_pyspark
from rocketmq_py.spark.stamps import STAMP, deduplicate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_py.spark.lag_listener import LagListener, StreamLag

__all__ = ["STAMP", "LagListener", "StreamLag", "deduplicate", "register"]


def __getattr__(name: str) -> Any:
    if name not in ("LagListener", "StreamLag"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_pyspark()
    from rocketmq_py.spark import lag_listener

    return getattr(lag_listener, name)


def register(spark: SparkSession) -> None:
    """Register ``format("rocketmq")`` with a session.

    Needed only if Spark does not discover the format by itself. Spark's discovery runs once per session, with
    the Python of the workers, and imports every top-level module named ``pyspark_*``.

    Args:
        spark: the session, classic or Spark Connect.

    Raises:
        ConfigurationError: pyspark is missing or too old.
    """
    check_pyspark()
    from rocketmq_py.spark.data_source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
