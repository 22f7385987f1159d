"""Being one of a group: subscriptions, sharing out queues, locks, offsets, hooks and counts."""
