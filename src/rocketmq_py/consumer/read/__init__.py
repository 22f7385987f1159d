"""Reads topics without joining a group, and looks up single messages.

Begin with ``reader.Reader``. Its methods return a ``stream.MessageStream`` (all queues of a topic), a
``range.QueueRange`` (a part of one queue), or a ``pull_result_stream.PullResultStream`` (undecoded messages
of many offset ranges), or call ``message_queries`` and ``offset_queries``.
"""
