"""Kafka as an output."""
