"""Spark on clusters: processes of their own, an environment that is shipped, and faults.

`make spark-clusters` runs these tests, with brokers 5.5.0. They are not a part of `make rest`, because each
job takes half a minute.
"""
