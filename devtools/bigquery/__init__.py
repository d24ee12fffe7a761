"""A stand-in for BigQuery: an emulator, and a strict front before it."""
