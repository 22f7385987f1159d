"""Consuming by pop (5.x): brokers remember what was taken, and deliver it again if nobody acknowledges it.

Java: ``PopMessageProcessor``, ``AckMessageProcessor``, ``ChangeInvisibleTimeProcessor`` and
``PopReviveService``.
"""

from __future__ import annotations

from rocketmq_py.broker.pop.service import PopService

__all__ = ["PopService"]
