"""Requests that store messages: sends, replies, retries, recalls and transactions.

``SendProcessor`` answers sends. The other processors handle replies (``ReplyProcessor``), messages that a
consumer failed to process (``SendBackProcessor``), recalls of timed messages (``RecallProcessor``) and half
messages (``TransactionProcessor``). Start reading in ``send_requests``, which also has the checks that sends
and replies share (``SendValidator``).
"""
