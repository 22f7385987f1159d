"""Consumes by pop (5.x): brokers track each message's acknowledgement, and queues are not assigned.

Begin with ``consumer.PopConsumer``, which asks brokers through ``requests.PopRequests``. For push consumers
whose brokers assign pop, ``assigned_queues`` runs a ``pop_loop.PopLoop`` for each queue, which fills a
``process_queue.PopProcessQueue``, and ``acknowledger.PopAcknowledger`` reports the outcomes.
"""
