"""Pipelines between topics and tables of Delta Lake and Apache Iceberg. docs/pipelines.md explains them."""
