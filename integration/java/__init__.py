"""The Java clients as peers."""
