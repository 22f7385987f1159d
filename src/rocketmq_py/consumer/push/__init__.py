"""The push consumer calls a handler for each message or list of messages.

Begin with ``consumer.PushConsumer``, whose ``run`` opens a ``session.Session``. The session's dispatch
(``concurrent_dispatch`` or ``orderly_dispatch``) has an executor call the handler: ``handler_workers`` an
async function, ``handler_threads`` a plain one, and ``aio.handler_tasks`` a function on an asyncio loop.
``handler_failures`` redelivers or retries the messages of failed calls.
"""
