"""Delta tables: all code of the jobs that depends on Delta."""
