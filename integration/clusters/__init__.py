"""Real RocketMQ clusters for tests, in containers or as local processes."""
