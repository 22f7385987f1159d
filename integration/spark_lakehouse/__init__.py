"""Examples that write tables of Delta Lake and Iceberg, run as a user runs them, and killed at random.

`make spark-lakehouse` runs these tests with Spark 4.1, which both formats support, and brokers 5.5.0.
"""
