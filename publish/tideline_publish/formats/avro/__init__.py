"""Avro as a form of events, with a schema registry."""
