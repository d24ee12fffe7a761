"""Tideline's supply chain: images by digest, packages by hash, and their lists."""
