"""Chunks and copies of tables, read over SQL connections."""
