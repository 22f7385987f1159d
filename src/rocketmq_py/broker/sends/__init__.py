"""Requests that store messages: sends, replies, retries, recalls and transactions.

``SendProcessor`` answers sends. ``PlainSendHandler`` is its fast path for ordinary messages. The other
processors handle replies (``ReplyProcessor``), messages that a consumer failed to process
(``SendBackProcessor``), recalls of timed messages (``RecallProcessor``) and half messages
(``TransactionProcessor``). Start reading in ``send_requests``, which also has the checks that sends and
replies share (``SendValidator``).
"""
