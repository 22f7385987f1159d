"""Requests of administration tools (Java: ``AdminBrokerProcessor``).

``TopicProcessor`` and ``GroupProcessor`` answer requests about topics and groups, ``ConsumeStatsProcessor``
about the progress of groups, and ``BrokerInfoProcessor`` about the broker itself. ``AccessControl``
authenticates all requests and manages users. Start reading in ``topic_requests``.
"""
