"""Other warehouses' SQL for the expressions that jobs write in Spark's."""
