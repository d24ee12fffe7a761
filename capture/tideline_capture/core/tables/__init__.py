"""Captured tables: their states, schemas, conditions, and the rounds over the catalog."""
