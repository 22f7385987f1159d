"""The push consumer calls a handler for each message or list of messages.

Begin with ``consumer.PushConsumer``, whose ``run`` opens a ``session.Session``. The session's dispatch
(``concurrent``, ``executor_dispatch`` or ``orderly``) calls the handler. ``handler_failures`` redelivers or
retries the messages of failed calls.
"""
