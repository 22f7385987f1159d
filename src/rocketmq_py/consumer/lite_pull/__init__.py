"""The lite pull consumer: ``LitePullConsumer`` returns messages from ``poll()``.

``LitePullSession`` runs its background tasks. ``Assignment`` has its queues and commits their offsets, and
``PollBuffer`` the messages that were pulled ahead.
"""
