"""Publishes the chain's changes as events: to Kafka, or to files."""
