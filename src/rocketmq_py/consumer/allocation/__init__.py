"""How the members of a group share out a topic's queues: Java's strategies."""
