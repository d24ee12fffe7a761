"""Dumps and verifications: which chunk is read next, and whether its rows may be emitted."""
