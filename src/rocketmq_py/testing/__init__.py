"""Tests of programs that use RocketMQ: a broker beside the test, which can be looked at and put forward."""

from rocketmq_py.testing.faults import Fault
from rocketmq_py.testing.real import RealCluster
from rocketmq_py.testing.requests import Request
from rocketmq_py.testing.simulation import Simulation, World, simulate
from rocketmq_py.testing.threaded import TestBroker, TestCluster, run_broker, run_cluster

__all__ = [
    "Fault",
    "RealCluster",
    "Request",
    "Simulation",
    "TestBroker",
    "TestCluster",
    "World",
    "run_broker",
    "run_cluster",
    "simulate",
]
