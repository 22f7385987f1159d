"""Where Spark finds ``format("rocketmq")``: it looks into every module that is named ``pyspark_...``."""

from rocketmq_py.spark.data_source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
