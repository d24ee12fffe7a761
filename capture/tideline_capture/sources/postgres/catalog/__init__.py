"""PostgreSQL's catalog: tables, types, defaults, problems, and rounds over it."""
