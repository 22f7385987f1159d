"""Consuming by pop (5.x): the pop consumer, and what a push consumer pops."""
