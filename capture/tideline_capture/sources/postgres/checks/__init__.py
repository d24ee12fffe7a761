"""Checks of a PostgreSQL before capture runs."""
