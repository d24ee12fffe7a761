"""Delta tables: everything of the jobs that knows Delta."""
