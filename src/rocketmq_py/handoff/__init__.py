"""The hand-off between user threads or asyncio loops and the one trio thread of a process.

``rocketmq_py.blocking`` and ``rocketmq_py.aio`` never run client code in the caller's thread, and the trio
thread never waits for a caller. An inbox, and an outbox per asyncio loop, are the whole interface::

    caller's thread or loop                        trio thread
    -----------------------                        -----------
    check that the object is open
    append one function to the inbox  ──wake──▶    call every function in the inbox
    wait on a primitive of its own                 (each starts a task, or takes queued messages)
           ▲                                       ...
           │                                       set results, or append them to outboxes
           └───────────── one wake ───────────     before it waits for I/O: wake each loop and thread

Going in: :meth:`TrioThread.post` appends to a deque and writes to an eventfd unless a wake-up has been
written since the last one was drained. A signal handler, a finalizer or a logging handler may call the
library between any two bytecodes of another call. No call relies on a step that an interrupted one has yet
to take. No lock guards shared data.

Coming back: a thread waits for a lock that only its own call releases (:class:`ThreadCall`). An asyncio loop
has an outbox and is woken once for everything in it (:class:`LoopLink`). Callbacks of the threads API's
futures run in another thread (``blocking/futures.py``), and log records reach the user's handlers from a
thread of their own, because both may be user code that blocks (``callback_thread.py``).

For example, ``send`` in ``aio/base_producers.py`` posts a ``LoopSendCall`` (``hosted_producer.py``) to the
trio thread. It starts the send, for which ``producer/sender.py`` writes the message to a ``Connection``, and
receives the outcome.

Begin with ``trio_thread.py``, which has the one thread of the process, its end and forks, and the descriptor
that wakes a thread or a loop. Then read ``calls.py``. ``loop_link.py`` has the way back to asyncio;
``hosted.py`` the objects and context managers that live in the trio thread, ``hosted_producer.py`` the
producers among them, with awaited sends, and ``hosted_consumer.py`` the consumers; ``send_queue.py``
pipelined sends and their backpressure; ``undelivered_messages.py`` messages that were fetched for interrupted
calls.
"""
