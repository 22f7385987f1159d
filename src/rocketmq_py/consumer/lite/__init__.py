"""Consumes lite topics (5.5): short-lived topics below a parent topic of type LITE.

Begin with ``base``, which both consumers share: the parent topic and the subscription of this client.
``subscriber`` keeps the subscription on every broker, and ``requests`` adapts the requests of pop.
``consumer`` contains LiteTopicConsumer, which receives on request. ``push_consumer`` contains
LiteTopicPushConsumer, which calls a handler through ``session``.
"""
