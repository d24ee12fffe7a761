"""Kinesis as an output."""
