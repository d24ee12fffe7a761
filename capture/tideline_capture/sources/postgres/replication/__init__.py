"""The replication stream: pgoutput messages, rows decoded in bulk, and transactions."""
