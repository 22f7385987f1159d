"""Spark jobs that tests submit to a cluster."""
