"""The lite pull consumer: messages come when they are asked for."""
