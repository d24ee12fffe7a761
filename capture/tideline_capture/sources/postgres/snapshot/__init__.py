"""Chunks and copies of tables, read with COPY."""
