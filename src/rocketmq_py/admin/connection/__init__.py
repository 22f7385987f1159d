"""The steps of ``rocketmq-py check connection``, which is their only user.

``walk`` takes them one by one: those of ``servers``, from the address to a name server that accepts the keys,
then those of ``topics``, from the topic's name to a message. ``consoles`` has the words of managed services.
"""
