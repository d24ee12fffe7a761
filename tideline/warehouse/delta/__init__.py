"""Delta tables, read through deltalake, and the meaning of their log's files."""
