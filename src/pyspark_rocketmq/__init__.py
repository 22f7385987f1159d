"""The module by which Spark discovers ``format("rocketmq")``: it imports all modules named ``pyspark_*``."""

from rocketmq_py.spark.data_source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
