"""The push consumer calls a handler for each message or list of messages.

Begin with ``consumer.PushConsumer``, whose ``run`` opens a ``session.Session``. The session's dispatch
(``concurrent_dispatch``, ``executor_dispatch`` or ``orderly_dispatch``) calls the handler.
``handler_failures`` redelivers or retries the messages of failed calls.
"""
