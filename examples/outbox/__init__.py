"""An order service with an outbox, and a consumer of its events."""
