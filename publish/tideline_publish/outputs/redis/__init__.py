"""Redis Streams as an output."""
