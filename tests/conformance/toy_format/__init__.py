"""A toy table format: whole copies in Parquet, and a JSON document for each version."""
