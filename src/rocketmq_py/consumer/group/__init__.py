"""Membership of a consumer group: subscriptions, rebalancing, queue locks, offset commits and statistics.

The consumer classes extend ``GroupConsumer`` (``base_consumer.py``). ``Membership`` registers a consumer with
the brokers, ``Rebalancer`` distributes the queues, and ``RemoteOffsetStore`` (``offset_commits.py``) commits
the offsets. ``OperatorRequests`` answers the requests that operators send through a broker.
"""
