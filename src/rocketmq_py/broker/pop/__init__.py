"""Consumption by pop (5.x): the broker redelivers messages that are not acknowledged in time.

``PopProcessor`` answers pops, and ``AckProcessor`` acknowledgements and changes of the invisible time.
``PopReader`` reads the messages of a pop. ``CheckpointTable`` tracks them until they are acknowledged, and
``OrderedPops`` tracks those that were popped in order. Start reading in ``pop_requests``.

Java: ``PopMessageProcessor``, ``AckMessageProcessor``, ``PopReviveService``.
"""
