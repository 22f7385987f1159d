"""RocketMQ as a source and a sink of Spark, batch and streaming.

With ``rocketmq-py[spark]`` installed where the driver and the workers run, Spark knows the format by name::

    orders = spark.readStream.format("rocketmq").option("nameServer", "...").option("topic", "orders").load()

:func:`register` is for sessions that do not look for formats by themselves; :func:`deduplicate` drops what
a sink sent twice.
"""

from __future__ import annotations

from rocketmq_py.spark.deduplicating import deduplicate
from rocketmq_py.spark.registration import register
from rocketmq_py.spark.stamps import STAMP

__all__ = ["STAMP", "deduplicate", "register"]
