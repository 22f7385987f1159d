"""An Apache Airflow provider: connection, hook, send operator, message sensor, and message-queue provider.

``hook`` has the connection type ``rocketmq``. ``operators`` sends messages, and ``sensors`` waits for one, in
a worker or, with ``trigger``, in the triggerer. ``queues`` makes the trigger available to
``MessageQueueTrigger``, for DAGs that messages start. Airflow finds all of them through ``provider``. Needs
the extra ``airflow``.
"""
