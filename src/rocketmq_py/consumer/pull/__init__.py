"""Pulls messages from brokers, with flow control and retries. All packages of consumers use it.

Begin with ``assigned_queues.AssignedQueues``, which runs a ``pull_loop.PullLoop`` for each assigned queue.
The loop pulls with ``queue_puller.QueuePuller`` into a ``process_queue.ProcessQueue``, whose safe offset is
committed. ``flow_control`` decides when a loop waits, and ``retry`` decides about retries.
"""
