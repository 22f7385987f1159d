"""One way to pull a queue: the request, what was pulled and is not done with, and when to wait."""
