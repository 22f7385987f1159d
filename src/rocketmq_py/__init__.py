"""rocketmq-py: an Apache RocketMQ client on trio, with an embedded broker."""
