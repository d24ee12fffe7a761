"""Debezium's envelope, and its mapping of types."""
