"""Sending: choose a queue, send, retry."""

from rocketmq_py.producer.config import ProducerConfig, ProducerOptions
from rocketmq_py.producer.pending import PendingSend
from rocketmq_py.producer.producer import Producer

__all__ = ["PendingSend", "Producer", "ProducerConfig", "ProducerOptions"]
