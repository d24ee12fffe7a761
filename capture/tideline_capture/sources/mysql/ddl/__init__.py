"""DDL of the binlog: the effect of a logged statement on tables, their columns and existing
rows."""
