"""Lite topics (5.5): short-lived topics below a parent topic, each in a queue of its own.

``LitePopProcessor`` answers pops and changes of subscriptions, and ``LiteAcks`` acknowledgements.
``LiteSubscriptionTable`` has the lite topics of each client, ``LiteDispatcher`` offers lite topics with
messages to the clients, and ``LiteExpiry`` removes those without recent messages. Start reading in
``lite_requests``.
"""
