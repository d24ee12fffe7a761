"""Dumps and verifications: the next chunk to read, and whether its rows may be emitted."""
