"""A search index of customers with their orders, kept equal to the database."""
