"""A test kit for programs that use RocketMQ.

``run_broker()`` and ``run_cluster()`` run a ``TestBroker`` or ``TestCluster`` in a thread: tests inspect its
messages, wait for them, advance its clock and inject faults. ``simulate()`` runs a program and its brokers in
virtual time, from a seed. ``RealCluster`` offers the inspection for a real cluster. Start reading in
``threaded_cluster``. ``cluster`` has the faults, and ``cluster_servers`` the servers. ``simulation`` uses
``network`` and ``determinism``, which replace sockets, time and randomness.
"""

from rocketmq_py.testing.real_cluster import RealCluster
from rocketmq_py.testing.simulation import World, simulate
from rocketmq_py.testing.threaded_cluster import TestBroker, TestCluster, run_broker, run_cluster

__all__ = [
    "RealCluster",
    "TestBroker",
    "TestCluster",
    "World",
    "run_broker",
    "run_cluster",
    "simulate",
]
