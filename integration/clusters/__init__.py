"""Real RocketMQ clusters for tests, however they can be had."""
