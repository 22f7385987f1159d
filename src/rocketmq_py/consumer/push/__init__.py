"""The push consumer: messages come to the handler by themselves."""
