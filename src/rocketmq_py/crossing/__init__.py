"""The one thread of a process that runs trio, and how calls of other threads and of asyncio cross over.

The ground of the doors ``rocketmq_py.blocking`` and ``rocketmq_py.aio``.
"""
