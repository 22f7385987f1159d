"""The broker's messages: an in-memory commit log, its consume queues, and delayed delivery.

``MessageStore`` appends messages and looks them up; ``ConsumeQueue`` holds the messages of one queue.
``BrokerMessage`` is a message in decoded form, on its way into the store or out of it. ``MessageScheduler``
stores messages at once or, if they have a delay level or a delivery time, when they are due.
Start reading in ``message_store``.
"""
