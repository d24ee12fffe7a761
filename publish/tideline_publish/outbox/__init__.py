"""The outbox: rows and messages that an application wrote as events."""
