"""Iceberg tables as the planner reads them, their catalog, and their jars."""
