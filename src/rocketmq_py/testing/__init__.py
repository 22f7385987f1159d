"""Tests of programs that use RocketMQ: a broker beside the test, which can be looked at and put forward."""

from rocketmq_py.testing.cluster import TestBroker, TestCluster, run_broker, run_cluster
from rocketmq_py.testing.real import RealCluster
from rocketmq_py.testing.requests import Request

__all__ = ["RealCluster", "Request", "TestBroker", "TestCluster", "run_broker", "run_cluster"]
