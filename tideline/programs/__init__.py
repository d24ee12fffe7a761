"""The common behaviour of long-running programs: stopping on signals, and printable log lines."""
